"""How willingly a process goes when memory is short: actors before whoever started them."""

import contextlib
import os

ADDED = 500
"""Actors can be resumed and the supervisor cannot, so they are the ones to go."""

_MAX = 1000


class OomScore:
    """This process's own score; nothing happens where the system has none.

    Opened before ``prctl.forbid_dumps``: afterwards /proc/self belongs to root.
    """

    def __init__(self) -> None:
        self._fd = -1
        with contextlib.suppress(OSError, ValueError):
            self._fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
            self._own = int(os.read(self._fd, 16))

    def offer(self) -> None:
        """Offer this process, and what it forks from now on, to the kernel."""
        if self._fd >= 0:
            self._write(min(_MAX, self._own + ADDED))

    def withdraw(self) -> None:
        """Take the offer back; what was forked meanwhile stays offered."""
        if self._fd >= 0:
            self._write(self._own)

    def _write(self, score: int) -> None:
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, str(score).encode(), 0)
