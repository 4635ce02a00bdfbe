"""Replies put together from the chunks of a stream."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors import answer as answer_module
from actors import sse
from actors.answer import Answer
from actors.messages import ToolCall
from actors.money import Usage
from actors.provider_error import ProviderError


def read(*chunks):
    answer = Answer()
    for chunk in chunks:
        answer.feed(chunk)
    return answer.reply()


def event(value):
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def piece(finish=None, **delta):
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def call(arguments, *, name=None, call_id=None, index: Any = 0):
    function = {"name": name, "arguments": arguments}
    item = {"id": call_id, "index": index, "function": function}
    return piece(tool_calls=[{key: value for key, value in item.items() if value != "absent"}])


DONE = b"data: [DONE]\n\n"
FIELDS = (
    *("choices", "delta", "message", "content", "tool_calls", "function", "name", "arguments"),
    *("id", "index", "usage", "prompt_tokens", "finish_reason", "error", "code", "type"),
)
END = piece("tool_calls") + DONE


def calls_of(*chunks):
    return [(c.id, c.name, c.arguments) for c in read(*chunks, END).assistant.calls]


def test_a_streamed_reply_has_text_usage_and_finish():
    """The plain case: role, words, finish reason, usage in a last chunk without choices."""
    reply = read(
        piece(role="assistant", content=None),
        piece(content="Hel"),
        piece(content="lo"),
        piece("stop"),
        event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}),
        DONE,
    )
    assert reply.assistant.text == "Hello"
    assert reply.usage == Usage(7, 2)
    assert (reply.finish, reply.notes) == ("stop", ())


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_a_reply_does_not_depend_on_the_splits(data):
    """One byte per chunk, a character cut in two: the same reply."""
    body = b"".join(
        (
            "\ufeff".encode(),
            b": PROCESSING\r\n\r\n",
            b'data:{"choices":[{"delta":{"content":"\xc3\xbc\xe4\xb8\xad"}}]}\r\n\r\n',
            call('{"q":', name="search", call_id="a"),
            call('"ü😀"}'),
            END,
        )
    )
    at = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    cuts = [body[a:b] for a, b in zip([0, *at], [*at, len(body)], strict=True)]
    assert read(*cuts) == read(body) == read(*(body[i : i + 1] for i in range(len(body))))
    assert read(body).assistant.text == "ü中"
    assert read(body).assistant.calls == (ToolCall("a", "search", '{"q":"ü😀"}'),)


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        pytest.param(
            [
                call("", name="f", call_id="a", index=0),
                call("", name="g", call_id="b", index=1),
                call('{"x":', index=0),
                call("{}", index=1),
                call("1}", index=0),
            ],
            [("a", "f", '{"x":1}'), ("b", "g", "{}")],
            id="interleaved by index",
        ),
        pytest.param(
            [call("{}", name="f", call_id="a"), call("{}", name="f", call_id="b")],
            [("a", "f", "{}"), ("b", "f", "{}")],
            id="index 0 for all, new id",
        ),
        pytest.param(
            [
                call('{"x"', name="f", call_id="a"),
                call(":1}"),
                call('{"y":', name="g", call_id="b"),
                call("2}"),
            ],
            [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')],
            id="index 0 for all, in pieces",
        ),
        pytest.param(
            [
                call('{"x":', name="f", call_id="a"),
                call('{"y":', name="g", call_id="b"),
                call("1}", call_id="a"),
                call("2}", call_id="b"),
            ],
            [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')],
            id="index 0 for all, interleaved by id",
        ),
        pytest.param(
            [call("", name="f"), call("", name="g")],
            [("", "f", ""), ("", "g", "")],
            id="index 0 for all, new name only",
        ),
        pytest.param(
            [call('{"q":1}', name="f"), call('{"q":2}', name="f")],
            [("", "f", '{"q":1}'), ("", "f", '{"q":2}')],
            id="index 0 for all, arguments complete",
        ),
        pytest.param(
            [call('{"q":1}', name="f"), call("", name="f"), call('{"q"'), call(":2}")],
            [("", "f", '{"q":1}'), ("", "f", '{"q":2}')],
            id="the second begins with its name again",
        ),
        pytest.param(
            [call("{}", name="f", call_id="x"), call("{}", name="g", call_id="x")],
            [("x", "f", "{}"), ("x", "g", "{}")],
            id="one constant id",
        ),
        pytest.param(
            [
                call("{}", name="f", call_id="x", index=0),
                call("{}", name="f", call_id="x", index=1),
            ],
            [("x", "f", "{}"), ("x", "f", "{}")],
            id="one constant id, right indexes",
        ),
        pytest.param(
            [
                call("{", name="f", call_id="a", index="absent"),
                call("}", index="absent"),
                call("{}", name="f", call_id="b", index=None),
            ],
            [("a", "f", "{}"), ("b", "f", "{}")],
            id="no index",
        ),
        pytest.param(
            [call(None, name="f", call_id="a"), call('{"x":1}'), call(None), call("  ")],
            [("a", "f", '{"x":1}  ')],
            id="null is no change",
        ),
        pytest.param(
            [call("{", name="f", call_id="a"), call("}", name="f", call_id="a")],
            [("a", "f", "{}")],
            id="id and name in every piece",
        ),
        pytest.param(
            [
                call("", name="f", call_id="a"),
                call('{"x":', call_id="b"),
                call("1}", call_id="c"),
                call("{", name="f", call_id="d"),
                call("}", call_id="e"),
            ],
            [("a", "f", '{"x":1}'), ("d", "f", "{}")],
            id="another id in every piece",
        ),
        pytest.param(
            [call("{", name="f"), call("}", call_id="a")], [("a", "f", "{}")], id="a late id"
        ),
        pytest.param(
            [call('{"t":"{}', name="f"), call('{"'), call("}")],
            [("", "f", '{"t":"{}{"}')],
            id="braces inside a string",
        ),
        pytest.param(
            [call({"x": 1}, name="f")], [("", "f", '{"x":1}')], id="arguments as an object"
        ),
        pytest.param(
            [piece(tool_calls=[None, {}, "x", {"index": 0}]), piece(tool_calls="none")],
            [],
            id="pieces with nothing in them",
        ),
        pytest.param(
            [call("{}", name=f"t{i}", call_id=f"c{i}", index=i) for i in range(50)],
            [(f"c{i}", f"t{i}", "{}") for i in range(50)],
            id="fifty",
        ),
    ],
)
def test_calls_are_put_together_from_their_pieces(pieces, calls):
    """Every public server's way to number the pieces gives the calls that were meant."""
    assert calls_of(*pieces) == calls


