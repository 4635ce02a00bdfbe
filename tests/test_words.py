"""How endings are told to people, and which command is named next."""

import io
from typing import Any

import msgspec
import pytest
from story import Story, call

from actors.events import Head
from actors.outcome import (
    Approval,
    Cancelled,
    InDoubt,
    Interruption,
    MaxBudget,
    MaxTurns,
    Outcome,
    PendingCall,
    Status,
)
from actors.state import State
from supervisor.report import Report, report
from supervisor.terminal import Style
from supervisor.words import Commands, age, duration, ending, next_steps

STYLE = Style(io.StringIO())
ARGS: Any = {"path": "access.log"}


def told(outcome: Outcome | None, **head: Any) -> Report:
    return report("r1", State(run_id="r1", outcome=outcome, head=Head(**head)))


def interrupted(why: Interruption) -> Report:
    return told(Outcome(Status.INTERRUPTED, why))


def test_a_completed_run_says_what_it_took() -> None:
    """Turns, tool runs, tokens and money on one line; what was possibly billed is not hidden."""
    head = {"turns": 3, "tool_runs": 1, "input_tokens": 1420, "output_tokens": 34}
    found = told(Outcome(Status.COMPLETED, output="x"), cost_nusd=3_248_000, **head)
    assert ending(found, STYLE) == "completed  3 turns, 1 tool run, 1,420+34 tokens, $0.003248"
    found = told(Outcome(Status.COMPLETED), maybe_nusd=1_000_000, turns=1)
    assert ending(found, STYLE).endswith("$0.000000 (possibly $0.001000 more)")


@pytest.mark.parametrize(
    ("found", "why", "command"),
    [
        (told(Outcome(Status.FAILED, error="no such model")), "no such model", "show r1"),
        (told(None), "no ending was recorded", "resume r1"),
        (
            told(Outcome(Status.MAX_TURNS, MaxTurns(8))),
            "the cap of 8 turns is reached",
            "resume r1 --max-turns 16",
        ),
        (
            told(Outcome(Status.MAX_BUDGET, MaxBudget(0.01, 0.009, 0.0, 0.002))),
            "the budget of $0.010000",
            "resume r1 --max-budget-usd 0.02",
        ),
        (interrupted(Cancelled("cancelled: ctrl-c")), "cancelled: ctrl-c", "resume r1"),
        (interrupted(Cancelled("late", "deadline")), "late", "with --deadline-s S"),
    ],
)
def test_every_ending_has_its_reason_and_a_command(found: Report, why: str, command: str) -> None:
    """Whoever reads the last lines knows why it ended and what to type."""
    assert why in ending(found, STYLE).splitlines()[1]
    assert command in next_steps(found, Commands())


def test_an_approval_shows_what_would_run_and_both_commands() -> None:
    """The arguments stand there whole, each call with the run whose call it is."""
    pending = tuple(
        PendingCall("r1.2.0", f"1.{n}", "delete_file", ARGS, ("r1", "r1.2.0")) for n in (0, 1)
    )
    first = msgspec.structs.asdict(pending[0])
    lines = next_steps(interrupted(Approval(**first, pending=pending)), Commands()).splitlines()
    assert lines[0] == '  r1.2.0 1.0  delete_file {"path":"access.log"}'
    assert lines[1] == '  r1.2.0 1.1  delete_file {"path":"access.log"}'
    assert [line[6:].split("  ")[0] for line in lines[2:]] == [
        "exeunt approve r1.2.0 1.0",
        "exeunt reject r1.2.0 1.0 --reason ...",
        "exeunt approve r1.2.0 1.1",
        "exeunt reject r1.2.0 1.1 --reason ...",
        "exeunt resume r1",
    ]
    assert lines[-1].endswith("once all are answered with --no-resume")
    assert "2 calls wait for approval" in ending(
        interrupted(Approval(**first, pending=pending)), STYLE
    )


@pytest.mark.parametrize(
    ("why", "words"),
    [
        (
            Approval("r1", "1.0", "delete_file", ARGS, ("r1",)),
            "all calls that waited for approval are answered",
        ),
        (
            InDoubt("r1", "1.0", "delete_file", ARGS, ("r1",)),
            "the call that was in doubt is answered",
        ),
    ],
)
def test_a_call_that_has_its_verdict_waits_no_more(why: Approval | InDoubt, words: str) -> None:
    """Neither in words nor in data; which call it was stays on record."""
    story = Story()
    story.reply(call("delete"))
    if isinstance(why, Approval):
        story.ask_person("1.0", b"digest")
    else:
        story.start("1.0", digest=b"digest")
    story.end(Outcome(Status.INTERRUPTED, why))
    waiting = report("r1", story.state, {"r1": story.state})
    assert "exeunt approve r1 1.0" in next_steps(waiting, Commands())
    assert not waiting.answered
    assert "pending" not in waiting.interruption
    story.verdict("1.0", "approve" if isinstance(why, Approval) else "done", b"digest")
    found = report("r1", story.state, {"r1": story.state})
    assert found.answered
    assert found.interruption == waiting.interruption | {"pending": []}
    assert found.exit_code == waiting.exit_code == 5
    assert ending(found, STYLE).endswith(f"\n  {words}")
    assert next_steps(found, Commands()) == "next: exeunt resume r1  goes on with the verdicts"


def test_a_call_in_doubt_offers_the_three_verdicts() -> None:
    """Run it again, it happened, it did not happen."""
    steps = next_steps(interrupted(InDoubt("r1", "2.0", "pay", ARGS, ("r1",))), Commands())
    assert "exeunt approve r1 2.0         run it again" in steps
    assert "exeunt approve r1 2.0 --done  it did happen" in steps
    assert "exeunt reject r1 2.0          it did not happen" in steps


def test_hints_name_a_state_directory_that_must_be_typed_again() -> None:
    """Quoted for a shell."""
    assert Commands("my dir").line("resume", "r1") == "exeunt resume r1 --state-dir 'my dir'"


def test_a_reason_cannot_steer_the_terminal() -> None:
    """A stop's reason, an error and a tool's name may be hostile."""
    evil = "x\x1b[2J\u202e\x9b"
    found = interrupted(Approval("r1", "1.0", evil, {evil: evil}, ("r1",)))
    for text in (
        ending(interrupted(Cancelled(evil)), STYLE),
        ending(told(Outcome(Status.FAILED, error=evil)), STYLE),
        ending(found, STYLE),
        next_steps(found, Commands()),
    ):
        assert text.replace("\n", "").isprintable()


def test_very_long_arguments_say_that_they_are_cut() -> None:
    """A person shall not approve what is out of sight without knowing it."""
    found = interrupted(Approval("r1", "1.0", "write", {"text": "x" * 5000}, ("r1",)))
    assert "more characters: see show --turn]" in next_steps(found, Commands())


def test_lengths_of_time_are_short() -> None:
    """One unit is enough at a glance."""
    assert [age(s) for s in (0.2, 5, 300, 7200, 200_000)] == ["0s", "5s", "5m", "2h", "2d"]
    assert [duration(ms) for ms in (0.25, 999.94, 3015)] == ["0.2 ms", "999.9 ms", "3.0 s"]
