"""A gate: the process that reaches the boundary of a strike waits there until it is struck.

A trace line is heard a moment after it was written, and a quick tree has ended by then. Here the
actor itself notices, in whichever process of the round it lives, and gives the striker time.
"""

import mmap
import select
import time
from collections.abc import Sequence

import msgspec

from actors.events import AnyEvent
from actors.journal import JOURNAL, Journal
from actors.state import Call
from actors.trace import TRACE, Trace
from supervisor.chaos.life import Heard
from supervisor.chaos.plan import BYTES, Boundary, Strike
from supervisor.chaos.world import Home
from supervisor.state_dir import StateDir

HOLD_SECONDS = 1.0
"""The longest that a process waits: whoever was to strike it may be gone."""
_POLL_SECONDS = 0.0005
_AHEAD, _HELD, _PAST = 0, 1, 2


class Gate:
    """Holds one process at the boundary of each strike in turn; made before the first life."""

    def __init__(self, home: Home, strikes: Sequence[Strike]) -> None:
        self._strikes = strikes
        self._runs = [home.full(strike.boundary.run) for strike in strikes]
        self._state_dir = StateDir(home.state_dir)
        # A byte a strike, for all processes that are forked from here on.
        self._page = mmap.mmap(-1, max(1, len(strikes)))

    def holds(self, number: int) -> bool:
        """Whether a process has come to the boundary of this strike, counted from 0."""
        return self._page[number] == _HELD

    def open(self, number: int) -> None:
        """Let whoever waits there go on; from now on the boundary of the next strike counts."""
        self._page[number] = _PAST

    def set(self) -> None:
        """Watch in this process and in its forks."""
        trace_event, progress, write = Trace.event, Trace.progress, Journal.write
        run_id = ""

        def watched_event(self: Trace, event: AnyEvent, frame: int) -> None:
            trace_event(self, event, frame)
            look(run_id)

        def watched_progress(self: Trace, call: Call, label: str, at: float) -> None:
            progress(self, call, label, at)
            look(run_id)

        def watched_write(self: Journal, *events: AnyEvent) -> None:
            nonlocal run_id
            write(self, *events)
            # A process performs one run, and writes to its journal before it traces.
            run_id = self.path.parent.name
            look(run_id)

        look = self._look
        Trace.event, Trace.progress, Journal.write = watched_event, watched_progress, watched_write

    def _look(self, run_id: str) -> None:
        states = self._page[: len(self._strikes)]
        number = next((n for n, state in enumerate(states) if state != _PAST), None)
        if number is None or states[number] == _HELD or self._runs[number] != run_id:
            return
        if reached(self._state_dir, run_id, self._strikes[number].boundary):
            self._page[number] = _HELD
            until = time.monotonic() + HOLD_SECONDS
            while self.holds(number) and time.monotonic() < until:
                select.select([], [], [], _POLL_SECONDS)


def reached(state_dir: StateDir, run_id: str, boundary: Boundary) -> bool:
    """Whether a run has come to a boundary, by its files."""
    run_dir = state_dir.run_dir(run_id)
    try:
        if boundary.event == BYTES:
            return (run_dir / JOURNAL).stat().st_size >= boundary.number
        lines = (run_dir / TRACE).read_bytes().splitlines(keepends=True)
    except OSError:
        return False
    kinds = (msgspec.json.decode(line, type=Heard).type for line in lines if line.endswith(b"\n"))
    return sum(kind == boundary.event for kind in kinds) >= boundary.number
