"""A trap: a process dies at the very instruction at which a tool has returned, or is answered.

No signal from outside is that exact, and it is there that a call which is run again does its work
twice, and that what a call has left running is lost.
"""

import mmap
import os
import signal

from actors.fs import REAL
from supervisor.chaos.plan import REPEAT, Lure


class Trap:
    """Kills the first process in which a tool returns, once; made before the first life."""

    def __init__(self, lure: Lure) -> None:
        self._lure = lure
        self._returned = False
        # One page for all processes that are forked from here on.
        self._page = mmap.mmap(-1, 1)

    @property
    def sprung(self) -> bool:
        """Whether it has killed."""
        return self._page[0] != 0

    def set(self) -> None:
        """Lie in wait in this process and in its forks."""
        REAL.boundary = self._pass

    def _pass(self, name: str) -> None:
        if self._returned and name.endswith(":before"):
            # Something else begins, so the answer is saved.
            self._spring()
        if name == f"tool:{self._lure.tool}:after":
            self._returned = True
            if self._lure.when == REPEAT:
                self._spring()

    def _spring(self) -> None:
        if not self.sprung:
            self._page[0] = 1
            os.kill(os.getpid(), signal.SIGKILL)
