"""The end of what an actor leaves behind: its tools' processes, found by marker or by session.

An orphan is adopted by the nearest subreaper above it, so the custodian looks only among its own
children. It works after the actor is dead (before that its tools are not ours) and in rounds,
because each kill may hand us the children of the killed.

A fork without an exec has the actor's memory, the key in it included, and as little as the actor
does it show its environment to anybody but root. Its command line everybody may read, so the
marker stands there as well. A tool that has left the actor's session escapes when it was started
with a cleaned environment, or as a fork has written over both markers in its memory; only a cgroup
would hold it.
"""

import contextlib
import ctypes
import functools
import os
import re
import select
import signal
import time
from collections.abc import Collection, Container
from pathlib import Path

MARKER = "EXEUNT_ACTOR"
"""Environment variable that holds the pid of the actor a process works for."""

BLANK = "0" * 10
"""What a spawner puts into the marker's place, for ``mark`` to write over."""

BLANK_ARGUMENTS = ("-X", f"{MARKER}={BLANK}")
"""The same for the command line of an interpreter, which passes over an option it does not know."""

SWEEP_SECONDS = 2.0
"""Longest time a sweep takes; what still breeds after it is left."""

EXEC_SECONDS = 0.25
"""How long a process that shows nothing at all is taken to be in the middle of an exec."""

_PROC = Path("/proc")


@functools.cache
def find_marker() -> tuple[int, ...]:
    """Where a spawner's ``BLANK`` stands in the memory that /proc shows of us; empty without one.

    Forks have it at the same places, so their zygote asks once for all of them.
    """
    try:
        fields = (_PROC / "self/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ()
    # The command line begins at the one, the environment comes right behind it and ends at the
    # other: proc(5) has them as the fields 48 and 51, and what is left here begins with the third.
    start, end = int(fields[45]), int(fields[48])
    blanks = re.finditer(
        rf"(?<=\0){MARKER}=({BLANK})(?=\0)".encode(), ctypes.string_at(start, end - start)
    )
    return tuple(start + blank.start(1) for blank in blanks)


def mark() -> None:
    """Mark this process and all that will descend from it as this actor's own.

    A spawner's ``BLANK`` is overwritten where the kernel looks for it, so that /proc tells of forks
    of this process too, which have not exec'ed yet or never will.
    """
    value = f"{os.getpid():0{len(BLANK)}}"
    for place in find_marker():
        ctypes.memmove(place, value.encode(), len(BLANK))
    os.environ[MARKER] = value


def children() -> list[int]:
    """The pids of our children, adopted ones included; empty where /proc has no such list."""
    found: list[int] = []
    for listing in _PROC.glob("self/task/*/children"):
        with contextlib.suppress(OSError):
            found += map(int, listing.read_text().split())
    return found


def sweep(owners: Collection[int], spare: Container[int] = ()) -> dict[int, int]:
    """SIGKILL and reap what these dead actors left among our children; how many, by actor.

    ``spare`` names children that are never looked at. Blocks for at most ``SWEEP_SECONDS``.
    """
    counts = dict.fromkeys(owners, 0)
    started = time.monotonic()
    lost: set[int] = set()
    while (passed := time.monotonic() - started) < SWEEP_SECONDS:
        candidates = [pid for pid in children() if pid not in spare and pid not in lost]
        shown = {pid: _shown(pid) for pid in candidates}
        owned = {
            pid: owner
            for pid, words in shown.items()
            if (owner := _owner(pid, words, counts)) is not None
        }
        for pid, owner in owned.items():
            # Our own unreaped child: its pid cannot belong to anybody else.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                counts[owner] += 1
        for pid in owned:
            lost.add(pid)
            _reap(pid, SWEEP_SECONDS - passed)
        if not owned:
            if passed > EXEC_SECONDS or not any(
                words == b"" and _alive(pid) for pid, words in shown.items()
            ):
                break
            select.select([], [], [], 0.001)
    return counts


def _shown(pid: int) -> bytes | None:
    """A process's environment, or its command line where that is not ours to see.

    Empty in the middle of an exec, None when the process is gone.
    """
    # In this order: anybody may be started with our marker among its arguments.
    for name in ("environ", "cmdline"):
        with contextlib.suppress(OSError):
            return (_PROC / str(pid) / name).read_bytes()
    return None


def _owner(pid: int, words: bytes | None, owners: Container[int]) -> int | None:
    """Which of these actors a process works for, if any."""
    prefix = f"{MARKER}=".encode()
    for entry in (words or b"").split(b"\0"):
        value = entry.removeprefix(prefix)
        if value != entry and value.isdigit() and int(value) in owners:
            return int(value)
    # One that has cleaned its environment may still be in the session that its actor leads; the
    # kernel keeps that number from reuse while the session has members.
    try:
        session = os.getsid(pid)
    except OSError:
        return None
    return session if session in owners else None


def _alive(pid: int) -> bool:
    """Whether our child is not a zombie, which shows no environment either."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False


def _reap(pid: int, timeout_seconds: float) -> None:
    # Uninterruptible sleep outlives SIGKILL, so the wait has an end of its own.
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # poll, for select refuses the descriptors above 1,023 that a large tree has.
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        poller.poll(timeout_seconds * 1000)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    finally:
        os.close(pidfd)
