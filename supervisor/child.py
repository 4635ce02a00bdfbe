"""One run as its supervisor sees it: the processes that perform it, one after the other.

Restarts are OTP's ``transient``: a process that died without a recorded ending is started again
and goes on from the journal. How often that may happen is decided by the run itself, from its
journal, so that killing the supervisor does not reset the count.
"""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec
import trio

from actors.journal import Held, JournalError, read_events
from actors.journal_error import PAUSING
from actors.loop import deadline_reason
from actors.outcome import ORPHANED
from actors.state import State, fold
from actors.wire import (
    Ended,
    FromActor,
    Leaving,
    Refused,
    Start,
    StartChild,
    Stop,
    StopChild,
    Tell,
    Traced,
)
from supervisor.actor_log import LOG, open_log
from supervisor.burial import bury
from supervisor.oom import OomWatch
from supervisor.spawned import Exit, SpawnError
from supervisor.spawner import Spawner, ZygoteDied
from supervisor.talk import Talk

BACK_OFF_SECONDS = (0.0, 0.1, 0.5, 2.0)
STILLBORN_MAX = 3
"""Processes in a row that may die before they have opened the run."""
HELD_SECONDS_MAX = 15.0
HELD_PAUSE_SECONDS = 0.1
"""How long, and how far apart, a run is tried that a dying process still holds."""
START_SECONDS_MAX = 30.0
"""How long a process may take to read what it is to do."""

Listener = Callable[[str, bytes], None]


class Family(Protocol):
    """What a child needs of the tree that it is a part of."""

    @property
    def spawner(self) -> Spawner:
        """Makes its processes."""
        ...

    async def run_child(self, parent: "Child", frame: StartChild) -> str:
        """Run the child of a call to its end; returns why there is none, or nothing."""
        ...

    async def acked(self, child: "Child") -> None:
        """This one's ending is on record; in a Stop, returns when that of all is."""
        ...

    def heard(self, run_id: str, line: bytes, /) -> None:
        """Take a trace line."""
        ...


