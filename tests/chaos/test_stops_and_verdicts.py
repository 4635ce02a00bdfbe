"""A Stop and a person's verdict are as durable as everything else."""

import random

import pytest
from ground import Ground
from plans import KILL_POINTS, SEED, Plan, perform
from workers import run_all

from actors.outcome import Cancelled, InDoubt, Status

pytestmark = pytest.mark.chaos

HERE = "tests/chaos/test_stops_and_verdicts.py"
STEPS_OF_AN_ENDING = 20


def test_a_stop_outlives_a_kill(ground: Ground):
    """Once a Stop is written the run ends as cancelled, whenever the process dies after it."""
    rng = random.Random(SEED + 2)
    subject = ground.new_run("errand", "power")
    total = len(subject.live().steps)
    plans: list[Plan] = []
    for _ in range(max(30, KILL_POINTS // 10)):
        stop_at = rng.randint(1, total - 1)
        kill = stop_at + rng.randint(0, STEPS_OF_AN_ENDING)
        durability = rng.choice(("power", "process"))
        plans.append(Plan("errand", durability, "resume", (kill,), stop_at))
    run_all(ground, plans, f"{HERE}::test_a_stop_outlives_a_kill")


def test_a_stop_before_the_run_is_open_counts(ground: Ground):
    """Asked for while the journal is being opened, it is written as soon as that can be."""
    subject = ground.new_run("errand", "power")
    end = subject.live(stop_at=1)
    assert end.outcome
    assert end.outcome.interruption == Cancelled("asked for by a test", "tester")
    assert not subject.evidence().bills
    subject.check()


@pytest.mark.parametrize("durability", ["power", "process"])
def test_an_approved_call_is_run_at_most_once(ground: Ground, durability: str):
    """Killed anywhere on the way to the question, or between the verdict and the answer."""
    subject = ground.new_run("sanction", durability)
    asking = len(subject.live().steps)
    subject.answer("2.0", "approve")
    acting = len(subject.live().steps)
    assert subject.check().outcome
    plans = [
        *(Plan("sanction", durability, "resume", (kill,)) for kill in range(1, asking + 1)),
        # One step too far: the first life ends by itself, and the second is killed.
        *(Plan("sanction", durability, "restart", (asking + 1, k)) for k in range(1, acting + 1)),
    ]
    test = f"{HERE}::test_an_approved_call_is_run_at_most_once[{durability}]"
    run_all(ground, plans, test, _perform_with_verdict)


def _perform_with_verdict(ground: Ground, plan: Plan) -> None:
    if len(plan.kills) == 1:
        assert perform(ground, plan).outcome
        return
    subject = ground.new_run("sanction", plan.durability)
    subject.why = plan.why
    subject.live()
    subject.answer("2.0", "approve")
    subject.live(plan.kills[1])
    subject.until_ended()
    state = subject.check()
    assert state.outcome
    if isinstance(state.outcome.interruption, InDoubt):
        # Killed while it ran: nobody but a person knows.
        happened = bool([e for e in subject.evidence().effects if e.kind == "write"])
        verdict = "done" if happened else "run_again"
        subject.answer("2.0", verdict)
        subject.until_ended()
        state = subject.check(like=False)
        assert state.outcome
    assert state.outcome.status is Status.COMPLETED, state.outcome
    assert len([e for e in subject.evidence().effects if e.kind == "write"]) == 1
    subject.remove()


def test_a_rejected_call_is_never_run(ground: Ground):
    """Whatever is killed after the verdict."""
    subject = ground.new_run("sanction", "power")
    subject.live()
    subject.answer("2.0", "reject")
    subject.live("model:before")
    subject.until_ended()
    state = subject.check(like=False)
    assert state.outcome
    assert state.outcome.status is Status.COMPLETED
    assert not [e for e in subject.evidence().effects if e.kind == "write"]
