"""One budget for a tree: what its children may spend, checked against the provider's own ledger."""

from typing import Any

import pytest
from grove import Grove, ask, echo, fan, played

from actors.spec import LimitChange
from actors.testing.scripts import Call, Conversation, Say

NUSD = 1e9
RUNAWAY = [Call("list_files")]
SHORT = "max_output_tokens = 40"
"""So that the worst case of a turn is small beside the budgets of these tests."""


def usd(amount: float) -> int:
    return round(amount * NUSD)


def check_sums(grove: Grove, *, crashed: bool = False) -> None:
    """Each run's record is what was billed for it, and each parent holds its children's sums."""
    for run_id in grove.runs():
        state = grove.state(run_id)
        billed = grove.billed_nusd(run_id)
        assert state.head.cost_nusd <= billed <= state.head.cost_nusd + state.head.maybe_nusd
        assert crashed or state.head.cost_nusd == billed
        below = [one for one in grove.runs() if one.rpartition(".")[0].rpartition(".")[0] == run_id]
        assert state.head.children_nusd == sum(grove.state(one).spent_nusd for one in below)
        started = [call for turn in state.turns for call in turn.calls if call.is_child]
        assert {f"{run_id}.{call.ref}" for call in started} == set(below)


def worst_turn(grove: Grove) -> int:
    """The dearest turn of all that were billed, in 1e-9 USD."""
    return max(2000 * b["input_tokens"] + 12000 * b["output_tokens"] for b in grove.bills())


@pytest.mark.parametrize(
    "many", [1, 8, pytest.param(64, marks=pytest.mark.slow)], ids=lambda many: f"{many} children"
)
@pytest.mark.parametrize("strict", [True, False], ids=["strict", "lenient"])
@played
async def test_children_that_run_away_stay_within_the_roots_budget(
    grove: Grove, many: int, strict: bool
) -> None:
    """A lenient budget is overshot by one turn of each run that was under way, a strict by none."""
    budget = 0.03 + 0.006 * many
    grove.family(
        many,
        RUNAWAY,
        "list_files",
        strict_budget=strict,
        lead_strict_budget=strict,
        lead_max_budget_usd=budget,
        lead_max_children=64,
        lead_children_at_once=16,
    )
    report = await grove.run(provider="max_output_tokens = 2000")
    billed = grove.billed_nusd()
    assert billed <= usd(budget) + (0 if strict else (1 + many) * worst_turn(grove))
    assert billed > usd(0.002) * many
    assert all(child.status == "budget_exceeded" for child in report.children)
    assert len(report.children) == many
    check_sums(grove)


@played
async def test_a_runaway_child_cannot_spend_its_parents_budget(grove: Grove) -> None:
    """Its own limit is what is reserved for it; the parent answers with what it found."""
    grove.family(1, RUNAWAY, "list_files", max_budget_usd=0.002, lead_max_budget_usd=0.1)
    report = await grove.run(provider=SHORT)
    assert report.status == "completed"
    assert report.output
    assert report.output.startswith("budget_exceeded after ")
    assert "findings so far:\nlist_files gave: access.log" in report.output
    assert grove.billed_nusd("r1.1.0") <= usd(0.002)
    (call,) = grove.state("r1").turns[0].calls
    assert call.reserve_nusd == usd(0.002)
    check_sums(grove)


@played
async def test_grandchildren_draw_on_the_same_budget(grove: Grove) -> None:
    """A limit bounds the run itself and everything below it."""
    grove.chain(RUNAWAY, "list_files", lead_max_budget_usd=0.01)
    await grove.run(provider=SHORT)
    assert grove.billed_nusd() <= usd(0.01)
    root, middle, leaf = (grove.state(run_id) for run_id in grove.runs())
    assert root.limits.max_budget_nusd == usd(0.01)
    assert middle.limits.max_budget_nusd
    assert leaf.limits.max_budget_nusd
    assert usd(0.01) > middle.limits.max_budget_nusd > leaf.limits.max_budget_nusd
    check_sums(grove)


