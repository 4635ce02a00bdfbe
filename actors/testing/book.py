"""A journal read from outside, for a checker, with the little that all of its readers share."""

from pathlib import Path

from actors import frame
from actors.events import AnyEvent, Opened, decoder
from actors.journal import JOURNAL
from actors.testing.evidence import hold


class Book:
    """The journal, read without the code that the run itself reads it with, as far as possible."""

    def __init__(self, run_dir: Path, *, whole: bool) -> None:
        path = run_dir / JOURNAL
        data = path.read_bytes() if path.exists() else b""
        scan = frame.scan(data)
        hold(not scan.later, "I1", f"sound frames stand behind damage at byte {scan.end}")
        torn = len(data) - scan.end
        hold(not (whole and torn), "I1", f"{torn} torn bytes are left after a resume")
        self.frames = scan.frames
        self.events: list[AnyEvent] = [decoder.decode(found.payload) for found in scan.frames]
        epoch = 0
        for found, event in zip(self.frames, self.events, strict=True):
            if isinstance(event, Opened):
                epoch += 1
                hold(event.epoch == epoch, "I1", f"epoch {epoch} calls itself {event.epoch}")
            hold(found.epoch == epoch > 0, "I1", f"frame {found.seq} is not of epoch {epoch}")
