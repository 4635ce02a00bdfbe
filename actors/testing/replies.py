"""The bytes of a reply, in the shapes of the chat completions API: whole, streamed, or refused."""

import email.utils
import json
import time
from typing import Any

import msgspec

from actors.messages import ToolCall
from actors.money import Usage
from actors.testing.faults import Fault, FaultKind
from actors.tokens import CALL_FRAME, count_reply, count_text, first_tokens

DELTA_MIN_CHARS = 16
DELTAS_MAX = 32
"""A streamed text comes in at most this many pieces."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP answer. ``cut_at`` closes the connection after that many bytes of the body."""

    status: int = 200
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes
    chunked: bool = False
    cut_at: int | None = None


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What the model said, after ``max_tokens``."""

    id: str
    model: str
    text: str | None
    calls: tuple[ToolCall, ...]
    output_tokens: int
    cut: bool

    @property
    def finish_reason(self) -> str:
        """``length``, ``tool_calls`` or ``stop``."""
        if self.cut:
            return "length"
        return "tool_calls" if self.calls else "stop"


def limited(
    text: str | None, calls: tuple[ToolCall, ...], max_tokens: int | None
) -> tuple[str | None, tuple[ToolCall, ...], int, bool]:
    """Cut a reply to ``max_tokens``: text, calls, output tokens, and whether something is gone."""
    tokens = count_reply(text, calls)
    if max_tokens is None or tokens <= max_tokens:
        return text, calls, tokens, False
    left = max_tokens
    if text is not None:
        text = first_tokens(text, left)
        left -= count_text(text)
    kept: list[ToolCall] = []
    for call in calls:
        left -= count_text(call.name) + CALL_FRAME
        if left <= 0:
            break
        arguments = first_tokens(call.arguments, left)
        kept.append(msgspec.structs.replace(call, arguments=arguments))
        left -= count_text(arguments)
    return text, tuple(kept), max_tokens, True


def to_json(value: Any) -> bytes:
    """Compact JSON; a lone surrogate that a script says on purpose goes out as its escape."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def usage_body(usage: Usage) -> dict[str, Any]:
    """The ``usage`` object."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_input_tokens},
    }


def _call_body(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _head(reply: Reply, kind: str) -> dict[str, Any]:
    return {"id": reply.id, "object": kind, "created": int(time.time()), "model": reply.model}


def whole(reply: Reply, usage: Usage, kind: FaultKind | None = None) -> Answer:
    """The answer to a request that does not stream, with the fault that is due in it."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.calls:
        message["tool_calls"] = [_call_body(call) for call in reply.calls]
    choice = {"index": 0, "message": message, "finish_reason": reply.finish_reason}
    body = _head(reply, "chat.completion") | {"choices": [choice]}
    if kind is FaultKind.NULL_USAGE:
        body["usage"] = None
    elif kind is not FaultKind.NO_USAGE:
        body["usage"] = usage_body(usage)
    data = to_json(body)
    if kind is FaultKind.MALFORMED:
        data = data[: len(data) // 2]
    cut = len(data) // 2 if kind in (FaultKind.CUT, FaultKind.BROKEN_STREAM) else None
    return Answer(body=data, cut_at=cut)


def _deltas(reply: Reply) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}]
    text = reply.text or ""
    step = max(DELTA_MIN_CHARS, -(-len(text) // DELTAS_MAX))
    deltas += [{"content": text[at : at + step]} for at in range(0, len(text), step)]
    for index, call in enumerate(reply.calls):
        opened = ToolCall(id=call.id, name=call.name, arguments="")
        deltas.append({"tool_calls": [{"index": index} | _call_body(opened)]})
        rest = {"index": index, "function": {"arguments": call.arguments}}
        deltas.append({"tool_calls": [rest]})
    return deltas


def streamed(
    reply: Reply, usage: Usage, include_usage: bool, kind: FaultKind | None = None
) -> Answer:
    """The answer to a request that streams, with the fault that is due in it."""
    head = _head(reply, "chat.completion.chunk")

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    chunks = [chunk(delta) for delta in _deltas(reply)]
    chunks.append(chunk({}, reply.finish_reason))
    if include_usage and kind is not FaultKind.NO_USAGE:
        spent = None if kind is FaultKind.NULL_USAGE else usage_body(usage)
        chunks.append(head | {"choices": [], "usage": spent})
    texts = [to_json(item) for item in chunks]
    if kind is FaultKind.MALFORMED:
        texts[1] = texts[1][: len(texts[1]) // 2]
    elif kind is FaultKind.BROKEN_STREAM:
        texts = texts[: len(_deltas(reply)) // 2 + 1]
    else:
        texts.append(b"[DONE]")
    body = b"".join(b"data: " + text + b"\n\n" for text in texts)
    cut = len(body) // 2 if kind is FaultKind.CUT else None
    return Answer(content_type="text/event-stream", body=body, chunked=True, cut_at=cut)


def error(
    status: int,
    message: str,
    *,
    kind: str = "invalid_request_error",
    code: str | None = None,
    param: str | None = None,
    headers: tuple[tuple[str, str], ...] = (),
) -> Answer:
    """A refusal in OpenAI's shape."""
    words = {"message": message, "type": kind, "param": param, "code": code}
    return Answer(status=status, body=to_json({"error": words}), headers=headers)


def too_long(input_tokens: int, window_tokens: int) -> Answer:
    """The refusal of a request that is larger than the window, with both numbers."""
    return error(
        400,
        f"This model's maximum context length is {window_tokens} tokens. However, your messages "
        f"resulted in {input_tokens} tokens. Please reduce the length of the messages.",
        code="context_length_exceeded",
        param="messages",
    )


def _too_long_llama(input_tokens: int, window_tokens: int) -> Answer:
    words = {
        "code": 400,
        "message": f"request ({input_tokens} tokens) exceeds the available context size "
        f"({window_tokens} tokens), try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": input_tokens,
        "n_ctx": window_tokens,
    }
    return Answer(status=400, body=to_json({"error": words}))


def _retry_after(fault: Fault) -> tuple[tuple[str, str], ...]:
    if fault.retry_after is None:
        return ()
    value = fault.retry_after
    if value.startswith("date+"):
        seconds = int(value.removeprefix("date+"))
        value = email.utils.formatdate(time.time() + seconds, usegmt=True)
    return (("Retry-After", value),)


_HTML = b"<html><head><title>%s</title></head><body><h1>%s</h1><hr>proxy</body></html>\n"


def refused(fault: Fault, input_tokens: int, window_tokens: int) -> Answer | None:
    """The answer of a fault that is not billed; None for the one that never answers."""
    headers = _retry_after(fault)
    match fault.kind:
        case FaultKind.RATE_LIMIT:
            words = "Rate limit reached. Please try again later."
            code = "rate_limit_exceeded"
            return error(429, words, kind="requests", code=code, headers=headers)
        case FaultKind.INSUFFICIENT_QUOTA:
            words = "You exceeded your current quota, please check your plan and billing details."
            code = "insufficient_quota"
            return error(429, words, kind=code, code=code, headers=headers)
        case FaultKind.UNAUTHORIZED:
            return error(401, "Incorrect API key provided.", code="invalid_api_key")
        case FaultKind.UNAVAILABLE:
            page = _HTML % (b"503 Service Unavailable", b"Service Unavailable")
            return Answer(status=503, content_type="text/html", body=page, headers=headers)
        case FaultKind.SERVER_ERROR:
            words = "The server had an error while processing your request."
            return error(500, words, kind="server_error", headers=headers)
        case FaultKind.HTML_200:
            return Answer(content_type="text/html", body=_HTML % (b"Welcome", b"Please log in"))
        case FaultKind.STREAM_ERROR:
            words = {"message": "The server is overloaded.", "type": "server_error", "code": 503}
            body = b"data: " + to_json({"error": words}) + b"\n\ndata: [DONE]\n\n"
            return Answer(content_type="text/event-stream", body=body, chunked=True)
        case FaultKind.OVERFLOW:
            return too_long(input_tokens, window_tokens)
        case FaultKind.OVERFLOW_LLAMA:
            return _too_long_llama(input_tokens, window_tokens)
        case FaultKind.TIMEOUT:
            return None
        case (
            FaultKind.CUT
            | FaultKind.BROKEN_STREAM
            | FaultKind.MALFORMED
            | FaultKind.NO_USAGE
            | FaultKind.NULL_USAGE
        ):
            raise AssertionError(f"{fault.kind} is billed, and so belongs in a reply")
