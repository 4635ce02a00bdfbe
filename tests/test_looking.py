"""ps, show, trace and stop of runs that nobody performs: what is on disk, told and not touched."""

import fcntl
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from world import World

from actors.journal import JOURNAL
from actors.testing.scripts import Call, Say
from supervisor import standing
from supervisor.cli import main
from supervisor.commands import ps
from supervisor.config import load_config
from supervisor.state_dir import holder_in
from supervisor.terminal import Style

EVIL = "a\x1b]0;owned\x07\x1b[2J\x9b\u202eb\u2028c\x7f"
STEPS = [[Say(EVIL), Call("read_file", {"path": "errors.log"})], Say(f"{EVIL} done")]
WAITING = [Call("delete_file", {"path": "notes.txt"}), Say("done")]

Exeunt = Callable[..., tuple[int, str, str]]


def make_run(folder: Path, steps: Sequence[Any]) -> World:
    """A run on disk, made in this process."""

    async def make() -> World:
        async with trio.open_nursery() as nursery:
            world = World(folder, nursery)
            await world.provide(steps)
            await world.perform()
            nursery.cancel_scope.cancel()
        return world

    return trio.run(make)


@pytest.fixture
def state(counting: None, tmp_path: Path) -> Path:
    """A state directory with one completed run, r1."""
    make_run(tmp_path / "state", STEPS)
    return tmp_path / "state"


@pytest.fixture
def exeunt(capsys: pytest.CaptureFixture[str], state: Path) -> Exeunt:
    """Type a command; what came back: exit code, standard output, standard error."""

    def type_(*words: str) -> tuple[int, str, str]:
        code = main([*words] if "--state-dir" in words else [*words, "--state-dir", str(state)])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return type_


def copy_run(state: Path, new: str, keep: int | None = None) -> Path:
    """The run r1 under another name, with only the first ``keep`` bytes of its journal."""
    folder = state / "runs" / new
    folder.mkdir()
    data = (state / "runs" / "r1" / JOURNAL).read_bytes()
    (folder / JOURNAL).write_bytes(data[:keep])
    return folder


def test_ps_lists_runs_as_a_tree_with_what_they_cost(exeunt: Exeunt, state: Path) -> None:
    """Children stand below their parents; a run without ending that nobody holds is cut off."""
    copy_run(state, "r1.1.0")
    copy_run(state, "r1.1.0.2.1")
    copy_run(state, "r2", keep=900)
    (state / "runs" / "r3").mkdir()
    code, shown, _ = exeunt("ps")
    lines = [line.split() for line in shown.splitlines()]
    assert code == 0
    assert {line[0]: line[2] for line in lines[1:]} == {
        "r1": "completed", "r1.1.0": "completed", "r1.1.0.2.1": "completed",
        "r2": "cut", "r3": "not",
    }  # fmt: skip
    assert "\n  r1.1.0 " in shown
    assert "\n    r1.1.0.2.1 " in shown
    rows = json.loads(exeunt("ps", "--json")[1])
    assert sorted(row["run_id"] for row in rows) == ["r1", "r2", "r3"]
    first = next(row for row in rows if row["run_id"] == "r1")
    assert first["children"][0]["children"][0]["run_id"] == "r1.1.0.2.1"
    assert (first["status"], first["agent"], first["turns"], first["pid"]) == (
        "completed", "lead", 2, None,
    )  # fmt: skip
    assert first["cost_usd"] > 0
    assert first["age_s"] >= 0
    one = json.loads(exeunt("ps", "r1.1.0", "--json")[1])
    assert [row["run_id"] for row in one] == ["r1.1.0"]


def test_ps_shows_damage_as_a_status_and_says_what_it_is(exeunt: Exeunt, state: Path) -> None:
    """One broken journal hides no other run."""
    folder = copy_run(state, "r2")
    data = bytearray((folder / JOURNAL).read_bytes())
    data[400] ^= 0xFF
    (folder / JOURNAL).write_bytes(data)
    code, shown, _ = exeunt("ps")
    assert code == 0
    assert "\nr2   -      damaged" in shown
    assert "is damaged at byte" in shown
    assert "\nr1 " in shown
    code, shown, told = exeunt("show", "r2")
    assert (code, shown) == (2, "")
    assert "is damaged at byte" in told