class Child:
    """A run and whatever process performs it now."""

    def __init__(self, family: Family, start: Start) -> None:
        self.run_id = start.run_id
        self.ref = start.ref
        """The call of its parent that it answers; nothing for a root."""
        self.below: dict[str, Child] = {}
        """Its own children under way, by the ref of the call that they answer."""
        self.last_heard = trio.current_time()
        self.refused: Refused | None = None
        """Why the run could not go on, where its journal does not say."""
        self._family = family
        self._start = start
        self._talk: Talk | None = None
        self._stop: Stop | None = None
        self._stop_asked = trio.Event()
        self._killed = False
        self._oom = OomWatch()

    @property
    def agent(self) -> str:
        """Whose run it is."""
        return self._start.spec.agent

    @property
    def pid(self) -> int | None:
        """The process that performs the run now."""
        return self._talk.process.pid if self._talk else None

    def stop(self, reason: str, who: str) -> None:
        """Ask the run and all below it to end as cancelled; the first reason counts for each."""
        for child in self.below.values():
            child.stop(reason, who)
        if self._stop is None:
            self._stop = Stop(reason, who)
            self._stop_asked.set()

    def start_below(self, child: "Child") -> None:
        """Take in a child that starts; one that comes too late shares the Stop."""
        self.below[child.ref] = child
        if self._stop:
            child.stop(self._stop.reason, self._stop.who)

    def kill(self) -> None:
        """End the process at once, without a record; the run can be resumed."""
        self._killed = True
        self._stop_asked.set()
        if self._talk:
            self._talk.process.kill()

    def tell(self, text: str, who: str) -> bool:
        """Pass a person's message on; False when no process is there to take it."""
        return self._talk is not None and self._talk.tell(Tell(text, who))

    async def run(self) -> None:
        """Perform the run until it has an ending on disk, or cannot go on (``refused``).

        A cancellation from outside stops the run first, and passes when its processes are gone.
        """
        stillborn = crashes = 0
        held_until, ours_before = math.inf, False
        start = self._start
        while not self._killed:
            if self._stop:
                start = msgspec.structs.replace(start, stop=self._stop)
            opened, last, exit_ = await self._session(start)
            ours_before = ours_before or opened
            if isinstance(last, Ended) or self._killed:
                return
            if isinstance(last, Refused):
                held_until = min(held_until, trio.current_time() + HELD_SECONDS_MAX)
                # A process of the past that still holds a child ends within its grace; and whoever
                # holds what was ours before, as a verdict does, has it for a moment.
                ours = bool(start.ref) or ours_before
                if last.kind == "wire" and not start.fail:
                    # What it says cannot be believed, so another process records its end.
                    start = msgspec.structs.replace(start, why="resume", crash="", fail=last.words)
                    continue
                passes = last.kind == "zygote" or (last.kind == Held.kind and ours)
                if not passes or trio.current_time() > held_until:
                    why = start.fail if last.kind not in PAUSING else ""
                    self.refused = Refused("crashed", why) if why else last
                    return
                await trio.sleep(HELD_PAUSE_SECONDS)
                continue
            held_until = math.inf
            if isinstance(last, Leaving):
                start = msgspec.structs.replace(start, why="resume", crash="")
                continue
            stillborn = 0 if opened else stillborn + 1
            if stillborn >= STILLBORN_MAX:
                words = f"the actor's process {exit_.words} before it had opened the run"
                words = f"{words}, {stillborn} times; see {Path(start.run_dir) / LOG}"
                if start.fail:
                    self.refused = Refused("crashed", words)
                    return
                stillborn, start = 0, msgspec.structs.replace(start, why="resume", fail=words)
                continue
            crash = f"{exit_.words}{self._oom.words(exit_, start.spec.resources)}"
            start = msgspec.structs.replace(start, why="restart", crash=crash)
            with trio.move_on_after(BACK_OFF_SECONDS[min(crashes, len(BACK_OFF_SECONDS) - 1)]):
                await self._stop_asked.wait()
            crashes += 1

    async def _session(self, start: Start) -> tuple[bool, FromActor | None, Exit]:
        """One process from its start to its burial: did it open the run, and its last frame."""
        log_fd = open_log(Path(start.run_dir))
        if isinstance(log_fd, Refused):
            return False, log_fd, Exit()
        try:
            process = await self._family.spawner.spawn("actor", start.run_id, log_fd)
        except SpawnError as error:
            kind = "zygote" if isinstance(error, ZygoteDied) else "spawn"
            return False, Refused(kind, str(error)), Exit()
        finally:
            os.close(log_fd)
        self._talk = talk = Talk(process, self.run_id)
        try:
            if self._killed:
                process.kill()
            async with trio.open_nursery() as helpers:
                helpers.start_soon(self._pass_stop_on, talk)
                with trio.move_on_after(START_SECONDS_MAX) as limit:
                    await talk.send(start)
                if limit.cancelled_caught:
                    process.kill()
                helpers.start_soon(talk.pass_tells_on)
                if start.spec.limits.deadline_seconds is not None or start.why != "start":
                    helpers.start_soon(self._keep_deadline, talk)
                if start.spec.limits.idle_seconds is not None:
                    helpers.start_soon(self._watch_idle, start.spec.limits.idle_seconds)
                await self._hear_tree(talk)
                helpers.cancel_scope.cancel()
        except BaseException:
            # A cancellation from outside leaves a nursery in a group.
            self.stop("cancelled by the program", "program")
            with trio.move_on_after(2 * start.shutdown_seconds, shield=True):
                await talk.send(Stop("cancelled by the program", "program"))
                await self._hear_tree(talk)
            raise
        finally:
            self._talk = None
            exit_ = await bury(process)
        return talk.opened.is_set(), talk.last, exit_

    async def _hear_tree(self, talk: Talk) -> None:
        """Listen to the actor's last word; then its subtree goes too, whatever the word was."""
        async with trio.open_nursery() as subtree:
            async for frame in talk.frames():
                self.last_heard = trio.current_time()
                match frame:
                    case Traced(line=line):
                        self._family.heard(self.run_id, line)
                    case StartChild():
                        talk.waiting.add(frame.ref)
                        subtree.start_soon(self._run_below, talk, frame)
                    case StopChild(ref=ref, reason=reason):
                        if ref in self.below:
                            self.below[ref].stop(reason, "parent")
                    case _:
                        pass
            # Below a run that has its ending nothing is gone on with; below one that died, all is.
            ended = isinstance(talk.last, Ended)
            why = ("its parent has ended", "parent") if ended else ("its parent is gone", ORPHANED)
            for child in self.below.values():
                child.stop(*why)
            if ended:
                await self._family.acked(self)

    async def _run_below(self, talk: Talk, frame: StartChild) -> None:
        refused = await self._family.run_child(self, frame)
        if self._stop:
            # Known before the child's end is, or the actor would go on from that.
            await talk.send(self._stop)
        await talk.tell_ended(frame.ref, refused)

    async def tell_ended(self, ref: str) -> None:
        """Tell the actor that the ending of a child is on record; its process may still be there.

        It can go on from there, and in a Stop it must not wait for who waits for it.
        """
        if self._talk:
            await self._talk.tell_ended(ref)

    async def _pass_stop_on(self, talk: Talk) -> None:
        """Phase one of a Stop; whoever does not answer it in time is killed."""
        await self._stop_asked.wait()
        if self._stop and not self._killed:
            # Whoever is frozen reads nothing, so the sending is part of the time.
            with trio.move_on_after(self._start.shutdown_seconds):
                await talk.send(self._stop)
                await trio.sleep_forever()
            if isinstance(talk.last, Ended):
                return
        talk.process.kill()

    async def _keep_deadline(self, talk: Talk) -> None:
        """Stop a run at its deadline, which its own process cannot while a tool blocks it."""
        await talk.opened.wait()
        # What was worked before, and a limit that was raised, stand in the journal alone.
        state = await trio.to_thread.run_sync(_state_of, self._start)
        limit = state.limits.deadline_seconds
        if limit is not None:
            await trio.sleep(max(0.0, limit - state.head.active_seconds))
            for child in self.below.values():
                child.stop("its parent has reached its deadline", "parent")
            self.stop(deadline_reason(limit), "deadline")

    async def _watch_idle(self, idle_seconds: float) -> None:
        """Stop a run of which, and of whose children, nothing is heard any more."""
        # What there is to wait for moves on with every word that is heard.
        while (until := self.latest() + idle_seconds) > trio.current_time():  # noqa: ASYNC110
            await trio.sleep_until(until)
        self.stop(f"no progress for {idle_seconds:g} s", "idle")

    def latest(self) -> float:
        """When the run or one below it was last heard of, in trio's time."""
        return max([self.last_heard, *(child.latest() for child in self.below.values())])


def _state_of(start: Start) -> State:
    """The state that a run's journal has; where that cannot be read, one with its first limits."""
    try:
        return fold(read_events(Path(start.run_dir)))
    except JournalError:
        return State(limits=start.spec.limits)
