"""The command line on trees that nobody performs now: verdicts, messages, and what is shown."""

import functools
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
import trio
from grove import Grove, fan, played

from actors.events import ApprovalGiven, Finished, Opened, UserMessage
from actors.journal import JOURNAL
from actors.outcome import ORPHANED
from actors.testing.scripts import Call, Conversation, Say
from supervisor.cli import main

Q = {"question": "which file?"}
REMOVE = [Call("remove", {"name": "old"}), Say("done")]

Exeunt = Callable[..., tuple[int, Any, str]]


async def perform(grove: Grove) -> None:
    await grove.run()


@pytest.fixture
def exeunt(capsys: pytest.CaptureFixture[str], grove: Grove) -> Exeunt:
    """Type a command; what came back: exit code, standard output (JSON decoded), standard error."""

    def type_(*words: str) -> tuple[int, Any, str]:
        code = main([*words, "--state-dir", str(grove.folder / "state")])
        shown = capsys.readouterr()
        return code, json.loads(shown.out) if "--json" in words else shown.out, shown.err

    return type_


@pytest.fixture
def waiting(grove: Grove) -> Grove:
    """A tree r1 in which two children wait for a verdict on their call 1.0."""
    grove.family(2, REMOVE, "remove")
    grove.play(functools.partial(perform, grove))
    return grove


def test_a_call_below_is_found_by_its_root_once_it_is_the_only_one(
    waiting: Grove, exeunt: Exeunt
) -> None:
    """With several of that name they are listed, with the command that names one."""
    code, _, told = exeunt("approve", "r1", "1.0")
    assert code == 2
    assert "call 1.0 waits in 2 runs below r1" in told
    assert "exeunt approve r1.1.0 1.0" in told
    assert "They are r1.1.0, r1.1.1" in told
    code, found, _ = exeunt("reject", "r1.1.0", "1.0", "--no-resume", "--json")
    assert (code, found["run_id"], found["recorded"]) == (0, "r1.1.0", True)
    code, found, _ = exeunt("approve", "r1", "1.0", "--no-resume", "--json")
    assert (code, found["run_id"], found["recorded"]) == (0, "r1.1.1", True)
    verdicts = [waiting.events(name, ApprovalGiven)[0].verdict for name in ("r1.1.0", "r1.1.1")]
    assert verdicts == ["reject", "approve"]
    assert waiting.events("r1", ApprovalGiven) == []


def test_a_verdict_that_fits_nothing_names_what_waits_elsewhere_in_the_tree(
    waiting: Grove, exeunt: Exeunt
) -> None:
    """Nobody has to search for the run whose call it is."""
    code, _, told = exeunt("approve", "r1.1.0", "7.0")
    assert code == 2
    assert "there is no call '7.0'; waiting for a verdict: 1.0" in told
    assert "In its tree these wait: r1.1.1 1.0." in told


def test_what_has_its_verdict_is_nowhere_said_to_wait(waiting: Grove, exeunt: Exeunt) -> None:
    """Of two calls first one is answered, then both: words and data name what is left."""

    def pending(run_id: str) -> Any:
        return exeunt("show", run_id, "--json")[1]["outcome"]["interruption"].get("pending")

    def standing() -> list[str]:
        (row,) = exeunt("ps", "r1", "--json")[1]
        return [row["interruption"], *(child["interruption"] for child in row["children"])]

    assert len(pending("r1")) == 2
    told = exeunt("approve", "r1.1.0", "1.0", "--no-resume")[2]
    assert "next: exeunt approve r1.1.1 1.0 " in told
    assert "exeunt approve r1.1.0" not in told
    assert (pending("r1"), pending("r1.1.0"), pending("r1.1.1")) == (None, [], None)
    assert standing() == ["approval", "answered", "approval"]
    found = exeunt("show", "r1", "--json")[1]["outcome"]["interruption"]
    assert (found["run_id"], found["call"]) == ("r1.1.1", "1.0")

    told = exeunt("reject", "r1.1.1", "1.0", "--no-resume")[2]
    where = f"--state-dir {waiting.folder / 'state'}"
    assert told.endswith(f"next: exeunt resume r1 {where}  goes on with the verdicts\n")
    assert pending("r1") == pending("r1.1.0") == pending("r1.1.1") == []
    assert standing() == ["answered"] * 3
    for run_id in ("r1", "r1.1.0"):
        shown = exeunt("show", run_id)[1]
        assert "all calls that waited for approval are answered" in shown
        assert f"next: exeunt resume r1 {where}" in shown
        assert "exeunt approve" not in shown