@pytest.mark.parametrize("limit", ["SIZE_WARNED", "TURNS_WARNED"])
def test_a_run_that_has_grown_very_long_is_warned_of(
    exeunt: Exeunt, state: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """By its bytes or its turns, as long as it can be gone on with."""
    copy_run(state, "r2", keep=-7)
    assert "its journal has" not in exeunt("ps")[1]
    monkeypatch.setattr(standing, limit, 2)
    shown = exeunt("ps")[1]
    assert shown.count("its journal has") == 1
    assert "r2: its journal has 0 MiB and 2 turns, which every resume reads" in shown
    rows = json.loads(exeunt("ps", "--json")[1])
    assert {row["run_id"]: bool(row["warning"]) for row in rows} == {"r1": False, "r2": True}


def test_ps_calls_a_run_running_while_somebody_holds_it(exeunt: Exeunt, state: Path) -> None:
    """The process id is the kernel's word for who has the lock."""
    folder = copy_run(state, "r2", keep=900)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        row = json.loads(exeunt("ps", "r2", "--json")[1])[0]
        assert (row["status"], row["pid"]) == ("running", os.getpid())
        code, _, told = exeunt("stop", "r2")
        assert code == 1
        assert f"kill {os.getpid()}" in told
        code, _, told = exeunt("approve", "r2", "1.0")
        assert code == 2
        assert "is being performed by process" in told


LOCKS = """\
1: FLOCK  ADVISORY  WRITE 501 00:2f:77 0 EOF
1: -> FLOCK  ADVISORY  WRITE 502 00:2f:77 0 EOF
2: POSIX  ADVISORY  WRITE 503 00:2f:78 0 EOF
3: FLOCK  ADVISORY  WRITE 504 00:2f:177 0 EOF
4: FLOCK  ADVISORY  WRITE 505 08:01:77 0 EOF
5: OFDLCK ADVISORY  READ -1 00:06:79 0 EOF
"""


@pytest.mark.parametrize(
    ("device", "inode", "written", "pid"),
    [
        ("00:2f", 77, "", 501),
        ("08:01", 77, "505", 505),
        ("00:33", 77, "501", 501),
        ("00:33", 77, "505", 505),
        ("00:33", 77, "502", None),
        ("00:33", 77, "", None),
        ("00:2f", 78, "503", None),
        ("00:2f", 7, "501", None),
        ("00:2f", 79, "-1", None),
    ],
)
def test_a_holder_is_known_by_device_or_by_what_is_written(
    device: str, inode: int, written: str, pid: int | None
) -> None:
    """Where stat shows another device than the kernel's table; who waits holds nothing."""
    assert holder_in(LOCKS, device, inode, written) == pid


def test_an_empty_state_directory_is_said_to_be_empty(exeunt: Exeunt, tmp_path: Path) -> None:
    """No table without runs; JSON is still a document."""
    empty = ("--state-dir", str(tmp_path / "none"))
    code, shown, told = exeunt("ps", *empty)
    assert (code, shown) == (0, "")
    assert "there are no runs in" in told
    assert json.loads(exeunt("ps", "--json", *empty)[1]) == []


def test_show_tells_the_whole_story(exeunt: Exeunt) -> None:
    """Prompts, what the model said, each call with its result, and the ending."""
    code, shown, told = exeunt("show", "r1")
    assert (code, told) == (0, "")
    for words in (
        "run r1  agent lead  completed",
        "Which file mentions a timeout?",
        "turn 1",
        '1.0  read_file {"path":"errors.log"}',
        "worker 7 timed out after 30000 ms",
        "turn 2",
        "completed  2 turns, 1 tool run",
    ):
        assert words in shown


def test_show_cuts_long_texts_and_shows_one_turn_whole(exeunt: Exeunt, state: Path) -> None:
    """The transcript says how much it left out, and names the command that does not."""
    make_run(state / "long", [Say("\n".join(f"line {n}" for n in range(40)))])
    long = ("--state-dir", str(state / "long"))
    shown = exeunt("show", "r1", *long)[1]
    assert "line 11\n" in shown
    assert "line 12\n" not in shown
    assert "[28 more lines: exeunt show r1 --turn 1 --state-dir" in shown
    assert "line 39" in exeunt("show", "r1", "--turn", "1", *long)[1]
    code, _, told = exeunt("show", "r1", "--turn", "2", *long)
    assert code == 2
    assert "has 1 turns" in told


def test_show_json_is_the_whole_state(exeunt: Exeunt) -> None:
    """Digests are hexadecimal, and the head has names."""
    found = json.loads(exeunt("show", "r1", "--json")[1])
    assert (found["run_id"], found["status"]) == ("r1", "completed")
    assert found["head"]["turns"] == 2
    assert found["turns"][0]["message"]["text"] == EVIL
    assert len(bytes.fromhex(found["turns"][0]["calls"][0]["digest"])) == 16
    assert found["outcome"]["output"] == f"{EVIL} done"


def test_trace_prints_the_lines_of_the_file(exeunt: Exeunt, state: Path) -> None:
    """One JSON value a line, the same values as in the file, and with --json an array of them."""
    raw = (state / "runs" / "r1" / "trace.jsonl").read_bytes().split(b"\n")
    code, shown, _ = exeunt("trace", "r1")
    lines = [json.loads(line) for line in shown.splitlines()]
    assert code == 0
    assert lines == [json.loads(line) for line in raw if line]
    assert json.loads(exeunt("trace", "r1", "--json")[1]) == lines
    assert exeunt("trace", "r1", "--follow")[1] == shown


@pytest.mark.parametrize("lost", ["all", "behind", "torn", "ahead", "garbage"])
def test_trace_makes_lines_that_the_file_lost_from_the_journal(
    lost: str, exeunt: Exeunt, state: Path
) -> None:
    """A crash may leave the file short, torn or too long; it is read and never written."""
    file = state / "runs" / "r1" / "trace.jsonl"
    whole = file.read_bytes()
    expected = exeunt("trace", "r1")[1]
    lines = whole.split(b"\n")
    left = {
        "all": b"",
        "behind": b"\n".join(lines[:2]) + b"\n",
        "torn": b"\n".join(lines[:3])[:-9],
        "ahead": whole + lines[-2].replace(b'"frame":', b'"frame":9') + b"\n",
        "garbage": whole + b"\xff\x1b[2J\n[]\n{}\n",
    }[lost]
    file.write_bytes(left)
    assert exeunt("trace", "r1")[1] == expected
    assert file.read_bytes() == left


def test_trace_merges_children_in_the_order_of_time(exeunt: Exeunt, state: Path) -> None:
    """The lines of a tree are one story."""
    copy_run(state, "r1.1.0")
    lines = json.loads(exeunt("trace", "r1", "--json")[1])
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)
    assert len(lines) == 2 * len(json.loads(exeunt("trace", "r1.1.0", "--json")[1]))


