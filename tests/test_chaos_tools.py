"""``exeunt chaos`` over tools whose flags are not true: each is named, or its candidates are."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.messages import Nature, ResultKind
from actors.testing.chaos import Chaos, ChaosFailed
from actors.testing.chaos_report import ChaosReport
from supervisor.chaos.compare import Unlike, check_like, differences
from supervisor.chaos.ended import SHIPPED, Ended, Ran
from supervisor.chaos.plan import REPEAT
from supervisor.chaos.varying import varying

CONFIG = Path(__file__).parent / "chaos_support" / "unsafe.toml"
SEED = 3
HONEST = "pay_once"


def struck(
    folder: Path, task: str, *plans: str, kills: int = 6, sets: Sequence[str] = ()
) -> ChaosReport:
    """A session of one agent that calls the tools of its task, over a workspace with one file."""
    (folder / "there.txt").write_text("there\n")
    sets = (f"run.task={task}", f"tools.files.root={folder}", *sets)
    return Chaos()(CONFIG, kills=kills, seed=SEED, plans=plans, sets=sets)


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("tool", "promise", "difference"),
    [
        ("note", "it is read_only, which promises that it changes nothing", "log.txt"),
        (
            "pay",
            "it is keyed, which promises that one key does the same thing only once",
            "log.txt",
        ),
        ("enter_again", "it is keyed, which promises", "log.txt"),
        ("count", "it is keyed, which promises", "the answer is 'called 2 times"),
    ],
)
def test_a_tool_that_is_not_safe_to_repeat_is_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    tool: str,
    promise: str,
    difference: str,
) -> None:
    """With the seed and the command that shows it again; the honest one beside it is not."""
    report = struck(tmp_path, f"{tool} {HONEST}")
    assert not report.ok
    (failure,) = report.failures
    assert failure.tools == (tool,)
    assert f"tool {tool} is not safe to repeat: {promise}" in failure.words
    assert difference in failure.words
    assert f"--seed {SEED} --plan repeat/{tool}" in failure.replay
    (unsafe,) = report.unsafe_tools
    assert (unsafe.tool, unsafe.broken, unsafe.replay) == (tool, 1, failure.replay)
    shown = capsys.readouterr().out
    assert f"not safe to repeat: {tool} is" in shown
    assert f"see it again: {failure.replay}" in shown
    # The plan alone shows it again.
    again = struck(tmp_path, f"{tool} {HONEST}", failure.plan)
    assert [one.words for one in again.failures] == [failure.words]


@pytest.mark.chaos
def test_a_record_under_its_key_is_the_same_in_every_round(tmp_path: Path) -> None:
    """The usual keyed tool: its files bear the key, its answer the path, and all is compared."""
    report = struck(tmp_path, "enter")
    assert report.ok, report
    assert report.repeatable, report.varying
    assert (report.untried, report.unsafe_tools) == ((), ())


@pytest.mark.chaos
@pytest.mark.long
def test_a_program_that_outlives_its_tool_is_told_as_the_tools_work(tmp_path: Path) -> None:
    """The write comes after the answer, so a kill behind the answer undoes it for good."""
    report = struck(tmp_path, "leave wait", "behind/leave")
    (failure,) = report.failures
    assert failure.tools == ("leave",)
    assert "log.txt; tool leave is not safe to repeat: nothing was run again, but" in failure.words
    assert [(one.tool, one.broken) for one in report.unsafe_tools] == [("leave", 1)]
    assert "leaves work behind its answer" in report.unsafe_tools[0].words


@pytest.mark.chaos
@pytest.mark.long
def test_where_it_cannot_be_known_the_candidates_are_named(tmp_path: Path) -> None:
    """Until a round of its own clears one of them."""
    task = f"{HONEST} leave wait"
    (failure,) = struck(tmp_path, task, "behind/leave").failures
    assert failure.tools == ("leave", HONEST)
    assert f"one of the tools leave, {HONEST} is not safe to repeat, and which" in failure.words
    report = struck(tmp_path, task, "behind/leave", f"behind/{HONEST}")
    (failure,) = report.failures
    assert failure.tools == ("leave",)
    assert failure.words.endswith("in rounds of their own the others were, so it is leave")
    assert [one.tool for one in report.unsafe_tools] == ["leave"]


@pytest.mark.chaos
def test_tools_that_ran_side_by_side_are_both_candidates(tmp_path: Path) -> None:
    """Both were run again, and a file does not tell who wrote it."""
    report = struck(tmp_path, "note_too+note_last", "repeat/note_too")
    (failure,) = report.failures
    assert failure.tools == ("note_last", "note_too")
    assert "a kill made note_last and note_too run again" in failure.words
    assert report.unsafe_tools == ()


@pytest.mark.chaos
def test_what_varies_undisturbed_is_told_apart(tmp_path: Path) -> None:
    """A time in a file is no fault of a kill; what else there is is compared all the same."""
    report = struck(tmp_path, "stamp pay")
    assert not report.repeatable
    assert report.varying == ("stamp.txt, last written while stamp ran",)
    assert {failure.tools for failure in report.failures} == {("pay",)}


@pytest.mark.chaos
def test_an_answer_that_varies_undisturbed_is_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the first call that answered otherwise."""
    report = struck(tmp_path, f"tell_time {HONEST}", kills=4)
    assert report.ok, report
    words = "the answer, after tell_time had answered otherwise (call 1.0 of run root)"
    assert report.varying == (words,)
    assert report.unsafe_tools == ()
    assert f"not the same twice even undisturbed: {words}" in capsys.readouterr().out


