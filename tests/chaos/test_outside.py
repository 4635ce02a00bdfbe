"""Kills from outside, of real processes that know nothing of it: by time, and by strace."""

import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import msgspec
import pytest
from errand_tools import LEDGERS
from ground import SUPPORT, Ground, Subject
from plans import KILL_POINTS, SEED

from actors import frame
from actors.birth import CHANNEL_FD
from actors.journal import JOURNAL
from actors.outcome import Status
from actors.testing.lives import LifeEnd
from actors.wire import Ended, FromActor, Hello, encode, from_actor

pytestmark = pytest.mark.chaos

STRACE = shutil.which("strace")
START_SECONDS = 20.0
RUN_SECONDS = 0.08
"""About as long as the run takes."""
TIMES = 4 if KILL_POINTS <= 500 else 20
WRITES = 40


@contextmanager
def _actor(subject: Subject, why: str) -> Generator[tuple[int, socket.socket]]:
    """A real actor process, as the supervisor would start it; it is killed at the end."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-P", "-m", "actors", "actor", subject.start.run_id],
            os.environ | {LEDGERS: str(subject.home)},
            file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), CHANNEL_FD)],
        )
        try:
            ours.sendall(encode(msgspec.structs.replace(subject.start, why=why)))
            yield pid, ours
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _frames(channel: socket.socket) -> Iterator[FromActor]:
    decoder = from_actor()
    while select.select([channel], [], [], START_SECONDS)[0]:
        data = channel.recv(1 << 16)
        if not data:
            return
        yield from decoder.feed(data)
    raise AssertionError("the actor said nothing")


@pytest.mark.parametrize("number", range(TIMES))
def test_an_actor_killed_at_any_time_can_be_resumed(ground: Ground, number: int):
    """The process is killed by its number, some milliseconds after it has opened the run."""
    rng = random.Random(SEED + number)
    subject = ground.new_run("errand", "power")
    with _actor(subject, "start") as (_, channel):
        frames = _frames(channel)
        assert any(isinstance(told, Hello) for told in frames)
        # Nobody answers a socket that is only written to, so this waits for exactly so long.
        select.select([], [], [], rng.uniform(0, RUN_SECONDS))
    subject.lives += 1
    subject.bury(LifeEnd(killed=True))
    with _actor(subject, "restart") as (_, channel):
        assert any(isinstance(told, Ended) for told in _frames(channel)), f"EXEUNT_SEED={SEED}"
    state = subject.check()
    assert state.outcome
    assert state.outcome.status is Status.COMPLETED


def _strace_works() -> bool:
    if STRACE is None:
        return False
    probe = [STRACE, "-f", "-o", os.devnull, "-e", "trace=write", "true"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def _points() -> list[int]:
    if KILL_POINTS > 500:
        return list(range(1, WRITES + 1))
    return random.Random(SEED).sample(range(1, WRITES - 4), 4)


@pytest.mark.skipif(STRACE is None, reason="there is no strace here")
@pytest.mark.parametrize("number", range(len(_points())))
def test_a_kill_at_the_nth_write_needs_no_hook(ground: Ground, number: int):
    """The kernel itself kills a fresh interpreter as it enters a write to the journal."""
    if not _strace_works():
        pytest.skip("strace may not trace here")
    point = _points()[number]
    subject = ground.new_run("errand", "process")
    journal = subject.run_dir / JOURNAL
    start = subject.home / "start"
    start.write_bytes(msgspec.json.encode(subject.start))
    inject = f"inject=write:signal=SIGKILL:when={point}"
    life = [sys.executable, "-P", str(SUPPORT / "fresh_life.py"), str(start)]
    trace = [str(STRACE), "-f", "-o", os.devnull, "-P", str(journal), "-e", "trace=write"]
    done = subprocess.run(
        [*trace, "-e", inject, *life],
        env=os.environ | {LEDGERS: str(subject.home)},
        capture_output=True,
        check=False,
        timeout=60,
    )
    subject.lives += 1
    if done.returncode == 0:
        assert point > 30, "the run ended before it was killed"
    else:
        assert done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL), done.stderr
        assert len(frame.scan(journal.read_bytes()).frames) in (point - 1, point)
        subject.bury(LifeEnd(killed=True))
    subject.until_ended()
    state = subject.check()
    assert state.outcome
    assert state.outcome.status is Status.COMPLETED, f"EXEUNT_SEED={SEED}, write {point}"
