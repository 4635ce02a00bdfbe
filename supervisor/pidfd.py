"""A process that can be watched and signalled without meeting another one of the same number."""

import contextlib
import os
import resource
import signal

import trio

POLL_SECONDS = 0.02
"""How often a dead child is looked for where the system has no pidfds."""


class Pidfd:
    """One process, by its pidfd; where there are none (macOS), by the pid of our own child."""

    def __init__(self, pid: int, fd: int | None) -> None:
        self.pid = pid
        self._fd = fd
        self._over = False

    @classmethod
    def of_child(cls, pid: int) -> "Pidfd":
        """Watch a child of this process that nobody has reaped yet; raises OSError."""
        return cls(pid, os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None)

    def send(self, number: int) -> None:
        """Signal the process; nothing happens when it is dead."""
        if self._over:
            return
        with contextlib.suppress(ProcessLookupError):
            if self._fd is not None:
                signal.pidfd_send_signal(self._fd, number)
            else:
                os.kill(self.pid, number)

    async def dead(self) -> None:
        """Wait until the process is dead (reaped or not) or this is closed; for one waiter only."""
        if self._fd is None:
            return
        # Closed meanwhile: its end was learned in another way.
        with contextlib.suppress(trio.ClosedResourceError):
            await trio.lowlevel.wait_readable(self._fd)

    async def reap(self) -> tuple[int, resource.struct_rusage] | None:
        """Wait for the death of our child and collect it; None when somebody else has done so."""
        await self.dead()
        while True:
            try:
                pid, status, usage = os.wait4(self.pid, os.WNOHANG)  # noqa: ASYNC222 - never blocks
            except ChildProcessError:
                self._over = True
                return None
            if pid:
                self._over = True
                return status, usage
            await trio.sleep(POLL_SECONDS)

    def close(self) -> None:
        """Give the descriptor back; signals are ignored from now on."""
        self._over = True
        if self._fd is not None:
            trio.lowlevel.notify_closing(self._fd)
            os.close(self._fd)
            self._fd = None
