"""A family in one process: a run's children are performed beside it, and one kill takes them all.

It stands in for the supervisor, which would give each child a process of its own.
"""

from collections.abc import Callable
from pathlib import Path

import trio

from actors.child_report import SETTLED
from actors.children import Children
from actors.fs import Fs
from actors.journal import JOURNAL, read_events
from actors.opening import OpenRun, open_run
from actors.outcome import Cancelled, Outcome
from actors.state import fold
from actors.wire import ChildEnded, Start, StartChild, StopChild

StartOf = Callable[[StartChild], Start]
"""Makes what a child is told of what its parent asks for."""


class Family:
    """The children of one run; they live in the nursery, which outlives their parent's cancels."""

    def __init__(self, run_dir: Path, start_of: StartOf, fs: Fs, nursery: trio.Nursery) -> None:
        self.children = Children(run_dir, self._take)
        """What ``open_run`` is to be given."""
        self._start_of = start_of
        self._fs = fs
        self._nursery = nursery
        self._live: dict[str, OpenRun] = {}

    async def _take(self, frame: StartChild | StopChild) -> None:
        await trio.lowlevel.checkpoint()
        if isinstance(frame, StartChild):
            self._nursery.start_soon(self._perform, frame)
        elif frame.ref in self._live:
            self._live[frame.ref].request_stop(frame.reason, "parent")

    async def _perform(self, frame: StartChild) -> None:
        start = self._start_of(frame)
        if not _has_ended(Path(start.run_dir)):
            self._fs.mkdir(Path(start.run_dir))
            async with open_run(start, self._fs) as run:
                self._live[frame.ref] = run
                await run.perform()
        self.children.ended(ChildEnded(frame.ref))


def _has_ended(run_dir: Path) -> bool:
    outcome: Outcome | None = None
    if (run_dir / JOURNAL).exists():
        outcome = fold(read_events(run_dir)).outcome
    if outcome is None:
        return False
    return outcome.status in SETTLED or isinstance(outcome.interruption, Cancelled)