def test_a_stream_of_endless_calls_is_refused():
    """A server that opens call after call is broken."""
    with pytest.raises(ProviderError, match="over 1000 tool calls"):
        read(*(call("", name="f", call_id=str(i)) for i in range(1001)))


def test_braces_in_strings_do_not_cost_more_and_more():
    """Each doubt is a parse, so there is an end to doubting; the arguments stay whole."""
    pieces = ['{"t":"', *["{}"] * 500, '"}']
    ((_, _, arguments),) = calls_of(*(call(part, name="f", call_id="a") for part in pieces))
    assert arguments == "".join(pieces)


def test_chunks_with_nothing_in_them_are_harmless():
    """No delta, null delta, no choices, a chunk that is no object: none changes the reply."""
    empty = [{}, {"choices": None}, {"choices": [{}]}, {"choices": [{"delta": None}]}, None, 3, []]
    reply = read(*map(event, empty), piece(content="a"), *map(event, empty), DONE)
    assert reply.assistant.text == "a"
    assert reply.notes == ("usage missing", "finish reason missing")


def test_content_in_parts_is_joined_without_the_thinking():
    """A list of parts becomes its text; nothing said at all stays null."""
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}]
    assert read(piece(content=parts), piece("stop", content=[])).assistant.text == "a"
    assert read(piece("stop", content=None)).assistant.text is None
    assert read(piece("stop", content="")).assistant.text == ""


def test_only_the_first_choice_is_read():
    """Two choices do not run into each other, and the reply says that one was left out."""
    two = [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]
    reply = read(event({"choices": two}), event({"choices": two}), piece("stop"))
    assert reply.assistant.text == "aa"
    assert "several choices, the first was taken" in reply.notes


@pytest.mark.parametrize(
    "chunks",
    [
        [],
        [b": ping\n\n"],
        [piece(content="half a sen")],
        [call('{"x":1}', name="f", call_id="a")],
        [event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}})],
        [event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}), DONE],
        [event({"detail": "Not authenticated"}), DONE],
        [DONE],
        [piece(content="a"), b'data: {"choices":[{"del'],
        [piece(content="a"), b"data: what\n\n", piece("stop")],
    ],
)
def test_a_stream_that_ends_early_is_broken(chunks):
    """Without a finish reason, or without a choice, there is no reply; it may have been billed."""
    with pytest.raises(ProviderError) as caught:
        read(*chunks)
    assert (caught.value.kind, caught.value.billed) == ("broken", True)
    assert not caught.value.permanent