@pytest.mark.parametrize(
    "words",
    [
        ["ps"], ["show", "r1"], ["show", "r1", "--turn", "1"], ["show", "r1", "--json"],
        ["trace", "r1"], ["trace", "r1", "--json"], ["resume", "r1"], ["resume", "r1", "--json"],
    ],
)  # fmt: skip
def test_nothing_that_a_model_said_steers_the_terminal(words: list[str], exeunt: Exeunt) -> None:
    """Escape sequences, C1 controls, bidi and separators are shown as escapes everywhere."""
    _, shown, told = exeunt(*words)
    assert (shown + told).replace("\n", "").isprintable()


def test_a_run_that_has_ended_is_neither_resumed_nor_stopped(exeunt: Exeunt, state: Path) -> None:
    """Resume tells the ending without a process; stop has nothing to do, and says so."""
    config = load_config(Path(__file__).parent.parent / "configs" / "plan.toml")
    (state / "runs" / "r1" / "config.json").write_bytes(config.to_json())
    code, shown, told = exeunt("resume", "r1", "--json")
    assert code == 0
    assert json.loads(shown)["status"] == "completed"
    assert "nothing was done" in told
    code, shown, told = exeunt("stop", "r1", "--json")
    assert code == 0
    assert json.loads(shown) == {
        "run_id": "r1", "stopped": False, "status": "completed", "reason": "completed",
    }  # fmt: skip
    assert "had ended before" in told


