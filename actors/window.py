"""The size of a run's history in any shape it may be sent in, from sums kept as it grows.

A shape is two marks. Results before ``cleared_upto`` are sent as a constant note; rounds before
``folded_upto`` are sent as lines of one message, the ledger, which also keeps every word that a
person said. The history itself stays whole, and
marks only ever move forward: so the front of a request stays the same to the byte until a fitting
moves a mark, and a provider's prefix cache holds.

Everything here is in one unit, our own count of tokens; no clock, no text, no disk.
"""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Literal

import msgspec

PolicyName = Literal["band", "reference", "off"]
SMALL_NOTES = 2
"""A result not larger than so many notes is never cleared."""
GROWTH_ROUNDS = 16
TOKENS_MAX = 10**12
"""No mark says more."""


class Marks(msgspec.Struct, frozen=True, array_like=True):
    """What of the history is sent how; saved in the journal, and never moved backwards."""

    cleared_upto: int = 0
    """Results before this one are sent as the note; counted over the run from 0."""
    folded_upto: int = 0
    """Rounds before this one are sent as lines of the ledger; their results are all cleared."""
    cut_result: int = -1
    """A result sent cut to ``cut_tokens``, because even alone it was too large."""
    cut_tokens: int = 0
    budget: int = 0
    """The budget that a provider's refusal lowered, in tokens; 0: the configured one holds."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """When a request is fitted to the budget, and how far; shares are of the budget."""

    name: PolicyName = "band"
    high: float | Literal["auto"] = "auto"
    """The size that starts a fitting; ``auto`` finds the cheapest for how fast the run grows."""
    low: float = 0.30
    """The size that a fitting aims at."""
    floor: float = 0.25
    """The newest results that fit in this share stay whole, always at least one."""
    batch: int = 4
    """Results are cleared at least so many at a time, where there are so many."""
    cold_after_seconds: float = 300.0
    """After a pause so long the provider's cache has nothing left to lose."""
    cached_share: float = 0.1
    """The price of a cached token as a share of a fresh one."""

    def __post_init__(self) -> None:
        if self.name not in ("band", "reference", "off"):
            raise ValueError(f"there is no window policy {self.name!r}: band, reference or off")
        high = 1.0 if self.high == "auto" else self.high
        if not 0.0 < self.floor <= self.low < high <= 1.0:
            raise ValueError(
                "window shares must satisfy 0 < floor <= low < high <= 1, "
                f"not floor {self.floor:g}, low {self.low:g}, high {high:g}"
            )
        if self.batch < 1 or not 0.0 <= self.cached_share <= 1.0:
            raise ValueError(
                "a batch has at least 1 result and cached_share lies between 0 and 1, "
                f"not {self.batch} and {self.cached_share:g}"
            )


class Part(msgspec.Struct, frozen=True):
    """A named piece of a request and its size."""

    name: str
    tokens: int


