"""Lives: forked processes that perform a run, and die where a test says.

A life is forked from a process that has everything loaded, so it costs milliseconds. What must
outlive it (which appends were acknowledged) it notes in a file that no crash takes back. The
forking process must not be inside ``trio.run``::

    assert begin(start, die_at=17, notes=notes).wait().killed
    assert begin(again, notes=notes).wait().outcome.status is Status.COMPLETED
"""

import contextlib
import gc
import os
import select
import signal
import socket
import struct
import time
import traceback
import warnings
from collections.abc import Callable, Generator
from hashlib import blake2b
from pathlib import Path
from typing import NoReturn

import msgspec
import trio

from actors import prctl
from actors.children import Children
from actors.events import AnyEvent, encoder
from actors.fs import REAL, Fs
from actors.journal import Journal, JournalError
from actors.journal_error import failure_of
from actors.opening import OpenRun, Unusable, open_run
from actors.outcome import Outcome
from actors.testing import provider
from actors.testing.dying_fs import DyingFs, Place
from actors.testing.family import Family, StartOf
from actors.testing.provider import ProviderSettings, Ready
from actors.tool_calls import MustLeave
from actors.wire import Start

LIFE_SECONDS_MAX = 30.0
_READ_BYTES = 1 << 16
_LENGTH = struct.Struct("<I")


class LifeEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a life ended; a killed one could say nothing but its last step."""

    killed: bool = False
    steps: tuple[str, ...] = ()
    """The steps it passed, in order."""
    outcome: Outcome | None = None
    left: bool = False
    """It left on purpose, because only that stops a blocking tool."""
    refused: str | None = None
    """The journal could not be used: the kind of error and its words."""
    error: str | None = None
    """A traceback: something went wrong that never should."""


class Notes:
    """What a life says to whoever survives it, one line an entry, in a file outside the run."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def add(self, line: str) -> None:
        """Note a line; the page cache keeps it, whatever becomes of this process."""
        os.write(self._fd, line.encode() + b"\n")

    def follow_journals(self) -> None:
        """Note from now on what every journal of this process acknowledges.

        ``ack RUN SEQ DIGEST`` when an append returned, ``barrier RUN SEQ`` when a sync did.
        """
        write, sync, note = Journal.write, Journal.sync, self.add

        def noting_write(self: Journal, *events: AnyEvent) -> None:
            write(self, *events)
            first = self.seq - len(events) + 1
            for seq, event in enumerate(events, first):
                note(f"ack {self.path.parent.name} {seq} {payload_digest(encoder.encode(event))}")

        async def noting_sync(self: Journal) -> None:
            await sync(self)
            note(f"barrier {self.path.parent.name} {self.synced}")

        Journal.write, Journal.sync = noting_write, noting_sync


def payload_digest(payload: bytes) -> str:
    """How notes name the payload of a frame."""
    return blake2b(payload, digest_size=16).hexdigest()


