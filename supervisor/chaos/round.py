"""One round: a tree is started, struck as its plan says, gone on with to its end, and checked."""

import os
import signal
import time
import traceback
from collections.abc import Collection

import msgspec
import trio

from actors.messages import Nature
from actors.outcome import Approval, InDoubt, Interruption
from actors.verdict import Verdict, VerdictRefused, record_verdict
from supervisor.chaos import culprit
from supervisor.chaos.check import check_tree
from supervisor.chaos.compare import Unlike
from supervisor.chaos.ended import Ended
from supervisor.chaos.gate import Gate, reached
from supervisor.chaos.life import (
    Life,
    begin,
    kill_left_behind,
    left_behind,
    name_of,
    send,
)
from supervisor.chaos.plan import (
    FREEZE,
    KILL,
    SUPERVISOR,
    TREE,
    ZYGOTE,
    Lure,
    Plan,
    Strike,
)
from supervisor.chaos.trap import Trap
from supervisor.chaos.victims import find
from supervisor.chaos.world import Home, World
from supervisor.report import Report
from supervisor.state_dir import StateDir

LIVES_MAX = 40
"""Supervisors of one round: one after each kill, and one after each verdict."""
ROUND_SECONDS_MAX = 120.0
GONE_SECONDS = 8.0
"""How long after its supervisor the last process of a tree may go."""
UNSWEPT_SECONDS = 0.5
KILLED_SECONDS = 2.0
FROZEN_SECONDS = 0.15
_POLL_SECONDS = 0.0005
_IDLE_SECONDS = 0.05


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a plan; ``failure`` is empty where every promise was kept."""

    plan: str
    struck: int = 0
    """Strikes whose boundary was reached while their victims were there."""
    lives: int = 0
    seconds: float = 0.0
    status: str = ""
    failure: str = ""
    charges: tuple[Lure, ...] = ()
    """Which tools may be behind the failure, and how; none when it is our own doing."""
    doubts: tuple[str, ...] = ()
    """Tools of which a call was left in doubt."""
    again: tuple[str, ...] = ()
    """Tools of which a call was run again."""
    natures: dict[str, Nature] = {}
    short: tuple[str, ...] = ()
    unstarted: bool = False
    """The failure says why there is no run; whoever wrote the configuration must act."""


class Unstarted(AssertionError):
    """A tree was refused before there was a run, as its configuration is wrong."""


class Stuck(AssertionError):
    """A tree did not end, or ended in a way that it never should."""


def perform(
    world: World,
    plan: Plan,
    name: str,
    reference: Ended | None = None,
    varying: Collection[str] = (),
    *,
    keep: bool = False,
) -> Round:
    """Perform a plan and check every promise; whatever fails stands in the Round.

    The calling process adopts orphans and has no other children. The folder of a round that kept
    its promises is removed, unless ``keep``.
    """
    started = time.monotonic()
    home = Home(world, name)
    under_way = UnderWay(home, plan)
    ended, failure, charges, unstarted = None, "", (), False
    try:
        under_way.to_the_end()
        ended = check_tree(home, under_way.kills + world.crashes, reference, varying)
    except Unlike as broken:
        failure, ended, charges = str(broken), broken.ended, broken.charges
    except AssertionError as broken:
        failure, unstarted = str(broken), isinstance(broken, Unstarted)
    except Exception:  # whatever a broken tree makes the checks meet is told, and not raised
        failure = traceback.format_exc()
    finally:
        kill_left_behind(KILLED_SECONDS)
    if not failure and not keep:
        home.remove()
    return Round(
        plan=str(plan),
        struck=under_way.struck,
        lives=under_way.lives,
        seconds=round(time.monotonic() - started, 3),
        status=ended.status if ended else "",
        failure=failure,
        charges=charges,
        doubts=ended.doubts if ended else (),
        again=ended.again if ended else (),
        natures=ended.natures if ended else {},
        short=ended.short if ended else (),
        unstarted=unstarted,
    )


class UnderWay:
    """A tree, the supervisors it has had, and the strikes that are still to come."""

    def __init__(self, home: Home, plan: Plan) -> None:
        self.lives = 0
        self._struck = self._kills = 0
        self._home = home
        self._trap = Trap(plan.lure) if plan.lure else None
        self._gate = Gate(home, plan.strikes)
        self._past = 0
        """How many strikes are done with."""
        self._config = home.make(timeless=bool(plan.strikes or plan.lure))
        self._state_dir = StateDir(home.state_dir)
        self._strikes = plan.strikes
        self._look_at = 0.0
        self._deadline = time.monotonic() + ROUND_SECONDS_MAX
        self._killed: set[str] = set()
        """Who was killed in the present life."""
        self._unswept = False
        """Supervisor and zygote of one life were killed, so nobody may have swept their tools."""

    @property
    def struck(self) -> int:
        """Strikes that met their victims."""
        return self._struck + self._sprung

    @property
    def kills(self) -> int:
        """How often processes were killed."""
        return self._kills + self._sprung

    @property
    def _sprung(self) -> bool:
        return bool(self._trap and self._trap.sprung)

    def to_the_end(self) -> Report:
        """Go on until the root has an ending that no resume changes; raises Stuck."""
        for _ in range(LIVES_MAX):
            started = self._home.state_dir.exists()
            life = begin(
                self._home.state_dir,
                self._home.run_id,
                None if started else self._config,
                self._prepare,
                1 + sum(ZYGOTE in strike.victims for strike in self._strikes[self._past :]),
            )
            self.lives += 1
            self._killed.clear()
            self._unswept = False
            self._watch(life)
            self._clear_up()
            end = life.end
            if end is None:
                continue
            if end.error:
                raise Stuck(f"the supervisor failed: {end.error}")
            if end.refused:
                raise (
                    Stuck(f"a resume was refused: {end.refused}")
                    if started
                    else Unstarted(end.refused)
                )
            if end.report and self._has_ended(end.report):
                return end.report
        raise Stuck(f"the tree has not ended after {LIVES_MAX} supervisors")

    def _prepare(self) -> None:
        self._home.prepare()
        self._gate.set()
        if self._trap:
            self._trap.set()

    def _has_ended(self, found: Report) -> bool:
        if found.status is None:
            return False
        outcome = self._state_dir.state(self._home.run_id).outcome
        if outcome is None:
            return False  # It could not be recorded, on a full disk for instance.
        why = outcome.interruption
        if isinstance(why, Approval | InDoubt):
            self._answer(why)
            return False
        return not (self.kills or self._home.world.crashes) or not (
            found.status == "interrupted" and found.interruption.get("who") == "orphaned"
        )

    def _answer(self, why: Interruption) -> None:
        """Say yes to whatever waits, in whichever run: the person is not what is tried here."""
        assert isinstance(why, Approval | InDoubt)
        waiting = why.pending if isinstance(why, Approval) and why.pending else (why,)
        for call in waiting:
            happened = True if isinstance(why, InDoubt) else None
            verdict = Verdict(ref=call.call, yes=True, who="chaos", happened=happened)
            try:
                trio.run(record_verdict, self._state_dir.run_dir(call.run_id), verdict)
            except VerdictRefused as refused:
                raise Stuck(f"a verdict was refused: {refused}") from refused

    def _clear_up(self) -> None:
        """After a supervisor: everything of its tree must go, all by itself."""
        left = left_behind(UNSWEPT_SECONDS if self._unswept else GONE_SECONDS)
        if self._unswept and left:
            # Tools alone; the next process of their run waits for them, and names them to a person.
            kill_left_behind(KILLED_SECONDS)
        elif left:
            names = ", ".join(f"{pid} ({name_of(pid)})" for pid in left)
            words = f"orphans: {names} were there {GONE_SECONDS:g} s after their supervisor"
            raise Stuck(f"{words}, begun by {culprit.left(self._home, left) or 'no tool'}")

    def _watch(self, life: Life) -> None:
        """Listen to a life to its end, and strike where the plan says."""
        while not life.over:
            if time.monotonic() > self._deadline:
                os.kill(life.pid, signal.SIGKILL)
                busy = culprit.under_way(self._home) or "no tool"
                words = f"the tree has not ended within {ROUND_SECONDS_MAX:g} s"
                raise Stuck(f"{words}; under way was {busy}")
            if self._past == len(self._strikes):
                life.listen(_IDLE_SECONDS)
                continue
            strike = self._strikes[self._past]
            life.listen(_POLL_SECONDS)
            if not life.over and self._reached(strike):
                if strike.delay_ms:
                    self._gate.open(self._past)
                    self._wait(life, strike.delay_ms / 1000)
                # Where nobody is to be struck yet, as in a resume, they may still come.
                if not life.over and self._strike(life, strike):
                    self._gate.open(self._past)
                    self._past += 1

    def _reached(self, strike: Strike) -> bool:
        """Its boundary; of one that another life has passed, only the files tell, now and then."""
        if self._gate.holds(self._past):
            return True
        if time.monotonic() < self._look_at:
            return False
        self._look_at = time.monotonic() + _IDLE_SECONDS
        return reached(self._state_dir, self._home.full(strike.boundary.run), strike.boundary)

    def _wait(self, life: Life, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not life.over:
            life.listen(left)

    def _strike(self, life: Life, strike: Strike) -> bool:
        """Strike the victims that are there; False when there are none."""
        victims = {word: find(self._home, life, strike, word) for word in strike.victims}
        pids = list(dict.fromkeys(pid for found in victims.values() for pid in found))
        if not pids:
            return False
        self._struck += 1
        if strike.action != KILL:
            send(pids, signal.SIGSTOP)
            self._wait(life, FROZEN_SECONDS)
        if strike.action == FREEZE:
            send(pids, signal.SIGCONT)
            return True
        self._kills += 1
        self._killed |= {word for word, found in victims.items() if found}
        # Of a whole tree too: a tool that starts just now is not among those that were found.
        if self._killed & {TREE} or self._killed >= {SUPERVISOR, ZYGOTE}:
            self._unswept = True
        send(pids, signal.SIGKILL)
        return True