class Window:
    """Running sums over the rounds of one run; one answer costs the same however long it is.

    A round is an assistant message with the results of all its calls, so that neither is ever
    without the other, or a message of a person. One with a call that has no answer is not in here.
    """

    def __init__(self, fixed: int, *, note: int, ledger_head: int, ledger_cap: int) -> None:
        self.fixed = fixed
        """System prompt, first message, tool schemas and what else every request carries."""
        self.note = note
        """Tokens of a tool message that holds the note."""
        self._ledger_head, self._ledger_cap = ledger_head, ledger_cap
        self._whole = [0]
        self._lines = [0]
        self._first = [0]
        self._results = [0]
        self._saved = [0]
        self._said = [0]
        self._people: list[int] = []

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return len(self._whole) - 1

    @property
    def results(self) -> int:
        """How many results all rounds have."""
        return len(self._results) - 1

    def add(self, head: int, results: Sequence[int], line: int, *, person: bool = False) -> None:
        """Take in a round: its message with calls, its results, and the ledger lines it would be.

        ``person``: a message of a person, which begins a new turn of the user.
        """
        if person:
            self._people.append(self.rounds)
        self._said.append(self._said[-1] + (head if person else 0))
        for size in results:
            saved = size - self.note if self.is_clearable(size) else 0
            self._results.append(self._results[-1] + size)
            self._saved.append(self._saved[-1] + saved)
        self._whole.append(self._whole[-1] + head + sum(results))
        self._lines.append(self._lines[-1] + line)
        self._first.append(self.results)

    def check(self, marks: Marks) -> None:
        """Refuse marks that this history cannot have; raises ValueError with both numbers."""
        for name, mark, least, most in (
            ("cleared_upto", marks.cleared_upto, 0, self.results),
            ("folded_upto", marks.folded_upto, 0, self.rounds),
            ("cut_result", marks.cut_result, -1, self.results - 1),
            ("cut_tokens", marks.cut_tokens, 0, TOKENS_MAX),
            ("budget", marks.budget, 0, TOKENS_MAX),
        ):
            if not least <= mark <= most:
                raise ValueError(f"the mark {name} is {mark}, and must lie in {least} to {most}")
        if marks.cleared_upto < self._first[marks.folded_upto]:
            raise ValueError(
                f"cleared_upto is {marks.cleared_upto}, but the folded rounds "
                f"have {self._first[marks.folded_upto]} results"
            )

    def size(self, marks: Marks) -> int:
        """Tokens of the whole request in this shape."""
        folded, cleared = marks.folded_upto, marks.cleared_upto
        size = self.fixed + self.ledger(folded) + self._whole[-1] - self._whole[folded]
        size -= self._saved[cleared] - self._saved[self._first[folded]]
        if marks.cut_result >= cleared:
            size -= max(0, self.result(marks.cut_result) - marks.cut_tokens)
        return size

    def ledger(self, folded_upto: int) -> int:
        """Tokens of the message that stands for the folded rounds."""
        if not folded_upto:
            return 0
        said = self._said[folded_upto]
        return self._ledger_head + said + min(self._lines[folded_upto], self._ledger_cap)

    def result(self, index: int) -> int:
        """Tokens of one whole result."""
        return self._results[index + 1] - self._results[index]

    def round_sizes(self, index: int) -> tuple[int, tuple[int, ...], int]:
        """What ``add`` was given for one round: head, results and line."""
        first, end = self._first[index : index + 2]
        results = tuple(self.result(number) for number in range(first, end))
        head = self._whole[index + 1] - self._whole[index] - sum(results)
        return head, results, self._lines[index + 1] - self._lines[index]

    def whole_tokens(self, marks: Marks) -> int:
        """Tokens of the results that are sent whole."""
        return self._results[-1] - self._results[marks.cleared_upto]

    @property
    def ledger_most(self) -> int:
        """The most that the ledger can ever have."""
        return self._ledger_head + self._said[-1] + self._ledger_cap

    def is_clearable(self, tokens: int) -> bool:
        """Whether clearing a result of this size is worth a note in its place."""
        return tokens > SMALL_NOTES * self.note

    def fresh(self, rounds: int) -> int:
        """Tokens of the rounds that came after the first so many."""
        return self._whole[-1] - self._whole[min(rounds, self.rounds)]

    def growth(self) -> float:
        """Tokens that a round has added of late, on average."""
        last = min(GROWTH_ROUNDS, self.rounds)
        return (self._whole[-1] - self._whole[-1 - last]) / last if last else 0.0

    def newest_within(self, tokens: float) -> int:
        """The first of the newest results that fit in so many tokens, always at least one."""
        first = bisect_left(self._results, self._results[-1] - tokens)
        return max(0, min(first, self.results - 1))

    def clear_for(self, marks: Marks, excess: float) -> int:
        """The lowest ``cleared_upto`` that makes the request ``excess`` tokens smaller."""
        wanted = self._saved[marks.cleared_upto] + max(0.0, excess)
        return bisect_left(self._saved, wanted, lo=marks.cleared_upto)

    def cleared_rounds(self, cleared_upto: int) -> int:
        """How many rounds have no result that is still whole."""
        return max(0, bisect_right(self._first, cleared_upto) - 1)

    def results_before(self, rounds: int) -> int:
        """How many results the first so many rounds have."""
        return self._first[rounds]

    def person_turns(self, after: int, upto: int) -> list[int]:
        """The rounds behind ``after`` and up to ``upto`` where a turn of the user begins."""
        low, high = bisect_right(self._people, after), bisect_right(self._people, upto)
        return self._people[low:high]

    def parts(self, marks: Marks) -> tuple[Part, ...]:
        """What the request is made of, for a person who must make it smaller."""
        newest = self.result(self.results - 1) if self.results else 0
        if marks.cut_result == self.results - 1 >= 0:
            newest = min(newest, marks.cut_tokens)
        rest = self.size(marks) - self.fixed - self.ledger(marks.folded_upto) - newest
        sizes = itertools.starmap(
            Part,
            (
                ("system prompt, task and tools", self.fixed),
                ("list of earlier calls", self.ledger(marks.folded_upto)),
                ("calls and notes", rest),
                ("newest result", newest),
            ),
        )
        return tuple(part for part in sizes if part.tokens)
