"""A Stop and a person's verdict are as durable as everything else."""

import random

import pytest
import trio
from ground import Ground, Subject
from plans import KILL_POINTS, SEED, Plan, perform
from workers import Worker, run_all

from actors.outcome import Cancelled, InDoubt, Status
from actors.testing.dying_fs import DyingFs
from actors.verdict import Verdict, record_verdict

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
    # Where the disk is not synced there is less to see, so every other step will do.
    step = 1 if durability == "power" or KILL_POINTS > 500 else 2
    plans = [
        *(Plan("sanction", durability, "resume", (kill,)) for kill in range(1, asking + 1, step)),
        # One step too far: the first life ends by itself, and the second is killed.
        *(
            Plan("sanction", durability, "restart", (asking + 1, kill))
            for kill in range(1, acting + 1, step)
        ),
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


def test_a_verdict_that_says_run_again_is_used_once(ground: Ground):
    """When the process dies in that run too, the call is in doubt again."""
    subject = ground.new_run("sanction", "power")
    subject.live()
    subject.answer("2.0", "approve")
    subject.live("tool:demolish:after")
    for word in ("run_again", "done"):
        end = subject.until_ended()
        assert end.outcome
        assert isinstance(end.outcome.interruption, InDoubt)
        subject.answer("2.0", word)
        if word == "run_again":
            subject.live("tool:demolish:after")
    subject.until_ended()
    state = subject.check(like=False)
    assert state.outcome
    assert state.outcome.status is Status.COMPLETED
    assert len([e for e in subject.evidence().effects if e.kind == "write"]) == 2


def test_a_verdict_is_recorded_whole_or_not_at_all(ground: Ground):
    """Whoever records it may be killed at any step; it is given again, and counts once."""
    verdict = Verdict(ref="2.0", yes=True, who="tester")
    steps, died = 0, True
    while died:
        steps += 1
        subject = ground.new_run("sanction", "power")
        subject.live()
        died = _record_and_die(subject, verdict, steps)
        trio.run(record_verdict, subject.run_dir, verdict)
        subject.until_ended()
        state = subject.check()
        assert state.outcome
        assert state.outcome.status is Status.COMPLETED
        subject.remove()
    assert steps > 8


def _record_and_die(subject: Subject, verdict: Verdict, step: int) -> bool:
    def record() -> str:
        return str(trio.run(record_verdict, subject.run_dir, verdict, DyingFs(step)))

    words = Worker(record).wait(10.0)
    assert words in ("True", "a worker died: 9 "), words
    return words != "True"
