"""A tree survives the death of any of its processes, at any boundary, alone or together."""

import random

import pytest
from forest import POINTS, SEED, strike_all

from supervisor.chaos.plan import draw, every, parse
from supervisor.chaos.session import Session

pytestmark = pytest.mark.chaos

HERE = "tests/chaos_tree/test_strikes.py"


def test_whoever_dies_at_whichever_boundary(tree: Session):
    """Actor, parent, zygote, supervisor, two at once, all: the tree comes to the same answer."""
    plans = every(tree.boundaries)
    wanted = POINTS * 3 // 5
    if len(plans) > wanted:
        plans = random.Random(SEED).sample(plans, wanted)
    rounds = strike_all(tree, plans, f"{HERE}::test_whoever_dies_at_whichever_boundary")
    # A boundary at the very end may find its victims gone; nearly all others must have been hit.
    assert sum(one.struck > 0 for one in rounds) > len(rounds) * 0.75


def test_strikes_by_chance(tree: Session):
    """SIGKILL, SIGSTOP and both, a little later than a boundary, and a resume struck as well."""
    wanted = max(POINTS - POINTS * 3 // 5, POINTS - len(every(tree.boundaries)))
    plans = draw(tree.boundaries, wanted, random.Random(SEED + 1))
    rounds = strike_all(tree, plans, f"{HERE}::test_strikes_by_chance")
    assert sum(one.struck > 0 for one in rounds) > len(rounds) * 0.75


@pytest.mark.parametrize("when", ["repeat", "behind"])
@pytest.mark.parametrize("tool", ["look", "survey", "put", "pay"])
def test_a_tool_is_cut_off_at_its_worst_moments(tree: Session, when: str, tool: str):
    """Before its answer is saved and right after: what its flag promises is what happens."""
    (one,) = strike_all(
        tree, [parse(f"{when}/{tool}")], f"{HERE}::test_a_tool_is_cut_off_at_its_worst_moments"
    )
    assert one.struck == 1
    doubted = when == "repeat" and tool == "put"
    assert one.doubts == (("put",) if doubted else ())
    assert (tool in one.again) == (when == "repeat" and not doubted)