def test_arguments_that_do_not_fit_use_up_no_verdict(waiting: Grove, exeunt: Exeunt) -> None:
    """They are held against the tool before anything is recorded; those that fit are taken."""
    for edited, words in (
        ('{"name": 3}', "The arguments do not fit: Expected `str`, got `int`"),
        ('{"nam": "x"}', "The parameters are: name (required)."),
        ("{}", "missing required field `name`"),
    ):
        typed = ("approve", "r1.1.0", "1.0", "--args", edited, "--no-resume", "--json")
        code, found, _ = exeunt(*typed)
        assert code == 2
        assert found["error"].startswith("--args: ")
        assert words in found["error"]
    assert waiting.events("r1.1.0", ApprovalGiven) == []
    typed = ("approve", "r1.1.0", "1.0", "--args", '{"name": "new"}', "--no-resume")
    assert exeunt(*typed)[0] == 0
    assert len(waiting.events("r1.1.0", ApprovalGiven)) == 1
    assert "no call '9.0'" in exeunt("approve", "r1.1.0", "9.0", "--args", "{}")[2]


def test_a_message_is_recorded_for_the_next_resume(waiting: Grove, exeunt: Exeunt) -> None:
    """For the root or a child; it is the run's own user who reads it, and nothing else happens."""
    code, found, told = exeunt("tell", "r1.1.1", "look at notes.txt too", "--json")
    assert (code, found) == (0, {"run_id": "r1.1.1", "told": True, "under_way": False})
    assert "reads it when r1 is resumed" in told
    assert "next: exeunt resume r1 --state-dir" in told
    assert exeunt("tell", "r1", "be brief")[0] == 0
    (message,) = waiting.events("r1.1.1", UserMessage)
    assert message.text == "look at notes.txt too"
    assert message.who
    assert waiting.events("r1.1.1", Opened)[-1].why == "verdict"
    assert exeunt("ps", "r1.1.1", "--json")[1][0]["interruption"] == "approval"
    assert "user\n  be brief" in exeunt("show", "r1")[1]


def test_a_run_that_has_ended_for_good_is_told_nothing(grove: Grove, exeunt: Exeunt) -> None:
    """Neither a root that has its answer nor a child whose parent has; an empty text is refused."""
    grove.family(1)
    grove.play(functools.partial(perform, grove))
    for name in ("r1", "r1.1.0"):
        code, found, _ = exeunt("tell", name, "hello", "--json")
        assert code == 2
        assert found["error"] == "r1 has ended (completed) and reads no message"
    assert "is empty" in exeunt("tell", "r1", " \n")[2]
    assert "at most" in exeunt("tell", "r1", "\x00" * 10_000)[2]
    assert grove.events("r1", UserMessage) == []


def test_a_child_that_has_ended_is_told_nothing_though_its_root_goes_on(
    grove: Grove, exeunt: Exeunt
) -> None:
    """Its parent has its answer, so nobody asks its model again."""
    grove.family(2, lambda c: Say("done") if "0" in c.task else REMOVE[min(c.turn, 1)], "remove")
    grove.play(functools.partial(perform, grove))
    code, found, _ = exeunt("tell", "r1.1.0", "hello", "--json")
    assert (code, found["error"]) == (2, "r1.1.0 has ended (completed) and reads no message")
    assert exeunt("tell", "r1.1.1", "hello")[0] == 0


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--max-turns", "1", "r1 has made 1 turn; give --max-turns more than that"),
        ("--max-budget-usd", "0.001", "r1 has spent $0.00"),
        ("--deadline-s", "0.000001", "r1 has worked 0."),
    ],
)
def test_a_limit_of_which_all_is_used_is_refused(
    waiting: Grove, exeunt: Exeunt, option: str, value: str, words: str
) -> None:
    """It could raise nothing, and the run would end where it stands; what was used is named."""
    before = waiting.events("r1", Opened)
    code, _, told = exeunt("resume", "r1", option, value)
    assert code == 2
    assert words in told
    assert f"give {option} more than that" in told
    assert waiting.events("r1", Opened) == before


def test_what_children_spent_counts_as_spent(waiting: Grove, exeunt: Exeunt) -> None:
    """A budget is of the whole tree, so more than the root's own turns is in the refusal."""
    own, whole = waiting.state("r1").head.cost_nusd, waiting.billed_nusd()
    assert whole > own
    code, _, told = exeunt("resume", "r1", "--max-budget-usd", str((own + 1) / 1e9))
    assert (code, f"spent ${whole / 1e9:.6f}, with all below it" in told) == (2, True)


