"""What a request shows of a run: its rounds as bytes, in the shape that the marks say.

Each message is encoded and counted once. While the marks stay the same, messages are only ever
appended, so the bytes that were sent stay the same; when a mark moves, all are joined anew, once.
"""

from collections.abc import Sequence

import msgspec

from actors.arrival import arrival_limit, cut_result
from actors.calibration import Calibration
from actors.estimate import Counter
from actors.fit import Fitted, Overflow, fit
from actors.ledger import NAME_MAX, SAID, Line, call_line, ledger_cap, ledger_text
from actors.messages import Assistant, Prompt, ResultKind, ToolCall
from actors.request import EmptyContent, encode_message, sent_call_id
from actors.text import excerpt
from actors.tokens import REPLY_PRIMING
from actors.window import Marks, Policy, Window
from actors.window_words import CLEARED_NOTE, FOLDED_NOTE, MODEL_PARAGRAPH

UNLIMITED = 2**62
"""The budget of a run that has none."""


class _Result(msgspec.Struct, frozen=True):
    """A result as it is sent while it is whole, which may mean cut at its arrival."""

    call: ToolCall
    kind: ResultKind
    size: int
    """Characters of the text in the journal."""
    sent_id: str
    text: str
    encoded: bytes


class _Round(msgspec.Struct, frozen=True):
    message: Assistant | Prompt
    """A reply with the results of its calls, or what a person said."""
    encoded: bytes
    results: tuple[_Result, ...] = ()
    sizes: tuple[int, tuple[int, ...]] | None = None
    """Tokens of the message and of each result, where they were counted at once."""


