"""A tree of runs survives the death of all its processes at once, at any step of any of them."""

import random

import pytest
from ground import Ground
from plans import KILL_POINTS, SEED, Plan
from workers import run_all

from actors.outcome import Status
from actors.state import State
from actors.testing.checker import check_children
from actors.testing.evidence import Broken

pytestmark = pytest.mark.chaos

HERE = "tests/chaos/test_children.py"
REFS = ("2.0", "2.1")


def _perform(ground: Ground, plan: Plan) -> State:
    subject = ground.new_run("delegating", plan.durability)
    subject.why = plan.why
    for number, kill in enumerate(plan.kills):
        subject.live(kill, stop_at=plan.stop_at if number == 0 and plan.stop_at else None)
    subject.until_ended()
    if subject.ends[-1].outcome and plan.stop_at:
        # What the stopped children spent is settled by the next one that opens their parent.
        subject.until_ended()
    state = subject.check(like=not plan.stop_at)
    subject.check_children(state, like=not plan.stop_at, ended=not plan.stop_at)
    assert state.outcome
    assert state.outcome.status is Status.COMPLETED or plan.stop_at, state.outcome.reason
    subject.remove()
    return state


def test_a_tree_can_die_at_any_step(ground: Ground):
    """Children that have ended are not asked again, others go on from their own journals."""
    rng = random.Random(SEED + 6)
    subject = ground.new_run("delegating", "power")
    total = len(subject.live().steps)
    steps = rng.sample(range(1, total + 1), min(total, max(30, KILL_POINTS // 10)))
    plans = [Plan("delegating", "power", "resume", (step,)) for step in sorted(steps)]
    for _ in range(max(10, KILL_POINTS // 40)):
        kills = (rng.randint(1, total), rng.randint(1, total // 2))
        plans.append(Plan("delegating", rng.choice(("power", "process")), "restart", kills))
    run_all(ground, plans, f"{HERE}::test_a_tree_can_die_at_any_step", _perform)


def test_a_tree_that_is_stopped_can_die_too(ground: Ground):
    """The Stop of the parent holds for its children, and their money is known in the end."""
    rng = random.Random(SEED + 7)
    subject = ground.new_run("delegating", "power")
    total = len(subject.live().steps)
    plans: list[Plan] = []
    for _ in range(max(10, KILL_POINTS // 40)):
        stop_at = rng.randint(1, total - 1)
        kills = rng.choice(((), (stop_at + rng.randint(0, 30),)))
        plans.append(Plan("delegating", "power", "resume", kills or (10**6,), stop_at))
    run_all(ground, plans, f"{HERE}::test_a_tree_that_is_stopped_can_die_too", _perform)


def test_a_child_that_its_parent_does_not_know_is_noticed(ground: Ground):
    """The checker itself is checked: a stray child, and money counted twice."""
    subject = ground.new_run("delegating", "process")
    subject.live()
    state = subject.check()
    children = {ref: subject.child(ref).check() for ref in REFS}
    evidence = subject.evidence()
    check_children(evidence, state, children)
    children["2.1"].head.cost_nusd += 1
    with pytest.raises(Broken, match="its parent has"):
        check_children(evidence, state, children)
    (subject.run_dir.parent / f"{subject.run_dir.name}.3.0").mkdir()
    with pytest.raises(Broken, match="never asked for"):
        check_children(evidence, state, children)
