"""One run as its supervisor sees it: the processes that perform it, one after the other.

Restarts are OTP's ``transient``: a process that died without a recorded ending is started again
and goes on from the journal. How often that may happen is decided by the run itself, from its
journal, so that killing the supervisor does not reset the count.
"""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import trio

from actors.wire import (
    Ended,
    FrameError,
    FromActor,
    Hello,
    Leaving,
    Refused,
    Start,
    Stop,
    Traced,
    encode,
    from_actor,
)
from supervisor.spawned import Exit, Process, SpawnError
from supervisor.spawner import Spawner
from supervisor.state_dir import LOG

BACK_OFF_SECONDS = (0.1, 0.3, 1.0, 2.0)
STILLBORN_MAX = 3
"""Processes in a row that may die before they have opened the run."""
EXIT_SECONDS_MAX = 5.0
_READ_SIZE = 64 * 1024

Listener = Callable[[str, bytes], None]


class Child:
    """A run and whatever process performs it now."""

    def __init__(self, spawner: Spawner, start: Start, listener: Listener) -> None:
        self._spawner = spawner
        self._start = start
        self._listener = listener
        self._process: Process | None = None
        self._stop: Stop | None = None
        self._stop_asked = trio.Event()
        self._killed = False
        self.refused: Refused | None = None
        """Why the run could not go on, where its journal does not say."""

    @property
    def pid(self) -> int | None:
        """The process that performs the run now."""
        return self._process.pid if self._process else None

    def stop(self, reason: str, who: str) -> None:
        """Ask the run to end as cancelled; the first reason counts."""
        if self._stop is None:
            self._stop = Stop(reason, who)
            self._stop_asked.set()

    def kill(self) -> None:
        """End the process at once, without a record; the run can be resumed."""
        self._killed = True
        self._stop_asked.set()
        if self._process:
            self._process.kill()

    async def run(self) -> None:
        """Perform the run until it has an ending on disk, or cannot go on (``refused``).

        A cancellation from outside stops the run first, and passes when its processes are gone.
        """
        stillborn = crashes = 0
        why = self._start.why
        while not self._killed:
            opened, last, exit_ = await self._session(why)
            if isinstance(last, Ended) or self._killed:
                return
            if isinstance(last, Refused):
                self.refused = last
                return
            if isinstance(last, Leaving):
                why = "resume"
                continue
            stillborn = 0 if opened else stillborn + 1
            if stillborn >= STILLBORN_MAX:
                words = f"the actor's process {exit_.words} before it had opened the run"
                log = Path(self._start.run_dir) / LOG
                self.refused = Refused("crashed", f"{words}, {stillborn} times; see {log}")
                return
            why = "restart"
            with trio.move_on_after(BACK_OFF_SECONDS[min(crashes, len(BACK_OFF_SECONDS) - 1)]):
                await self._stop_asked.wait()
            crashes += 1

    async def _session(self, why: str) -> tuple[bool, FromActor | None, Exit]:
        """One process from its start to its burial: did it open the run, and its last frame."""
        run_dir = Path(self._start.run_dir)
        log_fd = os.open(
            run_dir / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        try:
            process = await self._spawner.spawn("actor", self._start.run_id, log_fd)
        except SpawnError as error:
            return False, Refused("spawn", str(error)), Exit()
        finally:
            os.close(log_fd)
        self._process = process
        talk = _Talk(process, self._start.run_id, self._listener)
        try:
            if self._killed:
                process.kill()
            await talk.send(msgspec.structs.replace(self._start, why=why))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pass_stop_on, talk)
                await talk.hear()
                nursery.cancel_scope.cancel()
        except trio.Cancelled:
            self.stop("cancelled by the program", "program")
            with trio.move_on_after(2 * self._start.shutdown_seconds, shield=True):
                await talk.send(Stop("cancelled by the program", "program"))
                await talk.hear()
            raise
        finally:
            with trio.CancelScope(shield=True):
                exit_ = await _bury(process)
            self._process = None
        return talk.opened, talk.last, exit_

    async def _pass_stop_on(self, talk: "_Talk") -> None:
        """Phase one of a Stop; whoever does not answer it in time is killed."""
        await self._stop_asked.wait()
        if self._stop:
            await talk.send(self._stop)
            await trio.sleep(self._start.shutdown_seconds)
        talk.process.kill()


class _Talk:
    """The frames between this process and one actor."""

    def __init__(self, process: Process, run_id: str, listener: Listener) -> None:
        self.process = process
        self.opened = False
        self.last: FromActor | None = None
        self._run_id = run_id
        self._listener = listener
        self._decoder = from_actor()

    async def send(self, frame: Start | Stop) -> None:
        try:
            await self.process.channel.send_all(encode(frame))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # It is dying, which ``hear`` finds out.

    async def hear(self) -> None:
        """Listen until the actor has said its last word, or is dead; garbage ends it."""
        while not isinstance(self.last, Ended | Refused | Leaving):
            try:
                data = await self.process.channel.receive_some(_READ_SIZE)
                frames = self._decoder.feed(data) if data else []
            except trio.BrokenResourceError:
                return
            except FrameError as error:
                self.last = Refused("wire", f"the actor said what cannot be understood: {error}")
                return
            if not data:
                return
            for frame in frames:
                self._take(frame)

    def _take(self, frame: FromActor) -> None:
        match frame:
            case Traced(line=line):
                self._listener(self._run_id, line)
            case Hello():
                self.opened = True
            case Ended() | Refused() | Leaving():
                self.last = frame


async def _bury(process: Process) -> Exit:
    """Close the channel, which is the actor's leave to go, and wait until it and its tools are gone."""
    await trio.aclose_forcefully(process.channel)
    with trio.move_on_after(EXIT_SECONDS_MAX):
        return await process.wait()
    process.kill()
    return await process.wait()
