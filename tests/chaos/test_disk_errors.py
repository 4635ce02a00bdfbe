"""A disk that fills up or fails ends the process in words, and never the run."""

import errno
import os
from pathlib import Path

import pytest
from ground import Ground

from actors import frame
from actors.fs import Fs
from actors.journal import JOURNAL
from actors.outcome import Status

pytestmark = pytest.mark.chaos


class FailingFs(Fs):
    """A disk on which the journal's n-th write, or sync, fails, and every one after it."""

    def __init__(self, log: Path, *, write: int = 0, sync: int = 0, code: int) -> None:
        self._log = log
        self._write_at = write
        self._sync_at = sync
        self._code = code
        self._counts = {"write": 0, "sync": 0}
        self._journal = -1

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        fd = super().open(path, flags, mode)
        if path.name == JOURNAL:
            self._journal = fd
        return fd

    def _fails(self, kind: str, at: int) -> bool:
        self._counts[kind] += 1
        if not at or self._counts[kind] < at:
            return False
        with self._log.open("a") as log:
            log.write(f"{kind}\n")
        return True

    def write(self, fd: int, data: bytes) -> None:
        if fd == self._journal and data and self._fails("write", self._write_at):
            # What fits is written, as a real disk does it.
            os.write(fd, data[: len(data) // 2])
            raise OSError(self._code, os.strerror(self._code))
        super().write(fd, data)

    def sync(self, fd: int) -> None:
        if fd == self._journal and self._fails("sync", self._sync_at):
            raise OSError(self._code, os.strerror(self._code))
        super().sync(fd)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("number", [1, 2, 3, 4, 9, 13, 17, 28])
def test_a_full_disk_ends_the_process_at_a_whole_frame(ground: Ground, number: int, code: int):
    """What fitted of a frame is cut off again, and a resume goes on once there is room."""
    subject = ground.new_run("errand", "power")
    log = subject.home / "log"
    end = subject.live(disk=FailingFs(log, write=number, code=code))
    assert end.refused
    kind = "disk" if code == errno.EIO else "disk_full"
    assert end.refused.startswith(f"{kind}: cannot save to ")
    words = "Input/output error; mend that" if code == errno.EIO else "disk full; make room"
    assert f"{words} and resume the run" in end.refused
    assert log.read_text() == "write\n"
    data = (subject.run_dir / JOURNAL).read_bytes()
    assert frame.scan(data).end == len(data)
    assert len(frame.scan(data).frames) == number - 1
    subject.until_ended()
    state = subject.check()
    assert state.outcome
    assert state.outcome.status is Status.COMPLETED


@pytest.mark.parametrize("number", [1, 2, 3, 4, 7, 12, 20])
def test_a_sync_that_fails_is_never_tried_again(ground: Ground, number: int):
    """A second one could report success for pages that are lost; nothing is written after it."""
    subject = ground.new_run("errand", "power")
    log = subject.home / "log"
    end = subject.live(disk=FailingFs(log, sync=number, code=errno.EIO))
    assert end.refused
    assert "Input/output error; mend that and resume the run" in end.refused
    assert log.read_text() == "sync\n"
    journal_steps = [step for step in end.steps if step.endswith(JOURNAL)]
    assert journal_steps[-1] == f"sync {JOURNAL}"
    subject.until_ended()
    state = subject.check()
    assert state.outcome
    assert state.outcome.status is Status.COMPLETED


def test_a_disk_that_fails_while_a_tail_is_cut_leaves_the_tail(ground: Ground):
    """The journal is refused in words, unchanged, and the next open cuts it."""
    subject = ground.new_run("errand", "power")
    subject.live(20)
    subject.live("half journal.x1")
    torn = (subject.run_dir / JOURNAL).read_bytes()
    log = subject.home / "log"
    end = subject.live(disk=FailingFs(log, sync=1, code=errno.EIO))
    assert end.refused
    assert end.refused.startswith("disk: ")
    assert torn.startswith((subject.run_dir / JOURNAL).read_bytes())
    subject.until_ended()
    subject.check()
