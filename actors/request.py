"""What is sent to a provider, as bytes that are made once and joined without being made again.

A provider's prefix cache holds only while the front of the request stays the same to the byte, so
a message is encoded once, when it is new, and a request is its messages between a head and a tail.
"""

import hashlib
from collections.abc import Container, Sequence
from typing import Any, Literal

import msgspec

from actors.limit_name import LimitName
from actors.messages import ToolCall
from actors.text import clean, excerpt

ID_LENGTH = 9
"""Some back ends want exactly nine letters and digits."""
EmptyContent = Literal["keep", "null", "empty", "omit"]
"""What stands for the text of a message that holds calls alone: each of null, "" and no key at all
is refused by some servers. ``keep`` is what the server itself sent.
"""
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

_USER = b'{"role":"user",'

_encoder = msgspec.json.Encoder()


def request_body(
    model: str,
    tools_json: bytes,
    messages: Sequence[bytes],
    max_tokens: int,
    stream: bool,
    limit_name: LimitName = "max_tokens",
) -> bytes:
    """Join a request; ``tools_json`` is a JSON list (or empty), ``messages`` are already encoded.

    More messages change no byte before the end of those that were there.
    """
    tools = b"" if tools_json in (b"", b"[]") else b'"tools":' + tools_json + b","
    tail = b'"stream":true,"stream_options":{"include_usage":true}}'
    return b"".join(
        (
            b'{"model":' + _encoder.encode(clean(model)) + b"," + tools + b'"messages":[',
            b",".join(messages),
            b'],"%s":%d,' % (limit_name.encode(), max_tokens),
            tail if stream else b'"stream":false}',
        )
    )


def encode_message(
    role: str,
    text: str | None,
    calls: Sequence[tuple[str, ToolCall]] = (),
    tool_call_id: str | None = None,
    empty: EmptyContent = "keep",
) -> bytes:
    """Encode a message; each call comes with the id it is sent under.

    ``empty`` says what a message of calls alone has as its content. Any other message has a text.
    """
    message: dict[str, Any] = {"role": role}
    if tool_call_id is not None:
        message["tool_call_id"] = tool_call_id
    message["content"] = clean(text or "")
    if calls:
        if text is None or (empty != "keep" and not text.strip()):
            message["content"] = "" if empty == "empty" else None
            if empty == "omit":
                del message["content"]
        message["tool_calls"] = [
            {
                "id": sent_id,
                "type": "function",
                "function": {"name": clean(call.name), "arguments": sent_arguments(call.arguments)},
            }
            for sent_id, call in calls
        ]
    return _encoder.encode(message)


def merge_user(messages: Sequence[bytes]) -> list[bytes]:
    """The messages with user messages that follow each other made one, a blank line between."""
    merged: list[bytes] = []
    for message in messages:
        if merged and message.startswith(_USER) and merged[-1].startswith(_USER):
            both = [msgspec.json.decode(one)["content"] for one in (merged.pop(), message)]
            message = encode_message("user", "\n\n".join(both))
        merged.append(message)
    return merged


def sent_call_id(ref: str, taken: Container[str] = ()) -> str:
    """The id under which the call ``ref`` is sent: always the same for a ref, and not in ``taken``.

    The provider's own ids are never sent back, because some give every call the same one.
    """
    number = int.from_bytes(hashlib.sha256(ref.encode()).digest()[:8])
    while True:
        rest, digits = number, ""
        for _ in range(ID_LENGTH):
            rest, digit = divmod(rest, len(_ALPHABET))
            digits += _ALPHABET[digit]
        if digits not in taken:
            return digits
        number += 1


def sent_arguments(arguments: str) -> str:
    """A call's arguments as they are sent back: untouched if they are a JSON object.

    Anything else would make some servers refuse the whole history for ever, so the model sees an
    excerpt of what it wrote inside an object.
    """
    if not arguments.strip():
        return "{}"
    arguments = clean(arguments)
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        value = None
    if isinstance(value, dict):
        return arguments
    return _encoder.encode({"malformed": excerpt(arguments)}).decode()