@pytest.mark.chaos
def test_a_tool_that_was_not_tried_is_not_called_safe(tmp_path: Path) -> None:
    """One round that strikes something else says nothing about it."""
    report = struck(tmp_path, "note", "kill/supervisor/root/turn/2/0")
    assert report.ok, report
    assert report.untried == ("note",)


@pytest.mark.chaos
def test_what_is_written_by_a_relative_path_is_written_to_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one works in the workspace, so does each round in its own: compared, and not real."""
    monkeypatch.chdir(tmp_path)
    report = struck(tmp_path, "scribble", "repeat/scribble")
    assert [failure.tools for failure in report.failures] == [("scribble",)]
    assert "log.txt" in report.failures[0].words
    assert [path.name for path in tmp_path.iterdir()] == ["there.txt"]


@pytest.mark.chaos
@pytest.mark.long
def test_limits_of_time_hold_undisturbed(tmp_path: Path) -> None:
    """A tool that hangs ends with its run, and is named; what is struck has all the time."""
    limit = "agents.lead.limits.deadline_s"
    with pytest.raises(ChaosFailed) as failed:
        struck(tmp_path, "sleep_on", sets=[f"{limit}=1"])
    words = str(failed.value)
    assert "nothing to compare: the run ends interrupted by itself: " in words
    assert "deadline" in words
    assert words.endswith(", while sleep_on ran")
    report = struck(tmp_path, "enter", kills=1, sets=[f"{limit}=30"])
    assert report.ok, report
    assert report.lifted == (limit,)


@pytest.mark.chaos
@pytest.mark.parametrize("nature", ["plain", "keyed", "native"])
def test_a_tool_that_ends_its_own_process_is_named(tmp_path: Path, nature: str) -> None:
    """Nobody struck, so there is nothing to compare: that is a finding, told in words."""
    with pytest.raises(ChaosFailed) as failed:
        struck(tmp_path, f"{HONEST} die_{nature}")
    words = str(failed.value)
    assert words.startswith(f"tool die_{nature} (call 2.0 of run root) ended its own process")
    assert "I8" not in words


@pytest.mark.chaos
@pytest.mark.long
def test_a_program_that_nobody_can_sweep_up_is_told_as_its_tools(tmp_path: Path) -> None:
    """It has left its session and cleaned its environment; when it began, its tool ran."""
    with pytest.raises(ChaosFailed) as failed:
        struck(tmp_path, f"{HONEST} wait escape wait")
    words = str(failed.value)
    assert "(sleep) were there 8 s after their supervisor, begun by tool escape (call" in words


@pytest.mark.chaos
def test_what_is_found_of_a_tree_is_told_apart_from_what_is_wrong_with_its_configuration(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """By the exit code: 1 is for its tools, 2 for what was typed."""

    def code(*sets: str) -> int:
        words = [sys.executable, "-P", "-m", "supervisor", "chaos", str(CONFIG), "--kills=1"]
        words += [f"--set={one}" for one in (f"tools.files.root={tmp_path}", *sets)]
        return subprocess.run(words, check=False, stdout=subprocess.DEVNULL).returncode

    assert code("run.task=die_plain") == 1
    assert code("tools.mine.module=no_such_tools") == 2
    assert "exeunt: a resume was refused" not in capfd.readouterr().err


def ran(tool: str, nature: Nature, attempts: int, behind: bool) -> Ran:
    return Ran(
        tool=tool,
        run="root",
        call="1.0",
        nature=nature,
        attempts=attempts,
        outcome=ResultKind.OK,
        said="",
        started_at=1.0,
        ended_at=2.0,
        behind=behind,
    )


calls = st.lists(
    st.builds(
        ran,
        st.sampled_from(["mine", "yours", "theirs", *sorted(SHIPPED)]),
        st.sampled_from([one for one in Nature if one is not Nature.CHILD]),
        st.integers(1, 3),
        st.booleans(),
    ),
    max_size=4,
)
endings = st.builds(
    Ended,
    status=st.sampled_from(["completed", "failed"]),
    output=st.sampled_from(["yes", "no"]),
    error=st.none(),
    workspace=st.dictionaries(
        st.sampled_from(["a", "b", "c"]), st.sampled_from(["3 xx", "5 yy", "5 zz"])
    ),
    runs=st.just(("root",)),
    ran=calls.map(tuple),
)


@given(endings, endings)
def test_only_the_users_own_tools_that_were_cut_off_are_charged(
    ended: Ended, reference: Ended
) -> None:
    """And whatever differs is told, charged to a tool or not; what is the same is no failure."""
    check_like(ended, ended)
    found = differences(ended, reference)
    check_like(ended, reference, found)
    if not found:
        check_like(ended, reference)
        return
    with pytest.raises(Unlike) as caught:
        check_like(ended, reference)
    words, charges = str(caught.value), caught.value.charges
    assert ("is not safe to repeat" in words) == bool(charges)
    for charge in charges:
        assert charge.tool in words
        assert charge.tool not in SHIPPED
        mine = [one for one in ended.ran if one.tool == charge.tool]
        assert any(one.attempts > 1 if charge.when == REPEAT else one.behind for one in mine)


@given(endings, endings)
def test_what_two_undisturbed_endings_differ_in_is_all_that_varies(
    first: Ended, second: Ended
) -> None:
    """So no round is held to it, and to everything else."""
    assert varying(first, second, {}).keys() == differences(second, first).keys()
