"""Replies that come as one document."""

import json
from typing import Any

import pytest

from actors.events import Replied, encoder
from actors.frame import FRAME_MAX
from actors.money import Usage
from actors.provider_error import ProviderError
from actors.reply import REPLY_MAX, content_text, parse_document, parse_usage

USAGE = {"prompt_tokens": 10, "completion_tokens": 3}


def document(message, finish: str | None = "stop", usage: Any = USAGE, **more):
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return json.dumps({"choices": [choice], "usage": usage, **more}).encode()


def test_a_document_is_read():
    """The plain case, with cached tokens."""
    usage = {**USAGE, "prompt_tokens_details": {"cached_tokens": 4}}
    reply = parse_document(document({"role": "assistant", "content": "hi"}, usage=usage))
    assert reply.assistant.text == "hi"
    assert reply.usage == Usage(10, 3, 4)
    assert (reply.finish, reply.notes) == ("stop", ())


def test_calls_keep_their_order_and_their_raw_arguments():
    """Null and repeated ids, null, malformed or object arguments: all are kept as text."""
    arguments = ['{"a": 1}', None, '{"a": "x', {"b": 2}, "null"]
    calls = [{"id": None, "function": {"name": "f", "arguments": a}} for a in arguments]
    calls += [{"id": "x", "function": {"name": "g"}}] * 2 + [None, {"function": None}]
    said = parse_document(document({"content": None, "tool_calls": calls}, "tool_calls")).assistant
    assert said.text is None
    assert [c.arguments for c in said.calls] == [
        '{"a": 1}', "", '{"a": "x', '{"b":2}', "null", "", ""
    ]  # fmt: skip
    assert [c.id for c in said.calls] == ["", "", "", "", "", "x", "x"]


def test_fifty_calls_are_fifty_calls():
    """No reply is cut down."""
    calls = [{"id": str(i), "function": {"name": "f", "arguments": "{}"}} for i in range(50)]
    assert len(parse_document(document({"tool_calls": calls})).assistant.calls) == 50


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, None),
        ("", ""),
        ("a", "a"),
        ([{"type": "text", "text": "a"}, {"type": "thinking", "thinking": "b"}, "c"], "ac"),
        ([{"type": "thinking", "thinking": "b"}], None),
        ([], None),
        (7, None),
        ({"text": "a"}, None),
        ([None, {"text": None}, {"text": "a"}], "a"),
    ],
)
def test_content_is_text_null_or_parts(content, text):
    """Every form of content is read; what is no text is left out."""
    assert content_text(content) == text


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"prompt_tokens": 0, "completion_tokens": 0}, Usage()),
        ({**USAGE, "prompt_tokens_details": None}, Usage(10, 3)),
        ({**USAGE, "prompt_tokens_details": {"cached_tokens": None}}, Usage(10, 3)),
        ({**USAGE, "prompt_tokens_details": {"cached_tokens": 10}}, Usage(10, 3, 10)),
        ({**USAGE, "prompt_tokens_details": {"cached_tokens": 11}}, None),
        ({**USAGE, "prompt_tokens_details": {"cached_tokens": -1}}, None),
        ({**USAGE, "prompt_tokens": None}, None),
        ({**USAGE, "prompt_tokens": -1}, None),
        ({**USAGE, "prompt_tokens": True}, None),
        ({**USAGE, "prompt_tokens": "10"}, None),
        ({**USAGE, "prompt_tokens": 10.0}, None),
        ({**USAGE, "completion_tokens": float("nan")}, None),
        ({**USAGE, "completion_tokens": 10**12}, None),
        ({**USAGE, "completion_tokens": 10**30}, None),
        ({"prompt_tokens": 10}, None),
        ({}, None),
        (None, None),
        ([], None),
    ],
)
def test_usage_is_believed_only_when_it_makes_sense(usage, counted):
    """Negative, absurd, broken or missing numbers are not 0: they are None, to be estimated."""
    assert parse_usage(usage) == counted
    body = document({"content": "a"}, usage=usage)
    assert parse_document(body).usage == counted


def test_usage_that_is_missing_or_odd_is_noted():
    """The trace can say which of the two it was."""
    assert parse_document(document({"content": "a"}, usage=None)).notes == ("usage missing",)
    assert parse_document(document({"content": "a"}, usage={"prompt_tokens": -1})).notes == (
        "usage is not believable",
    )