def test_ps_shows_the_tree_with_what_each_run_waits_for(waiting: Grove, exeunt: Exeunt) -> None:
    """Children in the order of their calls, and what it all comes to."""
    lines = exeunt("ps", "r1")[1].splitlines()
    assert [line[:8] for line in lines[1:4]] == ["r1      ", "  r1.1.0", "  r1.1.1"]
    assert all("interrupted (approval)" in line for line in lines[1:4])
    assert lines[4].startswith("3 runs, 3 interrupted, 3 turns, $0.00")
    (row,) = exeunt("ps", "r1", "--json")[1]
    assert row["interruption"] == "approval"
    assert [child["run_id"] for child in row["children"]] == ["r1.1.0", "r1.1.1"]


def test_ps_tells_a_tree_that_nobody_stopped_from_one_that_somebody_did(
    grove: Grove, exeunt: Exeunt
) -> None:
    """When its supervisor is gone, a resume goes on with all that was under way."""
    grove.family(1, [Call("pause"), Say("done")], "pause")

    async def abandoned() -> None:
        grove.nursery.start_soon(functools.partial(perform, grove))
        await grove.heard("tool_progress")
        for child in grove.supervisor.children():
            child.stop("the supervisor is gone", ORPHANED)
        await grove.heard("run_stopped", "r1")

    grove.play(abandoned)
    assert exeunt("ps", "r1")[1].count("interrupted (orphaned)") == 2


def test_a_damaged_child_takes_no_answer_away(grove: Grove, exeunt: Exeunt) -> None:
    """What is wrong with it is told beside the ending of its root, and in the result."""
    grove.family(2)
    grove.play(functools.partial(perform, grove))
    journal = grove.folder / "state" / "runs" / "r1.1.0" / JOURNAL
    data = bytearray(journal.read_bytes())
    data[100] ^= 0xFF
    journal.write_bytes(data)
    code, found, told = exeunt("resume", "r1", "--json")
    assert (code, found["status"], found["tree"]["runs"]) == (0, "completed", 3)
    assert [child["status"] for child in found["children"]] == [None, "completed"]
    assert "is damaged at byte" in found["children"][0]["error"]
    assert "r1.1.0: " in told
    assert exeunt("show", "r1")[0] == 0
    assert "2 completed, 1 damaged" in exeunt("ps", "r1")[1]


def test_show_names_the_children_and_what_the_tree_came_to(waiting: Grove, exeunt: Exeunt) -> None:
    """From a call of the root one comes to the run behind it."""
    shown = exeunt("show", "r1")[1]
    assert '1.0  research {"question":"question 0"}\n    run r1.1.0\n' in shown
    assert "with its children 3 runs, 3 turns, 2 tool runs" in shown
    assert "exeunt approve r1.1.1 1.0 --state-dir" in shown
    shown = exeunt("show", "r1.1.0")[1]
    assert "question 0" in shown
    assert '1.0  remove {"name":"old"}\n    has not run' in shown


async def typed(exeunt: Exeunt, *words: str) -> tuple[int, Any, str]:
    """A command in another terminal, while a tree is under way in this loop."""
    return await trio.to_thread.run_sync(functools.partial(exeunt, *words))


@pytest.mark.slow
@played
async def test_a_run_under_way_is_told_at_once(grove: Grove, exeunt: Exeunt) -> None:
    """Its own process records the message, and the command returns when that is on record."""
    grove.family(1, [Call("pause"), Say("done")], "pause")
    config = await grove.config()

    async def act() -> None:
        await grove.heard("tool_progress")
        code, found, _ = await typed(exeunt, "tell", "r1.1.0", "hurry", "--json")
        assert (code, found) == (0, {"run_id": "r1.1.0", "told": True, "under_way": True})
        (row,) = (await typed(exeunt, "ps", "--json"))[1]
        assert row["status"] == row["children"][0]["status"] == "running"
        assert row["pid"] == grove.child("r1").pid
        assert row["children"][0]["pid"] == grove.child("r1.1.0").pid
        (grove.workspace / "go").touch()

    grove.nursery.start_soon(act)
    assert (await grove.supervisor.run(config, "r1")).status == "completed"
    assert [one.text for one in grove.events("r1.1.0", UserMessage)] == ["hurry"]
    assert grove.state("r1.1.0").told == [(1, "hurry")]


