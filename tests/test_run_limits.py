"""Limits of whole runs: turns, money, time, tokens, and conditions of one's own."""

from collections.abc import Callable

import pytest
import trio
from world import World, usd

from actors import tool
from actors.outcome import Cancelled, MaxBudget, MaxTurns, Outcome, Status
from actors.spec import LimitChange
from actors.state import State
from actors.testing.scripts import Call, Say

MakeWorld = Callable[[], World]
LIST = Call("list_files")


async def test_runaway_stops_at_the_turn_cap(world: World) -> None:
    """Checked before the model is asked: eight replies, not nine, and every call answered."""
    await world.provide("runaway")
    world.limit(max_turns=8)
    outcome = await world.perform()
    assert outcome == Outcome(Status.MAX_TURNS, MaxTurns(8))
    state = world.state
    assert state.head.turns == len(world.bills()) == 8
    assert not state.pending
    assert world.lines()[-1]["reason"] == "the cap of 8 turns is reached"


async def test_twice_the_turns_cost_far_more_than_twice_as_much(make_world: MakeWorld) -> None:
    """The total is quadratic in turns, because each request carries all that was said before."""
    tokens: list[int] = []
    for turns in (10, 20):
        world = make_world()
        await world.provide("runaway")
        world.limit(max_turns=turns)
        await world.perform()
        tokens.append(world.state.head.input_tokens)
    assert 2.5 < tokens[1] / tokens[0] < 4.0


async def test_an_answer_on_the_last_turn_is_complete(world: World) -> None:
    """The cap is checked before a call, so what was answered within it counts."""
    await world.provide("plan")
    world.limit(max_turns=3)
    assert (await world.perform()).status is Status.COMPLETED


@pytest.mark.parametrize("budget", [0.0004, 0.005, 0.01])
async def test_a_strict_budget_is_never_exceeded(world: World, budget: float) -> None:
    """The worst case of a turn must fit before it is asked."""
    await world.provide("runaway")
    world.limit(max_turns=None, max_budget_nusd=usd(budget))
    outcome = await world.perform()
    assert outcome.status is Status.MAX_BUDGET
    assert isinstance(outcome.interruption, MaxBudget)
    assert world.billed_nusd() == world.state.head.cost_nusd <= usd(budget)
    assert outcome.interruption.spent_usd * 1e9 == pytest.approx(world.billed_nusd())


async def test_a_strict_budget_asks_for_no_more_output_than_it_pays_for(world: World) -> None:
    """Near its end the output limit shrinks, so that a chatty reply cannot overspend."""
    await world.provide([LIST, LIST, LIST, Say("chatter " * 5000)])
    world.limit(max_budget_nusd=usd(0.008))
    await world.perform()
    assert world.billed_nusd() <= usd(0.008)
    assert world.lines("turn")[-1]["finish"] == "length"


@pytest.mark.parametrize("budget", [0.0004, 0.005, 0.01])
async def test_a_budget_that_is_not_strict_is_overshot_by_one_turn_at_most(
    world: World, budget: float
) -> None:
    """Checked before the call, counted after the reply."""
    await world.provide("runaway")
    world.limit(max_turns=None, max_budget_nusd=usd(budget), strict_budget=False)
    outcome = await world.perform()
    assert outcome.status is Status.MAX_BUDGET
    last = usd(world.lines("turn")[-1]["cost_usd"])
    assert usd(budget) <= world.state.head.cost_nusd < usd(budget) + last


async def test_the_deadline_stops_a_tool(world: World) -> None:
    """A wall-clock limit holds inside a tool as well, and names itself."""

    @tool(read_only=True)
    async def wait() -> str:
        """Wait."""
        await trio.sleep_forever()
        return ""

    await world.provide([Call("wait")])
    world.offer(wait)
    world.limit(deadline_seconds=0.05)
    outcome = await world.perform()
    reason = "the deadline of 0.05 s is reached"
    assert outcome == Outcome(Status.INTERRUPTED, Cancelled(reason, "deadline"))


async def test_a_raised_deadline_lets_the_run_go_on(world: World) -> None:
    """Only performed time counts, and a person may give more of it."""
    await world.provide("plan", latency_ms=30)
    world.limit(deadline_seconds=0.05)
    assert (await world.perform()).status is Status.INTERRUPTED
    outcome = await world.perform("resume", raised=LimitChange(deadline_seconds=10.0))
    assert outcome.status is Status.COMPLETED


