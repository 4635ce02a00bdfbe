"""Requests as bytes."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.messages import ToolCall
from actors.request import encode_message, merge_user, request_body, sent_arguments, sent_call_id


def test_a_request_is_joined_from_encoded_messages():
    """The body holds exactly the model, the tools, the messages and the caps."""
    messages = [encode_message("system", "s"), encode_message("user", "u")]
    body = request_body("m", b'[{"type":"function"}]', messages, 9, True)
    assert json.loads(body) == {
        "model": "m",
        "tools": [{"type": "function"}],
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        "max_tokens": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_request_without_tools_or_stream_has_no_such_keys():
    """Some servers refuse an empty list of tools, and stream options without a stream."""
    for tools in (b"", b"[]"):
        assert json.loads(request_body("m", tools, [], 9, False)) == {
            "model": "m",
            "messages": [],
            "max_tokens": 9,
            "stream": False,
        }


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=6), st.integers(1, 5))
def test_more_messages_leave_the_front_as_it_was(texts, keep):
    """The prefix cache holds: a longer request begins with the shorter one's messages."""
    messages = [encode_message("user", text) for text in texts]
    short = request_body("m", b"[1]", messages[:keep], 1, True)
    long = request_body("m", b"[1]", messages, 2, False)
    assert long.startswith(short[: short.rindex(b'],"max_tokens"')])


def test_messages_of_every_role_are_encoded():
    """Null content stays null, "" stays "", and lone surrogates never leave."""
    call = ToolCall("theirs", "f", '{"a": 1}')
    said = json.loads(encode_message("assistant", None, [("ours", call)]))
    assert said == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "ours",
                "type": "function",
                "function": {"name": "f", "arguments": '{"a": 1}'},
            }
        ],
    }
    assert json.loads(encode_message("tool", "r", tool_call_id="ours")) == {
        "role": "tool",
        "tool_call_id": "ours",
        "content": "r",
    }
    assert json.loads(encode_message("assistant", "")) == {"role": "assistant", "content": ""}
    assert json.loads(encode_message("user", "a\ud800\0"))["content"] == "a\ufffd\0"


@pytest.mark.parametrize("text", [None, "", " \n"])
def test_a_message_of_calls_alone_has_the_content_that_is_asked_for(text):
    """``keep`` is what the server sent; no other message is without a text."""
    calls = [("ours", ToolCall("theirs", "f", "{}"))]

    def sent(empty, text=text, calls=calls):
        return json.loads(encode_message("assistant", text, calls, empty=empty)).get("content", 7)

    assert [sent(e) for e in ("keep", "null", "empty", "omit")] == [text, None, "", 7]
    for empty in ("keep", "null", "empty", "omit"):
        assert sent(empty, "words") == "words"
        assert sent(empty, None, ()) == ""


def test_user_messages_in_a_row_become_one():
    """However many there are; every other message stays as it is, to the byte."""
    said = [encode_message("user", text) for text in ("a", "ü\n", "c")]
    system, tool = encode_message("system", "s"), encode_message("tool", "r", (), "i")
    assert merge_user([system, *said, tool, said[0]]) == [
        system,
        encode_message("user", "a\n\nü\n\n\nc"),
        tool,
        said[0],
    ]
    assert merge_user([system, said[0], tool]) == [system, said[0], tool]
    assert merge_user([]) == []


def test_the_output_limit_is_sent_under_the_name_that_the_server_knows():
    """One name and never both."""
    body = json.loads(request_body("m", b"", [], 9, False, "max_completion_tokens"))
    assert body == {"model": "m", "messages": [], "max_completion_tokens": 9, "stream": False}


def test_arguments_are_sent_back_untouched_when_they_are_an_object():
    """The spacing and the order of keys are the model's own."""
    for text in ('{"b": 1,  "a":[{}]}', "{}", '{"a":1,"a":2}', ' {"a":"ü"} '):
        assert sent_arguments(text) == text


def test_arguments_that_are_no_object_are_sent_as_one():
    """A malformed history would be refused for ever, so the words are wrapped and cut."""
    for text in ('{"a": "x', "null", "[]", '"x"', "1", '{"a":NaN}', "[" * 5000, "x" * 1_000_000):
        sent = sent_arguments(text)
        assert list(json.loads(sent)) == ["malformed"]
        assert len(sent) < 300
    assert sent_arguments("") == sent_arguments(" \n") == "{}"


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_arguments_are_always_sent_as_a_json_object(text):
    """Whatever the model wrote."""
    assert isinstance(json.loads(sent_arguments(text)), dict)


def test_sent_ids_are_nine_letters_and_digits_and_never_change():
    """The prefix cache and the pickiest back end are both content; the first one is pinned."""
    assert sent_call_id("1.0") == "PDOerb3IU"
    ids = {sent_call_id(f"{turn}.{index}") for turn in range(200) for index in range(50)}
    assert len(ids) == 10_000
    assert all(len(i) == 9 and i.isascii() and i.isalnum() for i in ids)


def test_a_sent_id_avoids_those_that_are_taken():
    """Two calls of one request never share an id, and the way out is the same every time."""
    first = sent_call_id("1.0")
    second = sent_call_id("1.0", {first})
    assert second == sent_call_id("1.0", [first]) != first
    assert sent_call_id("1.0", {first, second}) not in (first, second)