def say_and_pause(conversation: Conversation) -> Any:
    return Say("done") if conversation.turn else [Say("so far"), Call("pause")]


@pytest.mark.slow
@played
async def test_one_child_is_stopped_and_the_rest_goes_on(grove: Grove, exeunt: Exeunt) -> None:
    """With what is below it; its parent reads why, and what it had found."""
    grove.agent("lead", fan(2, "middle"), "middle")
    grove.agent("chief", fan(1), "research")
    grove.agent("researcher", say_and_pause, "pause")
    grove.behind(middle="chief", research="researcher")
    config = await grove.config()

    async def act() -> None:
        await grove.heard("tool_progress", times=2)
        words = ("stop", "r1.1.0", "--reason", "enough", "--json")
        code, found, _ = await typed(exeunt, *words)
        assert code == 0
        assert found == {
            "run_id": "r1.1.0", "stopped": True, "status": "interrupted", "reason": "enough",
        }  # fmt: skip
        assert grove.state("r1.1.0.1.0").outcome
        assert grove.state("r1").outcome is None
        (grove.workspace / "go").touch()

    grove.nursery.start_soon(act)
    report = await grove.supervisor.run(config, "r1")
    assert report.status == "completed"
    first, second = grove.events("r1", Finished)
    assert "interrupted after 1 turn (enough)" in first.content
    assert second.content.startswith("completed: ")
    assert [child.status for child in report.children] == ["interrupted", "completed"]


@pytest.mark.slow
@played
async def test_stop_of_a_root_returns_when_nothing_of_its_tree_is_left(
    grove: Grove, exeunt: Exeunt
) -> None:
    """Not even a child that blocks its process, which the end of its grace alone can end."""
    grove.family(2, [Call("spin_later"), Say("done")], "spin_later")
    config = await grove.config(supervision="stop_grace_s = 0.5")

    async def act() -> None:
        await grove.heard("tool_start", times=4)
        (grove.workspace / "go").touch()
        code, found, _ = await typed(exeunt, "stop", "r1", "--json")
        assert (code, found["stopped"], found["status"]) == (0, True, "interrupted")
        assert grove.living() == set()
        assert grove.supervisor.state_dir.supervisor_of("r1") is None

    async with trio.open_nursery() as nursery:
        nursery.start_soon(act)
        assert (await grove.supervisor.run(config, "r1")).status == "interrupted"


@pytest.mark.slow
@played
async def test_a_tree_goes_on_with_verdicts_that_came_while_siblings_worked(
    grove: Grove, exeunt: Exeunt
) -> None:
    """Nobody has to wait for the slowest sibling in order to answer, nor to resume after it."""
    grove.agent(
        "lead", lambda c: Say("end") if c.turn else [Call("ask", Q), Call("research", Q)],
        "ask", "research",
    )  # fmt: skip
    grove.agent("asker", REMOVE, "remove")
    grove.agent("researcher", [Call("pause"), Say("done")], "pause")
    grove.behind(ask="asker", research="researcher")
    await grove.config()
    state_dir = grove.supervisor.state_dir

    async def act() -> None:
        def waits() -> bool:
            # Its process has ended, too, as before that no verdict is taken.
            ended = state_dir.exists("r1.1.0") and grove.state("r1.1.0").outcome
            return bool(ended) and not state_dir.holder("r1.1.0")

        while not waits():  # noqa: ASYNC110  # another process's file is all there is to see
            await trio.sleep(0.005)
        code, found, told = await typed(exeunt, "approve", "r1", "1.0", "--json")
        assert (code, found["run_id"], found["status"]) == (0, "r1.1.0", "running")
        assert "r1 is still under way; once all that waits is answered, it goes on" in told
        shown = (await typed(exeunt, "show", "r1.1.0"))[1]
        assert "r1 is still under way, and goes on with the verdicts" in shown
        assert "next:" not in shown
        (grove.workspace / "go").touch()

    grove.nursery.start_soon(act)
    words = ["run", str(grove.folder / "config.toml"), "--run-id", "r1", "--json"]
    command = [sys.executable, "-P", "-m", "supervisor", *words, "--state-dir", str(state_dir.path)]
    ran = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert (ran.returncode, json.loads(ran.stdout)["status"]) == (0, "completed")
    assert (grove.workspace / "removed").read_text() == "r1.1.0 old\n"
    assert [one.why for one in grove.events("r1", Opened)] == ["start", "resume"]