async def test_the_token_cap_stops_the_run(world: World) -> None:
    """A stop condition over the run, checked before the model is asked."""
    await world.provide("runaway")
    world.limit(max_tokens=1000)
    outcome = await world.perform()
    assert isinstance(outcome.interruption, Cancelled)
    assert outcome.interruption.who == "max_tokens"
    head = world.state.head
    last = world.lines("turn")[-1]
    used = head.input_tokens + head.output_tokens
    assert used - last["input_tokens"] - last["output_tokens"] < 1000 <= used


async def test_stop_after_tool_stops_once_that_tool_has_run(world: World) -> None:
    """A tool that was seen is a stop condition, with a reason that names it."""
    await world.provide("plan")
    world.limit(stop_after_tool="read_file")
    outcome = await world.perform()
    assert outcome.interruption == Cancelled("read_file has run", "stop_after_tool")
    assert world.state.head.tool_runs == 2


def after_two_turns(state: State) -> str | None:
    """A predicate of a user."""
    return "two are enough" if state.head.turns >= 2 else None


async def test_a_predicate_over_the_run_stops_it(world: World) -> None:
    """``stop_when`` names a function of the state; the text that it returns is the reason."""
    await world.provide("runaway")
    world.limit(stop_when=(f"{after_two_turns.__module__}:after_two_turns",))
    outcome = await world.perform()
    assert outcome.interruption == Cancelled("two are enough", "stop_when")
    assert world.state.head.turns == 2


def broken_predicate(state: State) -> str | None:
    """A predicate with a mistake in it."""
    raise ZeroDivisionError("by zero")


def odd_predicate(state: State) -> object:
    """A predicate that returns what is no text."""
    return b"\xff" if state.head.turns else 0


@pytest.mark.parametrize(
    ("predicate", "reason", "turns"),
    [("broken_predicate", "raised ZeroDivisionError('by zero')", 0), ("odd_predicate", "xff", 1)],
)
async def test_a_predicate_with_a_mistake_stops_the_run_in_words(
    world: World, predicate: str, reason: str, turns: int
) -> None:
    """A limit that cannot be checked is reached; what it returns can always be saved."""
    await world.provide("runaway")
    world.limit(stop_when=(f"{after_two_turns.__module__}:{predicate}",))
    outcome = await world.perform()
    assert outcome.status is Status.INTERRUPTED
    assert reason in outcome.reason
    assert world.state.head.turns == turns


async def test_a_predicate_that_is_missing_fails_the_run_in_words(world: World) -> None:
    """A new run that cannot be performed as configured is recorded as failed."""
    await world.provide("plan")
    world.limit(stop_when=("json:no_such",))
    outcome = await world.perform()
    assert outcome.status is Status.FAILED
    assert "stop_when names json:no_such" in (outcome.error or "")
    assert world.bills() == []


async def test_raised_limits_hold_for_every_later_resume(world: World) -> None:
    """A limit raised once is recorded, and a later resume neither needs nor loses it."""
    await world.provide("runaway")
    world.limit(max_turns=2)
    await world.perform()
    assert (await world.perform("resume")).status is Status.MAX_TURNS
    assert world.state.head.turns == 2
    await world.perform("resume", raised=LimitChange(max_turns=4))
    assert world.state.head.turns == 4
    await world.perform("resume")
    assert world.state.limits.max_turns == 4
    assert world.state.head.turns == 4


async def test_counters_are_part_of_the_state(world: World) -> None:
    """A budget does not start anew at a resume."""
    await world.provide("runaway")
    world.limit(max_turns=3, max_budget_nusd=usd(0.003))
    await world.perform()
    outcome = await world.perform("resume", raised=LimitChange(max_turns=100))
    assert outcome.status is Status.MAX_BUDGET
    assert world.billed_nusd() <= usd(0.003)


async def test_a_run_without_prices_costs_nothing_and_says_its_tokens(world: World) -> None:
    """Tokens are counted whether or not they have a price."""
    world.change(prices=None)
    await world.provide("plan")
    await world.perform()
    assert world.state.head.cost_nusd == 0
    assert world.state.head.input_tokens > 0