def test_stop_of_a_run_that_was_cut_off_names_resume(exeunt: Exeunt, state: Path) -> None:
    """There is nobody to be stopped, which is no success."""
    copy_run(state, "r2", keep=900)
    code, _, told = exeunt("stop", "r2")
    assert code == 1
    assert "is not running (cut off)" in told
    assert "exeunt resume r2" in told


def test_a_child_is_told_from_its_root(exeunt: Exeunt, state: Path) -> None:
    """A child goes on with its root, and the message says what to type."""
    copy_run(state, "r1.1.0")
    code, _, told = exeunt("resume", "r1.1.0")
    assert code == 2
    assert "exeunt resume r1 " in told


def test_a_verdict_without_resume_is_recorded_and_shown(exeunt: Exeunt, state: Path) -> None:
    """--no-resume leaves the run as it is, and says how to go on; twice changes nothing."""
    make_run(state / "waiting", WAITING)
    where = ("--state-dir", str(state / "waiting"))
    assert "has not run" in exeunt("show", "r1", *where)[1]
    code, _, told = exeunt("approve", "r1", "1.1", *where)
    assert code == 2
    assert "waiting for a verdict: 1.0" in told
    words = ("reject", "r1", "1.0", "--reason", "keep\x1b[2J it", "--no-resume", "--json", *where)
    code, shown, told = exeunt(*words)
    assert code == 0
    assert json.loads(shown) == {
        "run_id": "r1", "call": "1.0", "recorded": True, "status": "interrupted",
    }  # fmt: skip
    assert "next: exeunt resume r1 --state-dir" in told
    code, shown, told = exeunt(*words)
    assert json.loads(shown)["recorded"] is False
    assert "was rejected before; nothing was recorded" in told
    shown = exeunt("show", "r1", *where)[1]
    assert ": rejected: keep\\x1b[2J it" in shown


def test_arguments_given_with_a_verdict_must_be_an_object(exeunt: Exeunt) -> None:
    """Checked before anything is recorded."""
    for args in ("[1]", "{", "null", '{"a": NaN}', '{"a":' * 5000):
        code, _, told = exeunt("approve", "r1", "1.0", "--args", args)
        assert code == 2
        assert "--args is" in told


@pytest.mark.parametrize("how", ["gone", "empty"])
def test_a_lost_journal_is_not_a_run_that_never_started(
    exeunt: Exeunt, state: Path, how: str
) -> None:
    """Its trace tells that it was under way, so it is refused and not paid for again."""
    journal = state / "runs" / "r1" / "journal.x1"
    journal.unlink()
    if how == "empty":
        journal.touch()
    code, out, told = exeunt("show", "r1")
    assert (code, out) == (2, "")
    assert "the journal of run r1 is gone or empty" in told


@pytest.mark.parametrize("possibly", [0.0, 0.01])
def test_the_total_of_ps_says_what_was_possibly_spent(possibly: float) -> None:
    """With a plus, as the row does whose money that is."""
    root, child = (
        ps.Row(
            run_id=name,
            status="completed",
            agent="lead",
            turns=1,
            cost_usd=0.25,
            possibly_spent_usd=maybe,
            input_tokens=1,
            output_tokens=1,
            age_s=None,
            pid=None,
            children=[],
        )
        for name, maybe in (("r1", 0.0), ("r1.1.0", possibly))
    )
    lines = ps.table(ps.tree([root, child]), Style(sys.stdout)).splitlines()
    assert ("$0.250000+" in lines[2]) == (possibly > 0)
    assert lines[3].endswith("$0.500000+" if possibly else "$0.500000")
