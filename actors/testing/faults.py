"""Faults at named turns: what real providers do wrong, on order and a counted number of times."""

import enum
from collections.abc import Iterable, Sequence

import msgspec

from actors.testing.recent import Recent

RUNS_MAX = 10_000
"""Counters of fired faults kept; the oldest go first."""


class FaultKind(enum.StrEnum):
    """What happens instead of, or to, the reply. The ones marked billed cost like a good reply."""

    RATE_LIMIT = "429"
    INSUFFICIENT_QUOTA = "insufficient_quota"
    """429 as well, but no waiting helps."""
    UNAUTHORIZED = "401"
    UNAVAILABLE = "503"
    """From a proxy: its body is HTML."""
    SERVER_ERROR = "500"
    TIMEOUT = "timeout"
    """No answer at all, until the client gives up."""
    CUT = "cut"
    """Billed: the connection closes in the middle of the body."""
    BROKEN_STREAM = "broken_stream"
    """Billed: the stream ends, well framed, before its finish reason; without a stream, a cut."""
    MALFORMED = "malformed"
    """Billed: 200 with half a JSON text."""
    HTML_200 = "html200"
    STREAM_ERROR = "stream_error"
    """200, and in it an error object in place of the reply."""
    NO_USAGE = "no_usage"
    """Billed: the reply does not say what it cost."""
    NULL_USAGE = "null_usage"
    """Billed: the same, with ``usage`` null."""
    OVERFLOW = "overflow"
    """400 in OpenAI's wording: the request is longer than the window."""
    OVERFLOW_LLAMA = "overflow_llama"
    """The same as llama.cpp words it."""


BILLED = frozenset(
    {
        FaultKind.CUT,
        FaultKind.BROKEN_STREAM,
        FaultKind.MALFORMED,
        FaultKind.NO_USAGE,
        FaultKind.NULL_USAGE,
    }
)


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fault: at which turn of a run, of which kind, and how often there."""

    turn: int
    """Counted from 1: the reply that is being asked for."""
    kind: FaultKind
    retry_after: str | None = None
    """The Retry-After header word for word; ``date+N`` is the HTTP date N seconds from then."""
    times: int = 1


def check_faults(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Return the faults as they are.

    Raises:
        ValueError: one of them cannot be; the message says which and why.
    """
    checked: list[Fault] = []
    for number, fault in enumerate(faults, 1):
        where = f"fault {number}"
        if fault.kind not in tuple(FaultKind):
            kinds = ", ".join(FaultKind)
            raise ValueError(f"{where}: unknown kind {str(fault.kind)!r}; the kinds are {kinds}")
        if fault.turn < 1 or fault.times < 1:
            raise ValueError(f"{where}: turn and times count from 1")
        after = fault.retry_after
        if after is not None:
            if not (after.isascii() and after.isprintable()):
                raise ValueError(f"{where}: retry_after must be printable ASCII")
            if after.startswith("date+") and not after.removeprefix("date+").isdecimal():
                raise ValueError(f"{where}: retry_after date+N takes whole seconds")
        checked.append(fault)
    return tuple(checked)


class FaultBook:
    """Which faults have fired for whom. It lives in memory: a restarted provider starts anew."""

    def __init__(self) -> None:
        self._fired: Recent[tuple[str, int], int] = Recent(RUNS_MAX)

    def take(self, faults: Sequence[Fault], turn: int, who: str) -> Fault | None:
        """The next fault due at this turn of this run, counted as fired; None when none is left."""
        for index, fault in enumerate(faults):
            fired = self._fired.get((who, index), 0)
            if fault.turn == turn and fired < fault.times:
                self._fired.put((who, index), fired + 1)
                return fault
        return None