class Life:
    """A life under way; made by ``begin``."""

    def __init__(self, pid: int, report_fd: int) -> None:
        self.pid = pid
        self._report_fd = report_fd

    def kill(self) -> None:
        """End it from outside."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self, seconds: float = LIFE_SECONDS_MAX) -> LifeEnd:
        """Wait for its end and reap it; raises TimeoutError when it hangs, after killing it."""
        deadline = time.monotonic() + seconds
        data = bytearray()
        hangs = False
        while True:
            wait = max(0.0, deadline - time.monotonic())
            if not hangs and not select.select([self._report_fd], [], [], wait)[0]:
                hangs = True
                self.kill()
            chunk = os.read(self._report_fd, _READ_BYTES)
            if not chunk:
                break
            data += chunk
        os.close(self._report_fd)
        os.waitpid(self.pid, 0)
        if hangs:
            raise TimeoutError(f"a life was still going on after {seconds:g} s")
        return msgspec.json.decode(data, type=LifeEnd) if data else LifeEnd(killed=True)


def begin(
    start: Start,
    *,
    die_at: Place | None = None,
    stop_at: Place | None = None,
    notes: Path | None = None,
    disk: Fs = REAL,
    prepare: Callable[[], None] | None = None,
    start_of: StartOf | None = None,
) -> Life:
    """Fork a life that performs what ``start`` asks for.

    Args:
        start: what an actor would be told.
        die_at: the step at which it kills itself.
        stop_at: the step at which a Stop is asked for.
        notes: the file that ``Notes`` writes.
        disk: another disk than the real one.
        prepare: called in the new process before anything else.
        start_of: makes the starts of its children, which live and die in the same process.
    """
    read_fd, write_fd = os.pipe()
    with warnings.catch_warnings():
        # Newer interpreters warn of forks beside threads; trio forgets its idle ones in the child.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        os.close(write_fd)
        return Life(pid, read_fd)
    try:
        os.close(read_fd)
        prctl.die_with_parent(signal.SIGKILL)
        gc.disable()
        if prepare:
            prepare()
        end = trio.run(_Living(start, notes, disk, die_at, stop_at, start_of).perform)
    except BaseException:
        # The border of the process: above it a second pytest would go on.
        end = LifeEnd(error=traceback.format_exc())
    return _leave(write_fd, end)


def _leave(report_fd: int, end: LifeEnd) -> NoReturn:
    # Not through the interpreter's exit: a thread that hangs must not hold it.
    try:
        view = memoryview(msgspec.json.encode(end))
        while view:
            view = view[os.write(report_fd, view) :]
    finally:
        os._exit(0)


class _Living:
    def __init__(
        self,
        start: Start,
        notes: Path | None,
        disk: Fs,
        die_at: Place | None,
        stop_at: Place | None,
        start_of: StartOf | None,
    ) -> None:
        self._start = start
        self._notes = Notes(notes) if notes else None
        self._fs = DyingFs(die_at, self._on_step if stop_at else None, disk)
        self._stop_at = stop_at
        self._start_of = start_of
        self._stopping = False
        self._run: OpenRun | None = None

    async def perform(self) -> LifeEnd:
        if self._notes:
            self._notes.follow_journals()
        outcome, left, refused = None, False, None
        try:
            self._token = trio.lowlevel.current_trio_token()
            if self._start_of is None:
                outcome = await self._perform(None)
            else:
                async with trio.open_nursery() as nursery:
                    run_dir = Path(self._start.run_dir)
                    family = Family(run_dir, self._start_of, self._fs, nursery)
                    outcome = await self._perform(family.children)
        except MustLeave:
            left = True
        except (JournalError, Unusable) as error:
            refused = f"{error.kind}: {error}"
        except BaseExceptionGroup as group:
            failure = failure_of(group)
            if failure is None:
                raise
            refused = f"{failure.kind}: {failure}"
        return LifeEnd(steps=tuple(self._fs.steps), outcome=outcome, left=left, refused=refused)

    async def _perform(self, children: Children | None) -> Outcome:
        async with open_run(self._start, self._fs, children=children) as self._run:
            if self._stopping:
                self._stop()
            return await self._run.perform()

    def _on_step(self, number: int, name: str) -> None:
        if self._stop_at in (number, name) and not self._stopping:
            self._stopping = True
            # A step may be passed in the thread that syncs.
            self._token.run_sync_soon(self._stop)

    def _stop(self) -> None:
        if self._run and self._run.record.journal.epoch:
            self._run.request_stop("asked for by a test", "tester")
            if self._notes and self._run.record.state.stop:
                self._notes.add(f"stop {self._start.run_id}")


@contextlib.contextmanager
def serving(settings: ProviderSettings) -> Generator[str]:
    """Fork a scripted provider; yields its base URL. It ends with the block, or with us."""
    ours, theirs = socket.socketpair()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # as above
        pid = os.fork()
    if not pid:
        ours.close()
        status = 70
        try:
            prctl.die_with_parent(signal.SIGKILL)
            status = provider.main(theirs.detach())
        finally:
            os._exit(status)
    theirs.close()
    try:
        with ours:
            ours.settimeout(LIFE_SECONDS_MAX)
            body = msgspec.msgpack.encode(settings)
            ours.sendall(_LENGTH.pack(len(body)) + body)
            with ours.makefile("rb") as answers:
                (length,) = _LENGTH.unpack(answers.read(_LENGTH.size))
                ready = msgspec.msgpack.decode(answers.read(length), type=Ready)
                if ready.error:
                    raise ValueError(ready.error)
                yield ready.base_url
    finally:
        os.waitpid(pid, 0)