def test_a_stream_is_whole_after_its_finish_reason():
    """What comes after a finish reason is not needed; a finish reason is not needed before DONE."""
    assert read(piece("length", content="a")).finish == "length"
    assert read(piece(content="a"), DONE).finish == "stop"
    assert read(call("{}", name="f"), DONE).finish == "tool_calls"
    assert read(piece(content="a"), DONE, b"data: what\n\n", piece(content="b")).finish == "stop"


@pytest.mark.parametrize(
    ("error", "kind", "permanent"),
    [
        ({"code": 503, "message": "busy"}, "server", False),
        ({"code": "429", "message": "slow down"}, "rate_limited", False),
        ({"type": "rate_limit_error", "message": "slow down"}, "rate_limited", False),
        ({"code": "insufficient_quota", "message": "pay"}, "quota", True),
        ({"code": 400, "message": "no"}, "invalid_request", True),
        ({"type": "invalid_request_error", "message": "no"}, "invalid_request", True),
        ({"code": "context_length_exceeded", "message": "no"}, "overflow", True),
        ({"type": "authentication_error", "message": "no"}, "auth", True),
        ({"type": "model_not_found", "message": "no"}, "not_found", True),
        ({"message": "no idea"}, "server", False),
        ("a word", "server", False),
    ],
)
@pytest.mark.parametrize("before", [b"", piece(content="some text")])
def test_an_error_inside_a_stream_is_treated_by_its_code(before, error, kind, permanent):
    """An error object is never an empty success, with or without text before it."""
    with pytest.raises(ProviderError) as caught:
        read(before, event({"error": error}), DONE)
    assert (caught.value.kind, caught.value.permanent) == (kind, permanent)
    assert caught.value.billed


@pytest.mark.parametrize(
    "chunk",
    [
        {"object": "error", "message": "no", "code": 400},
        {"choices": [{"error": {"code": 400, "message": "no"}, "finish_reason": "error"}]},
    ],
)
def test_an_error_is_found_where_other_servers_put_it(chunk):
    """The chunk may be the error itself, or the choice may carry it."""
    with pytest.raises(ProviderError, match="no") as caught:
        read(event(chunk), DONE)
    assert caught.value.kind == "invalid_request"


def test_surrogates_are_mended_at_the_entrance():
    """Halves sent apart are joined, lone ones replaced, also as escapes within arguments."""
    apart = [b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n']
    apart += [b'data: {"choices":[{"delta":{"content":"\\ude00"}}]}\n\n']
    whole = read(*apart, piece("stop"))
    assert (whole.assistant.text, whole.notes) == ("😀", ("usage missing",))
    lone = read(*apart[:1], piece("stop"))
    assert (lone.assistant.text, lone.notes[0]) == ("\ufffd", "lone surrogates replaced")
    arguments = r'{"a":"\ud99c","b":"\ud83d\ude00","c":"\\ud99c"}'
    reply = read(call(arguments, name="f"), END)
    assert reply.assistant.calls[0].arguments == arguments.replace(r'"\ud99c', r'"\ufffd')
    assert reply.notes[0] == "lone surrogates replaced"


def test_usage_that_comes_in_every_chunk_counts_once():
    """The last report stands; a null after it changes nothing."""
    first = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 1}}
    last = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}
    null = {"choices": [], "usage": None}
    assert read(*map(event, (first, last, null)), piece("stop")).usage == Usage(7, 2)


def test_a_body_over_the_limit_is_refused(monkeypatch):
    """A server that never stops is cut off."""
    monkeypatch.setattr(answer_module, "BODY_MAX", 1000)
    with pytest.raises(ProviderError, match="over 1000 bytes"):
        read(*[piece(content="a")] * 100)
    with pytest.raises(ProviderError, match="over 1000 bytes"):
        read(b"{", *[b" " * 100] * 100)


def test_a_line_over_the_limit_is_a_provider_error(monkeypatch):
    """The parser's refusal comes out as a broken answer."""
    monkeypatch.setattr(sse, "LINE_MAX", 1000)
    with pytest.raises(ProviderError, match="a line of the stream"):
        read(*[b"data: "] * 1000)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=200))
def test_any_body_is_a_reply_or_a_provider_error(body):
    """Nothing that a server sends raises anything else."""
    with contextlib.suppress(ProviderError):
        read(body)


@settings(max_examples=50, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(FIELDS),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
def test_any_json_is_a_reply_or_a_provider_error(value):
    """Every field may be null, absent or of the wrong type."""
    for body in (json.dumps(value).encode(), event(value) + DONE):
        with contextlib.suppress(ProviderError):
            read(body)
