"""A run survives kill -9 at any step: all of them one by one, then three in a row by chance."""

import random

import pytest
from ground import Ground
from plans import KILL_POINTS, SEED, Plan
from workers import run_all

pytestmark = pytest.mark.chaos

HERE = "tests/chaos/test_kills.py"
DURABILITIES = ("power", "process")


def _steps(ground: Ground, script: str, durability: str) -> int:
    subject = ground.new_run(script, durability)
    end = subject.live()
    assert end.outcome
    subject.remove()
    return len(end.steps)


def test_every_step_can_be_the_last(ground: Ground):
    """Whichever step the process dies at, a resume brings the run to its answer, all told."""
    rng = random.Random(SEED)
    plans = [
        Plan("errand", durability, ("resume", "restart")[(step + SEED) % 2], (step,))
        for durability in DURABILITIES
        for step in range(1, _steps(ground, "errand", durability) + 1)
    ]
    if len(plans) > KILL_POINTS:
        plans = rng.sample(plans, KILL_POINTS)
    run_all(ground, plans, f"{HERE}::test_every_step_can_be_the_last")


def test_three_kills_in_a_row_are_survived(ground: Ground):
    """A resume may be killed, and the resume of that one too."""
    rng = random.Random(SEED + 1)
    totals = {durability: _steps(ground, "errand", durability) for durability in DURABILITIES}
    plans: list[Plan] = []
    for _ in range(max(20, KILL_POINTS - sum(totals.values()))):
        durability = rng.choice(DURABILITIES)
        total = totals[durability]
        first = rng.randint(1, total)
        second = rng.randint(1, total - first + 12)
        third = rng.randint(1, max(13, total - first - second + 12))
        why = rng.choice(("resume", "restart"))
        plans.append(Plan("errand", durability, why, (first, second, third)))
    run_all(ground, plans, f"{HERE}::test_three_kills_in_a_row_are_survived")
