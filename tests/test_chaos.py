"""``exeunt chaos``: its plans, its report, and a session as users hold one."""

import random
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.messages import Nature
from actors.testing.chaos import Chaos, ChaosFailed
from actors.testing.chaos_report import ChaosReport, Failure
from supervisor.chaos.ended import Ended
from supervisor.chaos.findings import findings
from supervisor.chaos.plan import (
    VICTIMS,
    Boundary,
    Plan,
    PlanError,
    Strike,
    draw,
    every,
    parse,
)
from supervisor.chaos.round import Round
from supervisor.chaos.session import NoReference, Session, check_completes
from supervisor.chaos.stand_in import stand_in
from supervisor.cli import parse as arguments
from supervisor.cli_numbers import SEEDS
from supervisor.commands import UsageError
from supervisor.commands.chaos import MAKE_UP_MAX, _perform_drawn, check_plans

CONFIG = "my agents.toml"
BOUNDARIES = [Boundary("root", "turn", n) for n in (1, 2, 3)] + [Boundary("2.0", "bytes", 700)]


def report_of(rounds: list[Round], seed: int = 1) -> ChaosReport:
    """What a session over nothing in particular reports of these rounds."""
    ended = Ended(status="completed", output="done", error=None, workspace={}, runs=("root",))
    session = SimpleNamespace(
        reference=ended, boundaries=BOUNDARIES, varying={}, tools=(), lifted=()
    )
    command = ["exeunt", "chaos", CONFIG]
    return findings(cast(Session, session), rounds, command=command, seed=seed, seconds=1.0)


def test_a_plan_is_read_back_as_it_was_written() -> None:
    """Whatever was drawn can be typed again, to the tenth of a millisecond."""
    for plan in draw(BOUNDARIES, 200, random.Random(1), ("pay", "dig-2")):
        assert parse(str(plan)) == plan


def test_a_seed_draws_the_same_plans() -> None:
    """In whichever order the boundaries were seen."""
    one = draw(BOUNDARIES, 50, random.Random(7))
    assert one == draw(reversed(BOUNDARIES), 50, random.Random(7))
    assert one != draw(BOUNDARIES, 50, random.Random(8))


def test_plans_reach_every_boundary_and_every_kind_of_victim() -> None:
    """Boundaries come again only when all were used."""
    firsts = [plan.strikes[0] for plan in draw(BOUNDARIES, 36, random.Random(3))]
    assert {strike.boundary for strike in firsts[:4]} == set(BOUNDARIES)
    assert {strike.victims for strike in firsts[: len(VICTIMS)]} == set(VICTIMS)
    assert len(set(every(BOUNDARIES))) == len(BOUNDARIES) * len(VICTIMS)


def test_every_other_round_is_a_trap_for_a_tool() -> None:
    """Each is run again first; then each is cut off behind its answer; then chance goes on."""
    plans = draw(BOUNDARIES, 12, random.Random(3), ("pay", "dig"))
    lures = [str(plan.lure) if plan.lure else "" for plan in plans]
    assert sorted(lures[1:4:2]) == ["repeat/dig", "repeat/pay"]
    assert sorted(lures[5:8:2]) == ["behind/dig", "behind/pay"]
    assert not any([*lures[::2], *lures[8:]])
    assert len(draw(BOUNDARIES, 1, random.Random(3), ("pay",))[0].strikes) > 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "kill",
        "kill/nobody/root/turn/1/0",
        "kill/actor/2/turn/1/0",
        "hug/actor/root/turn/1/0",
        "kill/actor/root/turn/1/0,",
        "kill/actor/root/turn/1/-3",
        "repeat/",
        "repeat/pay,",
        "repeat/pay,behind/pay",
        "kill/actor/root/turn/1/0,repeat/pay",
    ],
)
def test_a_text_that_is_no_plan_is_refused(text: str) -> None:
    """In words that show one."""
    with pytest.raises(PlanError, match="one looks like kill/supervisor/root/turn"):
        parse(text)


strikes = st.builds(
    Strike,
    st.sampled_from(["kill", "freeze", "freeze-kill"]),
    st.sampled_from(VICTIMS),
    st.sampled_from(BOUNDARIES),
    st.integers(0, 999_999).map(lambda hundredths: hundredths / 100),
)


@given(st.integers(0, SEEDS - 1), st.lists(strikes, min_size=1, max_size=3))
def test_every_command_that_is_printed_can_be_typed(seed: int, struck: list[Strike]) -> None:
    """Whatever seed was drawn, and whatever plan was accepted: it asks for just this again."""
    plan = Plan(tuple(struck))
    (failure,) = report_of([Round(plan=str(plan), struck=1, failure="I7: words")], seed).failures
    typed = arguments(shlex.split(failure.replay)[1:])
    assert (typed.config, typed.seed) == (CONFIG, seed)
    assert [parse(one) for one in typed.plans] == [plan]


