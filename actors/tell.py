"""A person's message to a run that nobody performs: recorded now, read when it is gone on with."""

from pathlib import Path

from actors.epoch import visit
from actors.events import UserMessage
from actors.fs import REAL, Fs
from actors.outcome import RESUMABLE
from actors.record import Record
from actors.text import clean


class TellRefused(Exception):
    """The run will never read a message; nothing was recorded. The person must tell another."""


async def record_message(run_dir: Path, text: str, who: str, fs: Fs = REAL) -> None:
    """Take the run's lock and record a message for the model's next turn.

    Raises:
        TellRefused: the run has ended for good, or has not begun.
        JournalError: the run is held, its journal is damaged, or the disk fails.
    """
    record = Record(run_dir, fs)
    try:
        state = record.state
        if not state.epoch:
            raise TellRefused("the run has not begun, so there is nobody to be told anything")
        if state.outcome and state.outcome.status not in RESUMABLE:
            raise TellRefused(f"the run has ended ({state.outcome.status}), and reads no more")
        # In one write, so that no epoch stands there without the message that it was for.
        await record.add(visit(record), UserMessage(text=clean(text), who=who), barrier=True)
    finally:
        record.close()
