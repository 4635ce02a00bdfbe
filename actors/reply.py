"""One reply of a model, read with care: whatever was paid for is saved if it can be understood."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from actors.messages import Assistant, ToolCall
from actors.money import Usage
from actors.provider_error import broken, error_within, plain_body
from actors.provider_json import decode_json, mend, mend_escapes

TOKENS_MAX = 1_000_000_000
"""A provider that claims more tokens than this in one reply is not believed."""

REPLY_MAX = 3 * 1024 * 1024
"""Characters of one reply: as UTF-8 they fit a frame of the journal, whatever they are."""
USAGE_MISSING = "usage missing"
_CALL_FRAME = 32
_FINISH_MAX = 100

CALLS_MAX = 1000
"""Calls of one reply; one with more comes from a broken server."""

Json = dict[str, Any]


class Reply(msgspec.Struct, frozen=True):
    """A whole reply; ``usage`` is None when the provider did not say or said nonsense.

    ``finish`` is the provider's word (stop, tool_calls, length, content_filter, ...), or what the
    reply amounts to when it gave none; ``notes`` say what had to be mended or assumed.
    """

    assistant: Assistant
    usage: Usage | None
    finish: str
    notes: tuple[str, ...] = ()


def parse_document(body: bytes) -> Reply:
    """Read a body that came as one JSON document; raises ProviderError."""
    if not body or body.isspace():
        raise broken("the provider answered HTTP 200 with an empty body")
    try:
        value = decode_json(body)
    except ValueError as error:
        words = f"the body of HTTP 200 cannot be read, {error}: {plain_body(body)}"
        raise broken(words) from None
    if failure := error_within(value):
        raise failure
    document = as_dict(value)
    choices = as_list(document.get("choices"))
    if not choices:
        raise broken(f"the answer of HTTP 200 holds no choice: {plain_body(body)}")
    choice = as_dict(choices[0])
    message = choice.get("message")
    if failure := error_within(choice):
        raise failure
    if not isinstance(message, dict):
        raise broken("the provider's answer holds no message")
    notes = [f"{len(choices)} choices, the first was taken"] if len(choices) > 1 else []
    said = as_dict(cast(Any, message))
    return build_reply(
        text=content_text(said.get("content")),
        calls=[call for item in as_list(said.get("tool_calls")) if any(call := call_parts(item))],
        finish=choice.get("finish_reason"),
        usage=document.get("usage"),
        notes=notes,
    )


def build_reply(
    text: str | None,
    calls: Sequence[tuple[str, str, str]],
    finish: Any,
    usage: Any,
    notes: Iterable[str],
) -> Reply:
    """Put a reply together; ``calls`` are (id, name, arguments), and every text is mended here.

    Raises ProviderError over ``REPLY_MAX``, because such a reply could not be saved.
    """
    said = list(notes)
    mended = False

    def whole(part: str, arguments: bool = False) -> str:
        nonlocal mended
        part, lone = mend(part)
        escaped = False
        if arguments:
            part, escaped = mend_escapes(part)
        mended = mended or lone or escaped
        return part

    if len(calls) > CALLS_MAX:
        raise broken(f"the reply holds over {CALLS_MAX} tool calls")
    assistant = Assistant(
        text=None if text is None else whole(text),
        calls=tuple(ToolCall(whole(i), whole(n), whole(a, arguments=True)) for i, n, a in calls),
    )
    size = len(assistant.text or "") + sum(
        len(call.id) + len(call.name) + len(call.arguments) + _CALL_FRAME
        for call in assistant.calls
    )
    if size > REPLY_MAX:
        raise broken(f"the reply has {size} characters, over the limit of {REPLY_MAX}")
    if mended:
        said.append("lone surrogates replaced")
    counted = parse_usage(usage)
    if counted is None:
        said.append(USAGE_MISSING if usage is None else "usage is not believable")
    if not isinstance(finish, str) or not finish:
        finish = "tool_calls" if assistant.calls else "stop"
        said.append("finish reason missing")
    return Reply(assistant, counted, whole(finish[:_FINISH_MAX]), tuple(said))


def parse_usage(value: Any) -> Usage | None:
    """The tokens a provider reports, or None when a number is missing, no integer or absurd."""
    usage = as_dict(value)
    cached = as_dict(usage.get("prompt_tokens_details")).get("cached_tokens")
    numbers = (
        usage.get("prompt_tokens"),
        usage.get("completion_tokens"),
        0 if cached is None else cached,
    )
    counts = [n for n in numbers if type(n) is int and 0 <= n <= TOKENS_MAX]
    if len(counts) < len(numbers) or counts[2] > counts[0]:
        return None
    return Usage(counts[0], counts[1], counts[2])


def content_text(content: Any) -> str | None:
    """The text of a content: a string, null, or a list of parts, of which thinking is left out."""
    if content is None or isinstance(content, str):
        return content
    parts = [
        part if isinstance(part, str) else as_dict(part).get("text") for part in as_list(content)
    ]
    texts = [text for text in parts if isinstance(text, str)]
    return "".join(texts) if texts else None


def call_parts(item: Any) -> tuple[str, str, str]:
    """The id, name and arguments of a tool call or a piece of one; what is null comes as ""."""
    call = as_dict(item)
    function = as_dict(call.get("function"))
    arguments = function.get("arguments")
    if isinstance(arguments, dict | list):
        # Some servers send the object instead of its text; it becomes text again, as everyone's is.
        arguments = msgspec.json.encode(arguments, enc_hook=str).decode()
    return as_str(call.get("id")), as_str(function.get("name")), as_str(arguments)


def as_dict(value: Any) -> Json:
    """The value if it is an object, else an empty one."""
    return cast(Json, value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return cast(list[Any], value) if isinstance(value, list) else []


def as_str(value: Any) -> str:
    """The value if it is text, else an empty one."""
    return value if isinstance(value, str) else ""
