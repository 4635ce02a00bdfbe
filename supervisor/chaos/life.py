"""A life: a forked process that supervises one run, tells what it hears, and may be killed.

The process that forks one must not be inside ``trio.run``; it must be single-threaded, and the
nearest subreaper of what the life leaves behind, so that ``left_behind`` sees all of it.
"""

import contextlib
import os
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import trio

from actors import custodian, prctl
from actors.birth import UNCAUGHT_STATUS
from actors.journal import JournalError
from supervisor.chaos.ready import get_ready
from supervisor.config import Config, ConfigError
from supervisor.report import Report
from supervisor.spawned import SpawnError
from supervisor.state_dir import StateDir, StateError
from supervisor.supervisor import RunRefused, open_supervisor
from supervisor.zygote_process import StartZygote

_READ_BYTES = 1 << 16
_END = b'{"end":'

Prepare = Callable[[], None]


class Heard(msgspec.Struct, frozen=True):
    """As much of a trace line as a boundary needs."""

    run_id: str
    type: str


class End(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a life ended by itself."""

    report: Report | None = None
    refused: str = ""
    error: str = ""
    """A traceback: something went wrong that never should."""


class _Last(msgspec.Struct):
    end: End


class Life:
    """A supervisor's process, from outside."""

    def __init__(self, pid: int, told_fd: int) -> None:
        self.pid = pid
        self.end: End | None = None
        """Set when it ended by itself, and told so."""
        self.over = False
        self._fd = told_fd
        self._buffer = b""

    def listen(self, seconds: float) -> list[Heard]:
        """The trace lines of the next ``seconds``, or as soon as there is one."""
        if self.over or not select.select([self._fd], [], [], max(0.0, seconds))[0]:
            return []
        data = os.read(self._fd, _READ_BYTES)
        if not data:
            self.over = True
            os.close(self._fd)
            os.waitpid(self.pid, 0)
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return list(self._decoded(lines))

    def _decoded(self, lines: list[bytes]) -> Iterator[Heard]:
        for line in lines:
            if line.startswith(_END):
                self.end = msgspec.json.decode(line, type=_Last).end
            else:
                yield msgspec.json.decode(line, type=Heard)


def begin(
    state_dir: Path,
    run_id: str,
    config: Config | None = None,
    prepare: Prepare | None = None,
    zygotes: int = 1,
) -> Life:
    """Fork a life that starts this run, or without a config goes on with it.

    ``prepare`` is called in the new process before anything else, and so many zygotes are made
    ready.
    """
    read_fd, write_fd = os.pipe()
    with warnings.catch_warnings():
        # Newer interpreters warn of forks beside threads; trio forgets its idle ones in the child.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        os.close(write_fd)
        return Life(pid, read_fd)
    status = UNCAUGHT_STATUS
    try:
        os.close(read_fd)
        end = _live(state_dir, run_id, config, prepare, zygotes, write_fd)
        _tell(write_fd, msgspec.json.encode(_Last(end)))
        status = 0
    finally:
        # The border of the process: above it a second engine would go on.
        os._exit(status)


def _live(
    state_dir: Path,
    run_id: str,
    config: Config | None,
    prepare: Prepare | None,
    zygotes: int,
    told_fd: int,
) -> End:
    prctl.die_with_parent(signal.SIGKILL)
    _redirect(state_dir.with_name("supervisor.log"))
    try:
        if prepare:
            prepare()
        start = get_ready(zygotes)
        return End(report=trio.run(_supervise, state_dir, run_id, config, told_fd, start))
    except (RunRefused, SpawnError, StateError, ConfigError, JournalError) as refused:
        return End(refused=str(refused))
    except BaseException:
        return End(error=traceback.format_exc())


async def _supervise(
    state_dir: Path, run_id: str, config: Config | None, told_fd: int, start: StartZygote
) -> Report:
    def hear(run_id: str, line: bytes) -> None:
        _tell(told_fd, line)

    async with open_supervisor(StateDir(state_dir), listener=hear, start=start) as tree:
        return await (tree.run(config, run_id) if config else tree.resume(run_id))


def _tell(fd: int, line: bytes) -> None:
    view = memoryview(line + b"\n")
    while view:
        view = view[os.write(fd, view) :]


def _redirect(log: Path) -> None:
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)


def left_behind(seconds: float) -> list[int]:
    """Reap what lives have left to us until nothing is there; what still lives after ``seconds``.

    For a process that adopts orphans and has no other children.
    """
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        left = custodian.children()
        if not left or time.monotonic() > deadline:
            return left
        select.select([], [], [], 0.002)


def kill_left_behind(seconds: float) -> bool:
    """Kill whatever lives have left to us, and what that leaves; False when something is left."""
    deadline = time.monotonic() + seconds
    # Each kill may hand us the children of the killed.
    while left := left_behind(0.01):
        send(left, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
    return True


def descendants(pid: int) -> list[int]:
    """A process's children, theirs, and so on."""
    found = [pid]
    for parent in found:
        # Any of them may be gone by the time it is looked at.
        with contextlib.suppress(OSError):
            for listing in Path(f"/proc/{parent}/task").glob("*/children"):
                found += map(int, listing.read_text().split())
    return found[1:]


def name_of(pid: int) -> str:
    """What ``ps`` calls a process; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def send(pids: list[int], number: int) -> None:
    """Signal processes, one right after the other; those that are gone do not matter."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
