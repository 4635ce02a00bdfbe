"""The report of a tree adds up what its runs say, each in its own journal."""

import shutil

import pytest
from grove import Grove, echo, played

from supervisor.report import tree_report


@played
async def test_a_tree_is_summed_over_all_generations(grove: Grove) -> None:
    """Turns, tool runs and money of a run's tree are its own and those of everything below it."""
    grove.chain(echo)
    report = await grove.run()
    (middle,) = report.children
    (leaf,) = middle.children
    assert leaf.children == ()
    assert (leaf.tree.runs, middle.tree.runs, report.tree.runs) == (1, 2, 3)
    for above, below in ((report, middle), (middle, leaf)):
        assert above.tree.turns == above.turns + below.tree.turns
        assert above.tree.tool_runs == above.tool_runs + below.tree.tool_runs
        assert above.tree.cost_usd == pytest.approx(above.cost_usd + below.tree.cost_usd, abs=1e-9)
    assert leaf.cost_usd > 0


@played
async def test_what_was_spent_below_a_run_that_is_gone_still_counts(grove: Grove) -> None:
    """Without the directory of the run between, its children are reported below the next one."""
    grove.chain(echo)
    whole = await grove.run()
    state_dir = grove.supervisor.state_dir
    shutil.rmtree(state_dir.run_dir("r1.1.0"))
    report = tree_report(state_dir, "r1")
    assert [child.run_id for child in report.children] == ["r1.1.0.1.0"]
    assert report.tree.runs == 2
    lost = whole.children[0].cost_usd
    assert report.tree.cost_usd == pytest.approx(whole.tree.cost_usd - lost, abs=1e-9)