@played
async def test_what_a_child_does_not_spend_is_there_for_the_next(grove: Grove) -> None:
    """Shares are of what is left when a child starts, so a cheap one leaves more to those after."""
    grove.family(3, echo, lead_max_budget_usd=0.03, lead_children_at_once=1)
    await grove.run(provider=SHORT)
    first, second, third = (call.reserve_nusd for call in grove.state("r1").turns[0].calls)
    assert usd(0.009) < first < usd(0.010)
    assert usd(0.013) < second < usd(0.015)
    assert usd(0.026) < third < usd(0.030)
    check_sums(grove)


@played
async def test_children_at_once_share_what_is_left(grove: Grove) -> None:
    """What is reserved for all of them together is never more than there is."""
    grove.family(4, [Call("pause"), Say("done")], "pause", lead_max_budget_usd=0.02)

    async def act() -> None:
        await grove.heard("tool_progress", times=4)
        state = grove.state("r1")
        reserves = [call.reserve_nusd for call in state.pending]
        assert len(set(reserves)) == 1
        assert state.spent_nusd <= usd(0.02)
        grove.go()

    await grove.beside(act, provider=SHORT)
    check_sums(grove)


@played
async def test_without_a_budget_nothing_is_reserved(grove: Grove) -> None:
    grove.family(2, echo)
    report = await grove.run()
    assert report.status == "completed"
    assert [call.reserve_nusd for call in grove.state("r1").turns[0].calls] == [0, 0]
    assert grove.state("r1.1.0").limits.max_budget_nusd is None
    check_sums(grove)


@played
async def test_no_child_starts_when_nothing_is_left(grove: Grove) -> None:
    """The refusal is a result in words, and no directory is made."""

    def lead(heard: Conversation) -> Any:
        return ask("more") if heard.turn else fan(1)(heard)

    grove.agent("lead", lead, "research", max_budget_usd=0.0020, strict_budget=False)
    grove.agent("researcher", RUNAWAY, "list_files", strict_budget=False)
    grove.behind(research="researcher")
    report = await grove.run(provider=SHORT)
    assert report.status == "budget_exceeded"
    assert grove.billed_nusd() <= usd(0.0020) + 2 * worst_turn(grove)
    check_sums(grove)


@played
async def test_limits_hold_over_a_resume_until_they_are_raised(grove: Grove) -> None:
    """A resume alone brings not one turn more; a raised budget is the tree's from then on."""

    def lead(heard: Conversation) -> Any:
        return ask(f"question {heard.turn}")

    grove.agent("lead", lead, "research", max_budget_usd=0.01)
    grove.agent("researcher", RUNAWAY, "list_files", max_budget_usd=0.004)
    grove.behind(research="researcher")
    report = await grove.run(provider=SHORT)
    assert report.status == "budget_exceeded"
    billed = grove.billed_nusd()
    assert usd(0.005) < billed <= usd(0.01)

    again = await grove.another().resume("r1")
    assert again.status == "budget_exceeded"
    assert grove.billed_nusd() == billed

    raised = await grove.another().resume("r1", LimitChange(max_budget_nusd=usd(0.02)))
    assert raised.status == "budget_exceeded"
    assert usd(0.014) < grove.billed_nusd() <= usd(0.02)
    assert raised.interruption["max_budget_usd"] == 0.02
    assert usd(raised.interruption["children_usd"]) == grove.state("r1").head.children_nusd > 0
    check_sums(grove)


@played
async def test_a_stopped_tree_knows_what_its_children_spent(grove: Grove) -> None:
    """A request in flight counts with its worst case, in the child as in its parents."""
    grove.chain([Call("list_files"), Call("dawdle")], "list_files", "dawdle")

    async def act() -> None:
        await grove.heard("tool_progress")
        grove.supervisor.stop("lunch")

    await grove.beside(act)
    check_sums(grove)
    await grove.another().resume("r1")
    check_sums(grove)


@played
async def test_a_killed_tree_knows_what_its_children_spent(grove: Grove) -> None:
    """After the resume of a tree whose every process was killed, to the last nano-dollar."""
    grove.family(3, [Call("pause"), Say("done")], "pause", lead_max_budget_usd=0.1)

    async def act() -> None:
        await grove.heard("tool_progress", times=3)
        grove.supervisor.kill()

    await grove.beside(act)
    grove.go()
    report = await grove.another().resume("r1")
    assert report.status == "completed"
    assert report.tree.possibly_spent_usd == 0
    check_sums(grove)