def test_a_missing_finish_reason_is_inferred():
    """A whole document without one is a whole reply."""
    call = {"id": "a", "function": {"name": "f", "arguments": "{}"}}
    assert parse_document(document({"content": "a"}, None)).finish == "stop"
    assert parse_document(document({"tool_calls": [call]}, None)).finish == "tool_calls"
    assert parse_document(document({"content": "a"}, "content_filter")).finish == "content_filter"


def test_an_answer_without_a_choice_is_shown():
    """What a server says instead, in a shape of its own, is the reason to be read."""
    with pytest.raises(ProviderError, match=r"holds no choice.*Not authenticated"):
        parse_document(b'{"detail": "Not authenticated"}')


def test_the_first_of_two_choices_is_taken():
    """And the reply says so."""
    choices = [{"message": {"content": t}, "finish_reason": "stop"} for t in "ab"]
    reply = parse_document(json.dumps({"choices": choices, "usage": USAGE}).encode())
    assert reply.assistant.text == "a"
    assert reply.notes == ("2 choices, the first was taken",)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" \n",
        b"<html><title>Portal</title></html>",
        b'{"choices": [{"mess',
        b"[]",
        b"null",
        b"{}",
        b'{"choices": []}',
        b'{"choices": null}',
        b'{"choices": [null]}',
        b'{"choices": [{"message": null}]}',
        b"[" * 100_000,
        b'{"a":' * 3000 + b"1" + b"}" * 3000,
        b"\xff\xfe",
    ],
)
def test_a_body_of_no_use_is_broken_and_maybe_billed(body):
    """HTML, half a JSON, nothing, no choice, too deep: one error that may be asked again."""
    with pytest.raises(ProviderError) as caught:
        parse_document(body)
    assert (caught.value.kind, caught.value.billed) == ("broken", True)
    assert not caught.value.permanent


def test_html_with_status_200_shows_its_words_only():
    """The error names what was seen, not its markup."""
    with pytest.raises(ProviderError) as caught:
        parse_document(b"<html><script>x()</script><h1>Please&nbsp;log in</h1></html>")
    assert "Please" in caught.value.words
    assert "<" not in caught.value.words
    assert "x()" not in caught.value.words


def test_an_error_object_with_status_200_is_an_error():
    """It is treated by its code, and may have been billed."""
    with pytest.raises(ProviderError) as caught:
        parse_document(b'{"error": {"code": 429, "message": "slow"}, "choices": []}')
    assert (caught.value.kind, caught.value.billed) == ("rate_limited", True)
    assert parse_document(document({"content": "a"}, error=None)).assistant.text == "a"


def test_damaged_text_is_mended_and_kept():
    """A reply that was paid for survives lone surrogates, raw controls and invalid UTF-8."""
    body = document({"content": "TEXT"})
    assert parse_document(body.replace(b"TEXT", b"a\\ud800b")).assistant.text == "a\ufffdb"
    assert parse_document(body.replace(b"TEXT", b"a\xffb")).assistant.text == "a\ufffdb"
    assert parse_document(body.replace(b"TEXT", b"a\tb")).assistant.text == "a\tb"
    assert parse_document(body.replace(b"TEXT", b"a\\u0000b")).assistant.text == "a\0b"
    assert "lone surrogates replaced" in parse_document(body.replace(b"TEXT", b"\\udfff")).notes


@pytest.mark.parametrize(
    "message",
    [
        {"content": "\U0001f986" * (REPLY_MAX + 1)},
        {"tool_calls": [{"function": {"name": "f"}}] * (REPLY_MAX // 32)},
    ],
    ids=["text", "calls"],
)
def test_a_reply_that_no_frame_holds_is_refused(message: dict[str, Any]):
    """It could not be saved, so it is a failed attempt that may have been billed."""
    with pytest.raises(ProviderError, match=r"over the limit|over 1000 tool calls") as caught:
        parse_document(document(message))
    assert caught.value.billed


def test_the_largest_reply_fits_a_frame():
    """Four bytes a character, and still it is saved whole."""
    reply = parse_document(document({"content": "\U0001f986" * REPLY_MAX}))
    payload = encoder.encode(
        Replied(turn=1, message=reply.assistant, usage=Usage(), cost_nusd=0, finish=reply.finish)
    )
    assert len(payload) < FRAME_MAX