class Composition:
    """Follows the rounds of one run and makes the messages of each request.

    ``budget`` is in the provider's tokens, None for none; the reply is not a part of it. Without a
    budget nothing is counted until somebody asks for the tokens.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        tools_json: bytes,
        counter: Counter,
        budget: int | None,
        policy: Policy,
        empty_content: EmptyContent = "keep",
    ) -> None:
        if budget is not None and budget < 1:
            raise ValueError(f"a budget has at least 1 token, not {budget}")
        self._counter, self._policy = counter, policy
        self._empty_content: EmptyContent = empty_content
        self._fits = budget is not None and policy.name != "off"
        self._budget = UNLIMITED if budget is None else budget
        # In our own count, by the first guess of k: later ones must not change what was cut.
        self._nominal = int(self._budget / counter.k0)
        self._ledger_cap = ledger_cap(self._nominal) if policy.name == "band" else 0
        told = [(p.role, p.text) for p in prompts]
        self._told = _with_paragraph(told) if self._fits else told
        self._tools_json = tools_json
        self._window: Window | None = None
        self._rounds: list[_Round] = []
        self._lines: list[tuple[Line, ...]] = []
        """Of the rounds that were counted."""
        self._ids: set[str] = set()
        self._marks: Marks = Marks()
        self._messages = [encode_message(role, text) for role, text in self._told]
        """The request in the shape of ``_marks``."""

    @property
    def window(self) -> Window:
        """The sizes of all rounds so far."""
        window = self._window = self._window or self._new_window()
        for added in self._rounds[window.rounds :]:
            self._count(window, added)
        return window

    def add(
        self,
        message: Assistant,
        refs: Sequence[str],
        results: Sequence[tuple[ResultKind, str]],
    ) -> None:
        """Take in one reply and the answers to all of its calls, in their order."""
        texts, sizes = [text for _, text in results], None
        if self._fits:
            texts, sizes = self._arrived(message, texts)
        shown: list[_Result] = []
        for call, ref, (kind, whole), text in zip(message.calls, refs, results, texts, strict=True):
            sent_id = sent_call_id(ref, self._ids)
            self._ids.add(sent_id)
            encoded = encode_message("tool", text, (), sent_id)
            shown.append(_Result(call, kind, len(whole), sent_id, text, encoded))
        calls = [(result.sent_id, result.call) for result in shown]
        assistant = encode_message("assistant", message.text, calls, empty=self._empty_content)
        self._rounds.append(_Round(message, assistant, tuple(shown), sizes))
        # A new round stands behind every mark, so it is whole.
        self._messages.append(assistant)
        self._messages.extend(result.encoded for result in shown)

    def add_said(self, text: str) -> None:
        """Take in a message of a person; it is never left out."""
        encoded = encode_message("user", text)
        self._rounds.append(_Round(Prompt("user", text), encoded))
        self._messages.append(encoded)

    def fit(self, marks: Marks, calibration: Calibration, *, cold: bool) -> Fitted | Overflow:
        """Shape the next request; raises ValueError for marks that this run cannot have."""
        if self._budget == UNLIMITED:
            return Fitted(marks, 0, 0)
        self.window.check(marks)
        if not self._counter.calibrated:
            calibration = Calibration()
        k0 = self._counter.k0
        return fit(self.window, marks, self._budget, self._policy, calibration, k0=k0, cold=cold)

    def tokens(self, marks: Marks, calibration: Calibration) -> int:
        """What the request in this shape will have by the provider's count, as far as we know."""
        if not self._counter.calibrated:
            calibration = Calibration()
        window = self.window
        fresh = window.fresh(calibration.rounds)
        return calibration.tokens(window.size(marks), fresh, self._counter.k0)

    def messages(self, marks: Marks) -> Sequence[bytes]:
        """The encoded messages of the request in this shape; not to be changed by the caller."""
        if marks != self._marks:
            self._messages = self._joined(marks)
            self._marks = marks
        return self._messages

    def _new_window(self) -> Window:
        count = self._counter
        tools = b"" if self._tools_json == b"[]" else self._tools_json
        fixed = REPLY_PRIMING + count.text(tools.decode("utf-8", "replace"))
        fixed += sum(count.message(role, text) for role, text in self._told)
        return Window(
            fixed,
            note=count.message("tool", CLEARED_NOTE),
            ledger_head=count.message("user", FOLDED_NOTE),
            ledger_cap=self._ledger_cap,
        )

    def _count(self, window: Window, added: _Round) -> None:
        message = added.message
        if isinstance(message, Prompt):
            self._lines.append(())
            # The words in front of it in the ledger are a few tokens more than its frame.
            window.add(self._counter.message("user", SAID + message.text), (), 0, person=True)
            return
        texts = [result.text for result in added.results]
        head, sizes = added.sizes or self._sizes(message, texts)
        lines: list[Line] = []
        for call, result in zip(message.calls, added.results, strict=True):
            text = call_line(call.name, call.arguments, result.size, result.kind.value)
            tokens = self._counter.text(text + "\n")
            lines.append(Line(excerpt(call.name, NAME_MAX), text, tokens))
        self._lines.append(tuple(lines))
        window.add(head, sizes, sum(line.tokens for line in lines))

    def _sizes(self, message: Assistant, texts: Sequence[str]) -> tuple[int, tuple[int, ...]]:
        count = self._counter
        head = count.message("assistant", message.text, message.calls)
        return head, tuple(count.message("tool", text) for text in texts)

    def _arrived(
        self, message: Assistant, texts: list[str]
    ) -> tuple[list[str], tuple[int, tuple[int, ...]]]:
        """The results of a new round, cut if they would not fit even with nothing before them."""
        head, sizes = self._sizes(message, texts)
        window = self.window
        limit = arrival_limit(sizes, self._nominal - window.fixed - window.ledger_most - head)
        if limit is None:
            return texts, (head, sizes)
        texts = [
            cut_result(call, text, limit, self._counter) if size > limit else text
            for call, text, size in zip(message.calls, texts, sizes, strict=True)
        ]
        return texts, (head, self._sizes(message, texts)[1])

    def _joined(self, marks: Marks) -> list[bytes]:
        window = self.window
        joined = [encode_message(role, text) for role, text in self._told]
        if marks.folded_upto:
            lines = [line for of_round in self._lines[: marks.folded_upto] for line in of_round]
            folded = [added.message for added in self._rounds[: marks.folded_upto]]
            said = [message.text for message in folded if isinstance(message, Prompt)]
            joined.append(encode_message("user", ledger_text(lines, self._ledger_cap, said)))
        index = window.results_before(marks.folded_upto)
        for added in self._rounds[marks.folded_upto :]:
            joined.append(added.encoded)
            for result in added.results:
                joined.append(self._shaped(result, index, window.result(index), marks))
                index += 1
        return joined

    def _shaped(self, result: _Result, index: int, tokens: int, marks: Marks) -> bytes:
        if index < marks.cleared_upto and self.window.is_clearable(tokens):
            return encode_message("tool", CLEARED_NOTE, (), result.sent_id)
        if index == marks.cut_result and marks.cut_tokens < tokens:
            # The frame of the message is a part of its size.
            frame = self._counter.message("tool", "")
            text = cut_result(result.call, result.text, marks.cut_tokens - frame, self._counter)
            return encode_message("tool", text, (), result.sent_id)
        return result.encoded


def _with_paragraph(told: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    for index, (role, text) in enumerate(told):
        if role == "system":
            whole = f"{text}\n\n{MODEL_PARAGRAPH}" if text.strip() else MODEL_PARAGRAPH
            return [*told[:index], (role, whole), *told[index + 1 :]]
    return [("system", MODEL_PARAGRAPH), *told]
