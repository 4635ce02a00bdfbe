"""The seam to the disk: every call that changes it, and every boundary a test may cut at."""

import os
from pathlib import Path


class Fs:
    """The real disk. Tests put a subclass here that counts, kills, fills up or loses writes."""

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        """Open a file that nothing else inherits; links are not followed."""
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode)

    def write(self, fd: int, data: bytes) -> None:
        """Write all of ``data`` in as few calls as the kernel allows."""
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]

    def sync(self, fd: int) -> None:
        """Return when everything written to ``fd`` is on the disk."""
        os.fdatasync(fd) if hasattr(os, "fdatasync") else os.fsync(fd)

    def truncate(self, fd: int, size: int) -> None:
        """Cut a file to ``size`` bytes."""
        os.ftruncate(fd, size)

    def mkdir(self, path: Path) -> None:
        """Make a private directory; one that exists is fine."""
        path.mkdir(mode=0o700, exist_ok=True)

    def sync_dir(self, path: Path) -> None:
        """Return when the names in a directory are on the disk."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def boundary(self, name: str) -> None:
        """A point between two steps of the world outside the disk; does nothing here."""


REAL = Fs()
