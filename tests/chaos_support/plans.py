"""Plans: where the lives of one run die, in a form that a person can type to see it again.

``errand/power/resume/17,5,30`` performs the errands with durability ``power``, kills the first
life at step 17, the second (``why`` it was opened: resume) at its step 5, the third at 30, and
then lets the run end. ``/stop=9`` asks for a Stop at step 9 of the first life.
"""

import os
import random

import msgspec
from ground import Ground, Prepare, Subject

from actors.outcome import Approval, InDoubt, Status
from actors.state import State

KILL_POINTS = int(os.environ.get("EXEUNT_KILL_POINTS", "500"))
SEED = int(os.environ.get("EXEUNT_SEED") or random.SystemRandom().randrange(1 << 32))
PLAN = os.environ.get("EXEUNT_PLAN")
"""One plan to be performed instead of all."""


class Plan(msgspec.Struct, frozen=True):
    script: str
    durability: str
    why: str
    kills: tuple[int, ...]
    stop_at: int = 0

    def __str__(self) -> str:
        kills = ",".join(map(str, self.kills))
        stop = f"/stop={self.stop_at}" if self.stop_at else ""
        return f"{self.script}/{self.durability}/{self.why}/{kills}{stop}"


def parse(text: str) -> Plan:
    script, durability, why, kills, *stop = text.split("/")
    stop_at = int(stop[0].removeprefix("stop=")) if stop else 0
    numbers = tuple(int(number) for number in kills.split(",") if number)
    return Plan(script, durability, why, numbers, stop_at)


def perform(ground: Ground, plan: Plan, prepare: Prepare | None = None) -> State:
    """Perform a plan and check every promise; raises AssertionError with what was broken."""
    subject = ground.new_run(plan.script, plan.durability)
    subject.prepare = prepare
    subject.why = plan.why
    for number, kill in enumerate(plan.kills):
        stop_at = plan.stop_at if number == 0 else 0
        if subject.live(kill, stop_at=stop_at or None).outcome:
            break
    state = _to_the_end(subject)
    if plan.stop_at and state.outcome and state.outcome.status is Status.INTERRUPTED:
        # What was stopped can be gone on with, and comes to the same.
        subject.until_ended()
        state = subject.check()
    assert state.outcome
    assert state.outcome.status is Status.COMPLETED or len(plan.kills) > 2, state.outcome.reason
    subject.remove()
    return state


def _to_the_end(subject: Subject) -> State:
    subject.until_ended()
    state = subject.check()
    # A person answers what the run waits for; the verdict itself follows from the run's number.
    while state.outcome and isinstance(state.outcome.interruption, Approval | InDoubt):
        waiting = state.outcome.interruption
        verdict = "approve" if isinstance(waiting, Approval) else "done"
        subject.answer(waiting.call, verdict)
        subject.until_ended()
        state = subject.check(like=False)
    return state
