"""The actor: one process that performs one run, and talks to its supervisor over descriptor 3."""

import os
import socket
from pathlib import Path

import trio

from actors.children import Children
from actors.journal import JournalError
from actors.journal_error import failure_of
from actors.opening import OpenRun, Unusable, open_run
from actors.outcome import ORPHANED
from actors.tool_calls import MustLeave
from actors.wire import (
    ChildEnded,
    Ended,
    FromActor,
    Hello,
    Leaving,
    Refused,
    Start,
    Stop,
    Tell,
    ToActor,
    Traced,
    encode,
    to_actor,
)

START_SECONDS_MAX = 30.0
LAST_WORD_SECONDS_MAX = 2.0
LINES_SECONDS = 0.02
LINES_BYTES_MAX = 1024 * 1024
"""Trace lines that wait for a slow supervisor; what is over that is seen only on disk."""
ALONE = "the supervisor is gone"
_READ_SIZE = 64 * 1024


def main(fd: int) -> int:
    """Perform the run that the first frame on ``fd`` names; the exit status is 0.

    What became of the run stands in its journal; what the supervisor must know it was told.
    """
    return trio.run(act, fd)


async def act(fd: int) -> int:
    """What ``main`` runs; 0."""
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(socket.socket(fileno=fd)))
    async with stream:
        channel = _Channel(stream)
        start = None
        with trio.move_on_after(START_SECONDS_MAX):
            start = await channel.receive()
        if isinstance(start, Start):
            await _Actor(channel, start).live()
    return 0


class _Channel:
    """Both directions of the channel; one task writes, so no frame is ever cut in the middle."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._decoder = to_actor()
        self._received: list[ToActor] = []
        self._queue: list[bytes] = []
        self._waiting_bytes = 0
        self._news, self._urgent, self._written = trio.Event(), trio.Event(), trio.Event()

    async def receive(self) -> ToActor | None:
        """The next frame; None when the supervisor is gone."""
        while not self._received:
            try:
                data = await self._stream.receive_some(_READ_SIZE)
            except trio.BrokenResourceError:
                return None
            if not data:
                return None
            self._received += self._decoder.feed(data)
        return self._received.pop(0)

    def offer(self, line: bytes) -> None:
        """Hand over a trace line, unless the supervisor is far behind: then it is only on disk."""
        if self._waiting_bytes < LINES_BYTES_MAX:
            self._put(encode(Traced(line)))

    async def send(self, frame: FromActor) -> None:
        """Send a frame behind all that was handed over before, and return when it has left.

        Cancelled, it leaves all the same.
        """
        self._put(encode(frame))
        written = self._written
        self._urgent.set()
        await written.wait()

    def _put(self, data: bytes) -> None:
        self._queue.append(data)
        self._waiting_bytes += len(data)
        self._news.set()

    async def write(self) -> None:
        """Write what waits, lines ``LINES_SECONDS`` late: waking costs both ends."""
        while True:
            await self._news.wait()
            with trio.move_on_after(LINES_SECONDS):
                await self._urgent.wait()
            data, written = b"".join(self._queue), self._written
            self._queue, self._waiting_bytes = [], 0
            self._news, self._urgent, self._written = trio.Event(), trio.Event(), trio.Event()
            try:
                await self._stream.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # The reader sees the end of the connection and stops the run.
            written.set()


class _Actor:
    def __init__(self, channel: _Channel, start: Start) -> None:
        self._channel = channel
        self._start = start
        self._children = Children(Path(start.run_dir), channel.send, start.shutdown_seconds / 2)
        self._run: OpenRun | None = None
        self._stop = start.stop
        self._alone = trio.Event()
        """The supervisor has closed the channel."""

    async def live(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen)
            nursery.start_soon(self._channel.write)
            if last := await self._perform():
                await self._say_last(last)
            nursery.cancel_scope.cancel()

    async def _say_last(self, frame: FromActor) -> None:
        with trio.move_on_after(LAST_WORD_SECONDS_MAX):
            await self._channel.send(frame)

    async def _perform(self) -> FromActor | None:
        """Perform the run, and say so; returns the last word where there is another one to say."""
        try:
            async with open_run(
                self._start, follow=self._channel.offer, children=self._children
            ) as run:
                self._run = run
                await self._channel.send(Hello(os.getpid(), run.record.state.epoch))
                if self._stop:
                    run.request_stop(self._stop.reason, self._stop.who)
                outcome = await run.perform()
                await self._say_last(Ended(outcome.status.value))
                # Phase two of a Stop: nobody tidies up or exits while others still cancel.
                with trio.move_on_after(self._start.shutdown_seconds):
                    await self._alone.wait()
                return None
        except MustLeave:
            return Leaving("a blocking tool is stopped by the end of its process")
        except JournalError as error:
            return Refused(error.kind, str(error))
        except Unusable as error:
            return Refused(error.kind, str(error))
        except BaseExceptionGroup as group:
            failure = failure_of(group)
            if failure is None:
                raise
            return Refused(failure.kind, str(failure))
        finally:
            self._run = None

    async def _listen(self) -> None:
        while frame := await self._channel.receive():
            match frame:
                case Stop():
                    self._children.stopped()
                    self._request_stop(frame)
                case ChildEnded():
                    self._children.ended(frame)
                case Tell():
                    await self._tell(frame)
                case Start():
                    pass  # A second one changes nothing.
        self._alone.set()
        self._request_stop(Stop(ALONE, ORPHANED))
        self._children.forsaken()

    async def _tell(self, frame: Tell) -> None:
        if self._run:
            try:
                await self._run.tell(frame.text, frame.who)
            except JournalError:
                pass  # As below.

    def _request_stop(self, stop: Stop) -> None:
        self._stop = self._stop or stop
        if self._run:
            try:
                self._run.request_stop(stop.reason, stop.who)
            except JournalError:
                pass  # The performer meets the same disk at its next append, and says so.
