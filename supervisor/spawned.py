"""A process that a spawner made, and how it ended."""

import os
import resource
import signal as signals

import msgspec
import trio

from supervisor.pidfd import Pidfd


class SpawnError(Exception):
    """No process could be made, in words: the machine is short of something, or code is broken."""


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """How a process ended: by itself with a status, or by a signal; neither when nobody saw it."""

    status: int | None = None
    signal: int | None = None
    cpu_seconds: float = 0.0
    """Its own and that of the processes it waited for."""
    max_rss_kib: int = 0
    swept: int = 0
    """Processes of its tools that outlived it and were killed."""

    @property
    def words(self) -> str:
        """How it ended, for people."""
        if self.signal is not None:
            return f"killed by {_signal_name(self.signal)}"
        if self.status is not None:
            return f"exited with status {self.status}"
        return "ended, and nobody saw how"


def exit_of(
    wait_status: int, cpu_seconds: float = 0.0, max_rss_kib: int = 0, swept: int = 0
) -> Exit:
    """The Exit that a wait status tells."""
    code = os.waitstatus_to_exitcode(wait_status)
    return Exit(
        status=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        cpu_seconds=cpu_seconds,
        max_rss_kib=max_rss_kib,
        swept=swept,
    )


def exit_of_child(reaped: tuple[int, resource.struct_rusage] | None, swept: int) -> Exit:
    """The Exit of a child that this process has reaped itself."""
    if reaped is None:
        return Exit(swept=swept)
    status, usage = reaped
    return exit_of(status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss, swept)


class Process:
    """A living or ended process; the caller owns ``channel`` and closes it."""

    def __init__(self, channel: trio.SocketStream, pidfd: Pidfd) -> None:
        self.pid = pidfd.pid
        self.channel = channel
        self.pidfd = pidfd
        self._exit: Exit | None = None
        self._ended = trio.Event()

    def __repr__(self) -> str:
        return f"<Process {self.pid}: {self._exit.words if self._exit else 'alive'}>"

    async def wait(self) -> Exit:
        """Wait until the process is dead, reaped, and its tools are swept; any number may wait."""
        await self._ended.wait()
        assert self._exit is not None
        return self._exit

    def kill(self) -> None:
        """SIGKILL it; nothing happens when it has ended."""
        self.signal(signals.SIGKILL)

    def signal(self, number: int) -> None:
        """Send it a signal; nothing happens when it has ended."""
        self.pidfd.send(number)

    def finish(self, ending: Exit) -> None:
        """Record the ending and wake who waits; for the spawner that made it."""
        self.pidfd.close()
        self._exit = ending
        self._ended.set()


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
