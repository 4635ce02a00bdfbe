"""Zygotes that were forked beforehand, so that a supervisor of a round starts in milliseconds.

A life forks them from the warm process of the session before it enters trio. Each waits for the
control socket that a supervisor hands to a zygote it starts, and then is one: the same code, with
nothing left out but an interpreter's start.
"""

import importlib
import os
import signal
import socket
import sys
from collections.abc import Collection, Mapping, Sequence

from actors import custodian, zygote
from actors.birth import UNCAUGHT_STATUS, find
from supervisor.pidfd import Pidfd
from supervisor.spawner import PRELOAD
from supervisor.zygote_process import StartZygote, ZygoteProcess, start_zygote

_FD = 3


def marked() -> bool:
    """Whether this process was started with the marker that its forks can write over."""
    return os.environ.get(custodian.MARKER) == custodian.BLANK


def restart_marked(key_names: Collection[str]) -> None:
    """Become the same program anew, with the marker where /proc shows it and without keys.

    /proc shows of a process and all its forks what it was started with. By the marker in there
    tools are found that outlive their actor; and a key, which no script needs, would be read there
    by tools, whatever was taken out of the environment since.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    environment = {name: value for name, value in os.environ.items() if name not in key_names}
    environment[custodian.MARKER] = custodian.BLANK
    python = [sys.executable, "-P", *custodian.BLANK_ARGUMENTS]
    arguments = [*python, "-m", "supervisor", *sys.argv[1:]]
    os.execve(sys.executable, arguments, environment)


def warm_up() -> None:
    """Load and rehearse what every actor needs, in the process that all lives are forked from."""
    for entry in PRELOAD:
        if ":" in entry:
            find(entry)()
        else:
            importlib.import_module(entry)


def get_ready(zygotes: int) -> StartZygote:
    """Fork the zygotes of this life; returns what takes the place of starting one.

    A supervisor that uses up more than these starts the next as usual.
    """
    spares = [_Spare() for _ in range(zygotes)]

    def start(
        control_fd: int, preload: Sequence[str], env: Mapping[str, str]
    ) -> tuple[ZygoteProcess, Pidfd]:
        if not spares:
            return start_zygote(control_fd, preload, env)
        spare = spares.pop()
        spare.take_over(control_fd, env)
        return spare, Pidfd.of_child(spare.pid)

    return start


class _Spare:
    """A zygote in waiting; it leaves when the process that forked it does."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid:
            theirs.close()
            return
        status = UNCAUGHT_STATUS
        try:
            status = _wait(theirs.detach())
        finally:
            os._exit(status)

    def take_over(self, control_fd: int, env: Mapping[str, str]) -> None:
        """Let it serve this socket, in this environment."""
        entries = "\0".join(f"{name}={value}" for name, value in env.items())
        data = entries.encode("utf-8", "surrogateescape")
        socket.send_fds(self._line, [len(data).to_bytes(4, "little")], [control_fd])
        self._line.sendall(data)
        self._line.close()

    def kill(self) -> None:
        """SIGKILL it; only called while nobody has reaped it."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Reap it."""
        return os.waitpid(self.pid, 0)[1]


def _wait(line_fd: int) -> int:
    # What a fork inherits and an exec would have closed; among it the lines of other spares, which
    # would never end if we held them too.
    os.dup2(line_fd, _FD)
    os.closerange(_FD + 1, os.sysconf("SC_OPEN_MAX"))
    with socket.socket(fileno=_FD) as line:
        head, fds, _, _ = socket.recv_fds(line, 4, 1)
        if not fds:
            return 0
        with line.makefile("rb") as rest:
            data = rest.read(int.from_bytes(head, "little"))
    os.setsid()
    os.environ.clear()
    for entry in data.decode("utf-8", "surrogateescape").split("\0"):
        name, _, value = entry.partition("=")
        os.environ[name] = value
    return zygote.main([str(fds[0])])