def test_a_seed_beyond_those_that_are_drawn_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """In words, whether it is typed or stands in the environment."""
    with pytest.raises(UsageError, match=f"whole number from 0 to {SEEDS - 1}"):
        arguments(["chaos", CONFIG, "--seed", str(SEEDS)])
    monkeypatch.setenv("EXEUNT_SEED", "-1x")
    with pytest.raises(ChaosFailed, match="EXEUNT_SEED is '-1x'; set it to a whole number"):
        Chaos()(CONFIG)


def test_chance_and_plans_are_not_both_given() -> None:
    """One of them would be dropped without a word."""
    both = ["chaos", "x.toml", "--kills", "3", "--plan", "kill/actor/root/turn/1/0"]
    args = arguments(both)
    with pytest.raises(UsageError, match="--kills draws so many rounds, and --plan says which"):
        check_plans(args)


def test_a_stand_in_is_read_like_the_real_one_and_keeps_what_is_written(tmp_path: Path) -> None:
    """Wherever one works: beside the workspace, above it, in it, or without one."""
    here, copy = tmp_path / "here", tmp_path / "copy"
    (here / "a" / "root" / "sub").mkdir(parents=True)
    (here / "a" / "beside.txt").write_text("beside")
    (copy / "sub").mkdir(parents=True)
    (copy / "only.txt").write_text("copied")
    root = here / "a" / "root"
    above = stand_in(here, tmp_path / "1", root, copy)
    assert (above / "a" / "root" / "only.txt").read_text() == "copied"
    assert (above / "a" / "beside.txt").read_text() == "beside"
    (above / "new.txt").write_text("x")
    (above / "a" / "new.txt").write_text("x")
    (above / "a" / "root" / "new.txt").write_text("x")
    assert stand_in(root / "sub", tmp_path / "2", root, copy) == copy / "sub"
    assert (stand_in(here, tmp_path / "3", None, copy) / "a" / "beside.txt").exists()
    assert not [*here.rglob("new.txt")]


def test_a_strike_is_written_with_everything_that_it_is() -> None:
    """Action, victims, run, event, number, delay."""
    strike = Strike("freeze-kill", ("actor", "zygote"), Boundary("2.0", "tool_start", 3), 1.5)
    assert str(Plan((strike, strike))) == ",".join(
        ["freeze-kill/actor+zygote/2.0/tool_start/3/1.5"] * 2
    )


def test_rounds_that_struck_nothing_are_made_up_for() -> None:
    """At other boundaries, a few times; a session of which no round struck is not ok."""
    hopeless = 0

    def perform(plans: list[Plan], workers: int) -> list[Round]:
        nonlocal hopeless
        hopeless -= 1
        met = [Round(plan=str(plan), struck=int(number > 0)) for number, plan in enumerate(plans)]
        return met if hopeless < 0 else [Round(plan=one.plan) for one in met]

    session = cast(Session, SimpleNamespace(boundaries=BOUNDARIES, tools=(), perform=perform))
    rounds: list[Round] = []
    _perform_drawn(session, 3, random.Random(1), rounds)
    assert [one.struck for one in rounds] == [1, 1, 0]
    hopeless = 10
    rounds = []
    _perform_drawn(session, 3, random.Random(1), rounds)
    assert hopeless == 10 - 1 - MAKE_UP_MAX
    assert not report_of(rounds).ok


def test_a_tree_that_fails_by_itself_is_not_struck() -> None:
    """There is nothing to compare with, and its own reason is what its author must read."""

    def ended(status: str, error: str | None) -> Ended:
        return Ended(status=status, output=None, error=error, workspace={}, runs=("root",))

    for status in ("completed", "max_turns_exceeded", "budget_exceeded"):
        check_completes(ended(status, None))
    words = "^nothing to compare: the run ends failed by itself: HTTP 500$"
    with pytest.raises(NoReference, match=words):
        check_completes(ended("failed", "HTTP 500"))
    with pytest.raises(NoReference, match="ends interrupted by itself"):
        check_completes(ended("interrupted", None))


def test_a_broken_round_tells_how_to_see_it_again() -> None:
    """The words, the plan, and the command that performs just this plan."""
    plan = "kill/tree/root/turn/1/0"
    broken = Round(plan=plan, struck=1, failure="I7: billed 3, recorded 2 and possibly 0")
    kept = Round(plan=plan, struck=1, doubts=("pay",), natures={"pay": Nature.WRITE})
    report = report_of([broken, kept], 9)
    assert not report.ok
    replay = f"exeunt chaos 'my agents.toml' --seed 9 --plan {plan}"
    assert report.failures == (Failure(plan, broken.failure, replay),)
    assert replay in str(report)
    assert [(tool.tool, tool.in_doubt) for tool in report.unsafe_tools] == [("pay", 1)]
