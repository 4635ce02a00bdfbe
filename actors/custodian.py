"""The end of what an actor leaves behind: its tools' processes, found by marker or by session.

An orphan is adopted by the nearest subreaper above it, so the custodian looks only among its own
children. It works after the actor is dead (before that its tools are not ours) and in rounds,
because each kill may hand us the children of the killed. A tool that has both left the actor's
session and cleaned its environment escapes; only a cgroup would hold it.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Collection, Container
from pathlib import Path

MARKER = "EXEUNT_ACTOR"
"""Environment variable that holds the pid of the actor a process works for."""

SWEEP_SECONDS = 2.0
"""Longest time a sweep takes; what still breeds after it is left."""

_PROC = Path("/proc")


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
    deadline = time.monotonic() + SWEEP_SECONDS
    lost: set[int] = set()
    while time.monotonic() < deadline:
        found = [
            (pid, owner)
            for pid in children()
            if pid not in spare and pid not in lost and (owner := _owner(pid, counts)) is not None
        ]
        if not found:
            break
        for pid, owner in found:
            # Our own unreaped child: its pid cannot belong to anybody else.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                counts[owner] += 1
        for pid, _ in found:
            lost.add(pid)
            _reap(pid, deadline)
    return counts


def _owner(pid: int, owners: Container[int]) -> int | None:
    """Which of these actors a process works for, if any."""
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        environment = b""
    prefix = f"{MARKER}=".encode()
    for entry in environment.split(b"\0"):
        value = entry.removeprefix(prefix)
        if value != entry and value.isdigit() and int(value) in owners:
            return int(value)
    # A process that was forked but not exec'ed shows no marker, yet it still is in the session that
    # its actor leads; the kernel keeps that number from reuse while the session has members.
    try:
        session = os.getsid(pid)
    except OSError:
        return None
    return session if session in owners else None


def _reap(pid: int, deadline: float) -> None:
    # Uninterruptible sleep outlives SIGKILL, so the wait has an end of its own.
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # poll, for select refuses the descriptors above 1,023 that a large tree has.
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        poller.poll(max(0.0, deadline - time.monotonic()) * 1000)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    finally:
        os.close(pidfd)
