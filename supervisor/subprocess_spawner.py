"""Spawning without a zygote: a fresh interpreter for each process, about a second of CPU.

For systems where forking without exec is unsafe (macOS), for debugging, and as a check that no
actor relies on having been forked. Here the supervisor itself reaps and sweeps. A process spawned
so survives the supervisor's SIGKILL until it sees that its channel is closed.
"""

import os
import signal
import socket
import sys
from collections.abc import Mapping

import trio

from actors import custodian
from actors.birth import CHANNEL_FD
from supervisor.pidfd import Pidfd
from supervisor.spawned import Exit, Process, exit_of_child


class SubprocessSpawner:
    """Starts ``python -P -m actors`` once for every process."""

    def __init__(self, nursery: trio.Nursery, env: Mapping[str, str]) -> None:
        self._nursery = nursery
        self._env = env
        self._watches: dict[Process, trio.CancelScope] = {}

    async def spawn(self, role: str, name: str, log_fd: int, env: Mapping[str, str]) -> Process:
        """Start an interpreter with this role; raises OSError."""
        await trio.lowlevel.checkpoint()
        ours, theirs = socket.socketpair()
        channel = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        with theirs:
            try:
                pidfd = _start(role, name, theirs.fileno(), log_fd, {**self._env, **env})
            except BaseException:
                ours.close()
                raise
        process = Process(channel, pidfd)
        # Shielded, because close ends it and not a cancellation: while a Stop is performed
        # everything around it is being cancelled.
        self._watches[process] = trio.CancelScope(shield=True)
        self._nursery.start_soon(self._watch, process)
        return process

    async def close(self) -> None:
        """Kill and reap what is left."""
        for process in self._watches:
            process.kill()
        for process in list(self._watches):
            await process.wait()

    def abort(self) -> None:
        """Give up waiting for deaths."""
        for scope in self._watches.values():
            scope.cancel()

    async def _watch(self, process: Process) -> None:
        ending = Exit()
        with self._watches[process]:
            reaped = await process.pidfd.reap()
            swept = await trio.to_thread.run_sync(custodian.sweep, [process.pid])
            ending = exit_of_child(reaped, swept[process.pid])
        del self._watches[process]
        process.finish(ending)


def _start(role: str, name: str, channel_fd: int, log_fd: int, env: Mapping[str, str]) -> Pidfd:
    # The order matters: a source may be overwritten only after its last use.
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", *custodian.BLANK_ARGUMENTS, "-m", "actors", role, name],
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, log_fd, 1),
            (os.POSIX_SPAWN_DUP2, log_fd, 2),
            (os.POSIX_SPAWN_DUP2, channel_fd, CHANNEL_FD),
        ],
        setsid=True,
    )
    try:
        return Pidfd.of_child(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
