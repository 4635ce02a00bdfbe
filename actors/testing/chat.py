"""A chat completions request, checked as strictly as a real provider checks it."""

from typing import Any

import msgspec

from actors.messages import ToolCall
from actors.testing.scripts import Conversation

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


class ChatError(Exception):
    """A request that is refused as it stands; the client must not send it again."""

    def __init__(
        self, message: str, *, status: int = 400, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param


class _Part(msgspec.Struct):
    type: str = "text"
    text: str = ""


class _Function(msgspec.Struct):
    name: str
    arguments: str = ""


class _Call(msgspec.Struct):
    function: _Function
    id: str = ""


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class _Tool(msgspec.Struct):
    function: _Function


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


class _Body(msgspec.Struct):
    model: str
    messages: list[msgspec.Raw]
    tools: msgspec.Raw = msgspec.Raw()
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None


class Message(msgspec.Struct, frozen=True):
    """One message of the request, and its bytes as they were sent."""

    raw: bytes
    role: str
    text: str
    calls: tuple[ToolCall, ...] = ()
    answers: str | None = None
    """The id of the call that a tool message answers."""


class Chat(msgspec.Struct, frozen=True, kw_only=True):
    """One request, decoded."""

    model: str
    messages: tuple[Message, ...]
    tools_json: bytes
    tool_names: tuple[str, ...]
    stream: bool
    include_usage: bool
    max_tokens: int | None

    def conversation(self) -> Conversation:
        """What a script sees of the request."""
        return Conversation(
            turn=sum(message.role == "assistant" for message in self.messages),
            task=next((m.text for m in self.messages if m.role == "user"), ""),
            system=next((m.text for m in self.messages if m.role in ("system", "developer")), ""),
            results=tuple(m.text for m in self.messages if m.role == "tool"),
            tools=self.tool_names,
        )


_body_decoder = msgspec.json.Decoder(_Body)
_message_decoder = msgspec.json.Decoder(_Message)
_tools_decoder = msgspec.json.Decoder(list[_Tool])


def decode(body: bytes) -> Chat:
    """Read a request body.

    Raises:
        ChatError: it is no JSON, has the wrong shape, or its calls and results do not pair up.
    """
    try:
        request = _body_decoder.decode(body)
        messages = tuple(_message(raw) for raw in request.messages)
        tools = b"" if bytes(request.tools) == b"null" else bytes(request.tools)
        names = tuple(tool.function.name for tool in _tools_decoder.decode(tools or b"[]"))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ChatError(f"We could not parse the body of your request: {error}") from error
    _check_pairs(messages)
    max_tokens = request.max_completion_tokens or request.max_tokens
    if max_tokens is not None and max_tokens < 1:
        raise ChatError(f"max_tokens must be at least 1, not {max_tokens}", param="max_tokens")
    return Chat(
        model=request.model,
        messages=messages,
        tools_json=msgspec.json.format(tools, indent=-1) if tools else b"",
        tool_names=names,
        stream=bool(request.stream),
        include_usage=request.stream_options is not None and request.stream_options.include_usage,
        max_tokens=max_tokens,
    )


def _message(raw: msgspec.Raw) -> Message:
    message = _message_decoder.decode(raw)
    calls: tuple[ToolCall, ...] = ()
    if message.tool_calls:
        calls = tuple(
            ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
            for call in message.tool_calls
        )
    return Message(bytes(raw), message.role, message.text, calls, message.tool_call_id)


def _check_pairs(messages: tuple[Message, ...]) -> None:
    if not messages:
        raise ChatError("messages must not be empty", param="messages")
    waiting: list[str] = []
    for index, message in enumerate(messages):
        where = f"messages.[{index}]"
        if message.role not in _ROLES:
            raise ChatError(f"Invalid value: {message.role!r} is no role", param=f"{where}.role")
        if message.role == "tool":
            if message.answers not in waiting:
                raise ChatError(
                    "messages with role 'tool' must be a response to a preceding message with "
                    f"'tool_calls': {message.answers!r} is not waiting for one",
                    param=f"{where}.role",
                )
            waiting.remove(message.answers)
            continue
        _check_answered(waiting)
        waiting = [call.id for call in message.calls]
    _check_answered(waiting)


def _check_answered(waiting: list[Any]) -> None:
    if waiting:
        raise ChatError(
            "An assistant message with 'tool_calls' must be followed by tool messages responding "
            "to each 'tool_call_id'. The following tool_call_ids did not have response messages: "
            + ", ".join(waiting),
            param="messages",
        )
