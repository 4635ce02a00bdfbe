"""Forked workers that perform rounds side by side; each adopts what its own trees leave behind."""

import gc
import os
import select
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence

import msgspec

from actors import prctl
from actors.birth import UNCAUGHT_STATUS
from supervisor.chaos.round import ROUND_SECONDS_MAX, Round

_READ_BYTES = 1 << 16
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Work = Callable[[int], Round]


class WorkerDied(Exception):
    """A worker ended before it had told all of its rounds: a bug of ours, or somebody killed it."""


SILENCE_SECONDS = 10.0


def perform_all(
    work: Work,
    numbers: Sequence[int],
    workers: int = 1,
    waiting: Callable[[float], None] = lambda seconds: None,
) -> Iterator[Round]:
    """Do ``work`` for each number in some worker, and yield what came of it, as it comes.

    ``waiting`` is told each time that nothing has come for ``SILENCE_SECONDS`` more. Raises
    WorkerDied. A caller that stops early ends the workers.
    """
    shares = [numbers[first::workers] for first in range(min(workers, len(numbers)))]
    living = {worker.fd: worker for worker in (_Worker(work, share) for share in shares)}
    try:
        heard = time.monotonic()
        while living:
            ready = select.select(list(living), [], [], SILENCE_SECONDS)[0]
            silence = time.monotonic() - heard
            if not ready and silence > 2 * ROUND_SECONDS_MAX:
                raise WorkerDied("a round has not ended")
            if not ready:
                waiting(silence)
                continue
            heard = time.monotonic()
            for fd in ready:
                rounds = living[fd].read()
                if rounds is None:
                    del living[fd]
                else:
                    yield from rounds
    finally:
        for worker in living.values():
            worker.kill()


class _Worker:
    def __init__(self, work: Work, share: Sequence[int]) -> None:
        self.fd, write_fd = os.pipe()
        self._left = len(share)
        self._buffer = b""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if self._pid:
            os.close(write_fd)
            return
        status = UNCAUGHT_STATUS
        try:
            os.close(self.fd)
            # A Ctrl-C is for the process that is in the foreground, and its handlers are its own.
            os.setsid()
            for number in SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            prctl.die_with_parent(signal.SIGKILL)
            prctl.adopt_orphans()
            # So that no collection in a life copies what it shares with us.
            gc.freeze()
            for number in share:
                _write(write_fd, msgspec.json.encode(work(number)) + b"\n")
            status = 0
        finally:
            os._exit(status)

    def read(self) -> list[Round] | None:
        """The rounds it has told since; None at its end. Raises WorkerDied."""
        data = os.read(self.fd, _READ_BYTES)
        if not data:
            os.close(self.fd)
            os.waitpid(self._pid, 0)
            if self._left:
                raise WorkerDied(f"a worker died with {self._left} rounds to go")
            return None
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        self._left -= len(lines)
        return [msgspec.json.decode(line, type=Round) for line in lines]

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self.fd)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
