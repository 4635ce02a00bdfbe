"""The transcript as a request carries it: each message encoded and counted once, in order.

Messages are only ever appended, so the bytes of a sent prefix never change.
"""

from actors.request import encode_message, sent_call_id
from actors.state import State, Turn
from actors.tokens import REPLY_PRIMING, count_message, count_tools


class Transcript:
    """Follows a state and keeps its messages ready to send."""

    def __init__(self, state: State, tools_json: bytes) -> None:
        self._state = state
        self._tools_json = tools_json
        self._turns = 0
        self._told = 0
        self._ids: set[str] = set()
        self._tokens = -1
        self._texts: list[tuple[str, str | None, Turn | None]] = []
        self.messages: list[bytes] = []
        """Encoded messages of every turn whose calls are all answered."""

    def follow(self) -> None:
        """Take in the turns that were answered since the last time."""
        if not self.messages:
            for prompt in self._state.prompts:
                self._add(prompt.role, prompt.text, None, encode_message(prompt.role, prompt.text))
        self._add_told()
        for turn in self._state.turns[self._turns :]:
            if any(call.result is None for call in turn.calls):
                return
            self._add_turn(turn)
            self._turns += 1
            self._add_told()

    def _add_told(self) -> None:
        """Take in what a person has said since the last turn that was taken in."""
        for turn, text in self._state.told[self._told :]:
            if turn > self._turns:
                return
            self._add("user", text, None, encode_message("user", text))
            self._told += 1

    def _add_turn(self, turn: Turn) -> None:
        sent: list[str] = []
        for call in turn.calls:
            sent_id = sent_call_id(call.ref, self._ids)
            self._ids.add(sent_id)
            sent.append(sent_id)
        text = turn.message.text
        calls = [(sent_id, call.written) for sent_id, call in zip(sent, turn.calls, strict=True)]
        self._add("assistant", text, turn, encode_message("assistant", text, calls))
        for sent_id, call in zip(sent, turn.calls, strict=True):
            assert call.result, "a turn is taken in when all its calls are answered"
            content = call.result.content
            self._add("tool", content, None, encode_message("tool", content, (), sent_id))

    def _add(self, role: str, text: str | None, turn: Turn | None, encoded: bytes) -> None:
        self.messages.append(encoded)
        self._texts.append((role, text, turn))

    def tokens(self) -> int:
        """Our own count of the request's input tokens; what was counted is not counted again."""
        if self._tokens < 0:
            self._tokens = REPLY_PRIMING + count_tools(self._tools_json)
        for role, text, turn in self._texts:
            calls = turn.message.calls if turn else ()
            self._tokens += count_message(role, text, calls)
        self._texts.clear()
        return self._tokens
