"""A disk that dies: every step that a run takes to it is counted, and one kills the process.

There is a step before, in the middle of and after each write, and one on either side of every
other call of the seam.
"""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from actors.fs import REAL, Fs

Place = int | str
"""Where a life dies: the number of a step, counted from 1, or the name of the first such step."""


class DyingFs(Fs):
    """A disk that counts every step, tells ``on_step`` of it, and kills its process at one."""

    def __init__(
        self,
        die_at: Place | None = None,
        on_step: Callable[[int, str], None] | None = None,
        disk: Fs = REAL,
    ) -> None:
        """``disk`` is what the calls are handed on to."""
        self.steps: list[str] = []
        self._disk = disk
        self._die_at = die_at
        self._on_step = on_step
        self._names: dict[int, str] = {}
        self._lock = threading.Lock()

    def step(self, name: str) -> None:
        """Pass a step, or die there."""
        with self._lock:
            dies = self._dies_at_next(name)
            self.steps.append(name)
            number = len(self.steps)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._on_step:
            self._on_step(number, name)

    def _dies_at_next(self, name: str) -> bool:
        return self._die_at in (len(self.steps) + 1, name)

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        """Open, with a step on either side."""
        self.step(f"open {path.name}")
        fd = self._disk.open(path, flags, mode)
        self._names[fd] = path.name
        self.step(f"opened {path.name}")
        return fd

    def write(self, fd: int, data: bytes) -> None:
        """Write in one piece, unless the process is to die with half of it written."""
        name = self._names.get(fd, "?")
        self.step(f"write {name}")
        half = len(data) // 2 if self._dies_at_next(f"half {name}") else 0
        if half:
            self._disk.write(fd, data[:half])
        self.step(f"half {name}")
        self._disk.write(fd, data)
        self.step(f"wrote {name}")

    def sync(self, fd: int) -> None:
        """Sync, with a step on either side."""
        name = self._names.get(fd, "?")
        self.step(f"sync {name}")
        self._disk.sync(fd)
        self.step(f"synced {name}")

    def truncate(self, fd: int, size: int) -> None:
        """Cut, with a step on either side."""
        name = self._names.get(fd, "?")
        self.step(f"truncate {name}")
        self._disk.truncate(fd, size)
        self.step(f"truncated {name}")

    def mkdir(self, path: Path) -> None:
        """Make a directory, with a step on either side."""
        self.step(f"mkdir {path.name}")
        self._disk.mkdir(path)
        self.step(f"made {path.name}")

    def sync_dir(self, path: Path) -> None:
        """Sync a directory, with a step on either side."""
        self.step("sync_dir")
        self._disk.sync_dir(path)
        self.step("synced_dir")

    def boundary(self, name: str) -> None:
        """A step of the world outside the disk."""
        self._disk.boundary(name)
        self.step(name)
