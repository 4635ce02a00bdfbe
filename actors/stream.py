"""A reply that comes in pieces, put together from the chunks of a stream.

Which call a piece of a tool call belongs to is the hard part, because servers differ:
1. each call has its own index, and only its first piece has an id and a name;
2. every call has index 0, or none has an index, and a new id or a new name begins a new call;
3. neither is new, but the arguments so far are a whole object and another one begins;
4. each piece has an id of its own, so that one without a name begins nothing.
"""

from typing import Any

import msgspec

from actors.provider_error import broken, error_within, plain_body
from actors.provider_json import decode_json
from actors.reply import (
    CALLS_MAX,
    Reply,
    as_dict,
    as_list,
    as_str,
    build_reply,
    call_parts,
    content_text,
)

_DOUBTS_MAX = 100  # Arguments full of "}{" in strings must not be parsed again at each of them.


class _OpenCall:
    """A tool call whose arguments are still arriving."""

    def __init__(self, index: int | None, call_id: str, name: str) -> None:
        self.index = index
        self.id = call_id
        self.name = name
        self.arguments: list[str] = []
        self._doubts = 0

    def is_followed_by(self, piece: str) -> bool:
        """Whether a piece of arguments begins another object, this call's being whole."""
        # Inside one object "}" and "{" are neighbours only within a string, so parsing is rare.
        if not piece.lstrip().startswith("{") or self._doubts >= _DOUBTS_MAX:
            return False
        last = next((part for part in reversed(self.arguments) if part.strip()), "")
        if not last.rstrip().endswith("}"):
            return False
        try:
            msgspec.json.decode("".join(self.arguments), type=dict[str, msgspec.Raw])
        except (msgspec.MsgspecError, RecursionError):
            self._doubts += 1
            return False
        return True


class StreamAssembly:
    """Collects chunks; the reply is whole once ``is_finished``, and over once ``is_done``."""

    def __init__(self) -> None:
        self.is_done = False
        self._text: list[str] = []
        self._calls: list[_OpenCall] = []
        self._choice: int | None = None
        self._finish: str | None = None
        self._usage: Any = None
        self._notes: list[str] = []

    @property
    def is_finished(self) -> bool:
        """Whether a finish reason or the end mark was seen; only usage may still come."""
        return self.is_done or self._finish is not None

    def add(self, data: bytes) -> None:
        """Take the data of one event; raises ProviderError when it is an error or unreadable."""
        if self.is_done:
            return
        if data.strip() == b"[DONE]":
            self.is_done = True
            return
        try:
            value = decode_json(data)
        except ValueError as error:
            words = f"a chunk of the stream cannot be read, {error}: {plain_body(data)}"
            raise broken(words) from None
        if failure := error_within(value):
            raise failure
        chunk = as_dict(value)
        if (usage := chunk.get("usage")) is not None:
            self._usage = usage
        for position, item in enumerate(as_list(chunk.get("choices"))):
            self._add_choice(position, as_dict(item))

    def reply(self) -> Reply:
        """The whole reply; raises ProviderError when the stream ended before it was finished."""
        if not self.is_finished:
            raise broken("the stream ended before the reply was finished")
        if self._choice is None:
            raise broken("the stream holds no choice")
        return build_reply(
            text="".join(self._text) if self._text else None,
            calls=[(call.id, call.name, "".join(call.arguments)) for call in self._calls],
            finish=self._finish,
            usage=self._usage,
            notes=self._notes,
        )

    def _add_choice(self, position: int, choice: dict[str, Any]) -> None:
        index = choice.get("index")
        number = index if type(index) is int else position
        if self._choice is None:
            self._choice = number
        if number != self._choice:
            note = "several choices, the first was taken"
            if note not in self._notes:
                self._notes.append(note)
            return
        if failure := error_within(choice):
            raise failure
        delta = as_dict(choice.get("delta"))
        text = content_text(delta.get("content"))
        if text is not None:
            self._text.append(text)
        for piece in as_list(delta.get("tool_calls")):
            self._add_piece(as_dict(piece))
        self._finish = as_str(choice.get("finish_reason")) or self._finish

    def _add_piece(self, piece: dict[str, Any]) -> None:
        index = piece.get("index")
        if type(index) is not int:
            index = None
        call_id, name, arguments = call_parts(piece)
        if not (call_id or name or arguments):
            return
        call = self._find(index, call_id, name)
        if call is None or (name and call.name and name != call.name):
            call = self._open(index, call_id, name)
        elif call.is_followed_by(arguments):
            # Its name may have come in a piece before, with the name of the call that is whole.
            call = self._open(index, call_id, name or call.name)
        call.id = call.id or call_id
        call.name = call.name or name
        call.arguments.append(arguments)

    def _find(self, index: int | None, call_id: str, name: str) -> _OpenCall | None:
        """The call that a piece may continue: the last one of its index, unless the id is new."""
        same = [call for call in self._calls if index is None or call.index in (None, index)]
        if call_id and (known := [call for call in same if call.id == call_id]):
            return known[-1]
        last = same[-1] if same else None
        begins = last and last.id and call_id and (name or not last.name)
        return None if begins else last

    def _open(self, index: int | None, call_id: str, name: str) -> _OpenCall:
        if len(self._calls) >= CALLS_MAX:
            raise broken(f"the reply holds over {CALLS_MAX} tool calls")
        call = _OpenCall(index, call_id, name)
        self._calls.append(call)
        return call
