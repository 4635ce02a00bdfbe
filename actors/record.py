"""What a run has on record: journal, state and trace, moved forward together."""

import time
from pathlib import Path

import msgspec

from actors.events import AnyEvent, Finished, Replied, RunStopped
from actors.fs import REAL, Fs
from actors.journal import Journal, disk_failed
from actors.state import Call, State
from actors.trace import TRACE, Follower, Trace


class Record:
    """The one way in which anything happens to a run: state, journal and trace in one step.

    The events of a closed run are read back by ``journal.read_events``.
    """

    def __init__(self, run_dir: Path, fs: Fs = REAL, follow: Follower | None = None) -> None:
        """Take the run's lock and fold its journal; raises JournalError."""
        self.run_dir = run_dir
        self.journal = Journal.open(run_dir, fs)
        self.fs = fs
        self.state = State()
        try:
            self._trace = Trace(run_dir, self.state, self.journal.seq, follow)
        except OSError as error:
            self.journal.close()
            raise disk_failed(run_dir / TRACE, error) from error
        for number, event in enumerate(self.journal.events, 1):
            self.state.apply(event)
            self._trace.event(event, number)
        self.journal.events = []

    def write(self, *events: AnyEvent) -> None:
        """Make events happen without waiting for the disk; raises DiskFailed."""
        if not events:
            return
        stamped = [self._take(event) for event in events]
        frame = self.journal.seq
        self.journal.write(*stamped)
        for number, event in enumerate(stamped, frame + 1):
            self._trace.event(event, number)

    async def add(self, *events: AnyEvent, barrier: bool = False) -> None:
        """Make events happen; with ``barrier``, return once they are on the disk.

        Raises DiskFailed, after which the state in memory must not be gone on from.
        """
        self.write(*events)
        if barrier:
            await self.journal.sync()

    def _take(self, event: AnyEvent) -> AnyEvent:
        # The clock may be set back between two events; the record's time never runs backwards.
        at = max(time.time(), self.state.last_at)
        event = msgspec.structs.replace(event, at=at)
        self.state.apply(event)
        if isinstance(event, Replied | Finished | RunStopped):
            return msgspec.structs.replace(event, head=self.state.head.copy())
        return event

    def progress(self, call: Call, label: str) -> None:
        """Write a progress line of a running call."""
        self._trace.progress(call, label, time.time())

    def close(self) -> None:
        """Give up the run's lock."""
        self._trace.close()
        self.journal.close()
