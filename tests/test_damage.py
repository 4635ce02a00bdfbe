"""A journal that is damaged, lost or closed: each verb says it in a sentence with a next step."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from world import World

from actors import frame
from actors.journal import JOURNAL, LOCK
from actors.testing.scripts import Call, Say
from supervisor.cli import main
from supervisor.config import load_config
from supervisor.state_dir import CONFIG
from supervisor.tree_lock import lock_tree

PLAN = Path(__file__).parent.parent / "configs" / "plan.toml"
STEPS = [
    Call("list_files"),
    Call("read_file", {"path": "errors.log"}),
    Call("delete_file", {"path": "notes.txt"}),
    Say("done"),
]
READING = [["show", "r1"], ["tell", "r1", "hello"], ["stop", "r1"], ["resume", "r1"]]
VERDICTS = [["approve", "r1", "3.0", "--no-resume"], ["reject", "r1", "3.0", "--no-resume"]]
REFUSING = READING + VERDICTS

Exeunt = Callable[..., tuple[int, str, str]]


def make_run(folder: Path, steps: Sequence[Any]) -> None:
    """A run r1 on disk that waits for a person, made in this process."""

    async def make() -> None:
        async with trio.open_nursery() as nursery:
            world = World(folder, nursery)
            await world.provide(steps)
            await world.perform()
            nursery.cancel_scope.cancel()

    trio.run(make)
    (folder / "runs" / "r1" / CONFIG).write_bytes(load_config(PLAN).to_json())


@pytest.fixture
def state(counting: None, tmp_path: Path) -> Path:
    make_run(tmp_path / "state", STEPS)
    return tmp_path / "state"


@pytest.fixture
def journal(state: Path) -> Path:
    """The journal of the run r1."""
    return state / "runs" / "r1" / JOURNAL


@pytest.fixture
def exeunt(capsys: pytest.CaptureFixture[str], state: Path) -> Exeunt:
    """Type a command; what came back: exit code, standard output, standard error."""

    def type_(*words: str) -> tuple[int, str, str]:
        code = main([*words, "--state-dir", str(state)])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return type_


def flip(journal: Path, number: int = 4) -> None:
    """Turn a bit in the middle of a frame."""
    data = bytearray(journal.read_bytes())
    data[frame.scan(bytes(data)).frames[number].offset + 40] ^= 4
    journal.write_bytes(data)


def make_folder(journal: Path) -> None:
    journal.unlink()
    journal.mkdir()


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "flipped": (flip, "is damaged at byte"),
    "emptied": (lambda journal: journal.write_bytes(b""), "is gone or empty"),
    "lost": (Path.unlink, "is gone or empty"),
    "replaced": (lambda journal: journal.write_bytes(b"a text"), "is no journal of Exeunt"),
    "a folder": (make_folder, "cannot read"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_verb_refuses_a_damaged_journal_alike(
    exeunt: Exeunt, journal: Path, damage: str
) -> None:
    """One sentence with a next step, exit code 2, and nothing of the run is changed."""
    harm, words = DAMAGES[damage]
    harm(journal)
    folder = journal.parent
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    for command in REFUSING:
        code, shown, told = exeunt(*command)
        assert (code, shown) == (2, ""), command
        assert told.startswith("exeunt: "), command
        assert told.count("\n") == 1, command
        assert words in told, command
        assert "from a copy" in told or "mend that and" in told, command
        assert json.loads(exeunt(*command, "--json")[1]) == {"error": told[8:-1]}
    kept = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert {path: kept.get(path) for path in before} == before


@pytest.mark.parametrize("damage", DAMAGES)
def test_looking_at_a_damaged_journal_warns(exeunt: Exeunt, journal: Path, damage: str) -> None:
    """A listing has it as a status; a trace shows what its file has, and says it may be less."""
    whole = exeunt("trace", "r1")[1]
    harm, words = DAMAGES[damage]
    harm(journal)
    code, shown, told = exeunt("ps")
    assert (code, told) == (0, "")
    assert "damaged" in shown
    assert words in shown
    for option in ([], ["--follow"], ["--json"]):
        code, shown, told = exeunt("trace", "r1", *option)
        assert code == 0
        assert told.startswith("exeunt: of r1 these are the lines in its trace file alone: ")
        assert words in told
        assert told.count("\n") == 1
        lines = [json.dumps(one) for one in json.loads(shown)] if option == ["--json"] else shown
        assert len(lines if isinstance(lines, list) else lines.splitlines()) == whole.count("\n")


def test_a_torn_tail_is_no_damage(exeunt: Exeunt, journal: Path) -> None:
    """It was never acknowledged, so the run stands where it stood before and can go on."""
    journal.write_bytes(journal.read_bytes()[:-7])
    assert "cut off" in exeunt("ps", "r1")[1]
    assert exeunt("show", "r1")[0] == 0
    assert exeunt("trace", "r1")[2] == ""
    code, _, told = exeunt("stop", "r1")
    assert (code, "exeunt resume r1" in told) == (1, True)
    assert exeunt(*VERDICTS[0])[0] == 0


AS_NOBODY = """
import json, os, sys
from supervisor.cli import main
from supervisor.commands import ps, run, show, stop, tell, trace, verdict
if os.geteuid() == 0:
    os.setuid(65534)
print([main([*words, "--state-dir", sys.argv[2]]) for words in json.loads(sys.argv[1])])
"""


@pytest.fixture
def closed(state: Path) -> Iterator[Path]:
    """A state directory in which nobody may enter the directory of the run r1."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    shutil.copytree(state, folder / "state")
    (folder / "state").chmod(0o755)
    (folder / "state" / "runs").chmod(0o755)
    (folder / "state" / "runs" / "r1").chmod(0)
    yield folder / "state"
    (folder / "state" / "runs" / "r1").chmod(0o700)
    shutil.rmtree(folder)


@pytest.mark.slow
def test_a_run_that_may_not_be_entered_is_one_sentence(closed: Path) -> None:
    """The other runs are listed all the same."""
    commands = [["ps"], ["trace", "r1"], *REFUSING]
    command = [sys.executable, "-P", "-c", AS_NOBODY, json.dumps(commands), str(closed)]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=30, check=False, env={**os.environ}
    )
    assert ran.stdout.endswith(f"{[0, 0, *[2] * len(REFUSING)]}\n"), ran.stderr
    assert "damaged" in ran.stdout
    words = f"cannot read {closed / 'runs' / 'r1'}"
    assert ran.stderr.count(words) == len(REFUSING) + 1
    assert ran.stderr.count("\n") == len(REFUSING) + 1


def test_a_repair_says_what_it_would_cut_and_cuts_nothing_without_yes(
    exeunt: Exeunt, journal: Path
) -> None:
    """Bytes, events, what is asked anew and what may be run again; and the command that does it."""
    exeunt(*VERDICTS[0])
    flip(journal)
    data = journal.read_bytes()
    at = frame.scan(data).end
    code, shown, told = exeunt("journal", "repair", "r1")
    assert (code, shown) == (2, "")
    assert f"is damaged at byte {at}, behind turn 1: a repair would cut {len(data) - at:,}" in told
    assert "2 turns ($0.0" in told
    assert "exeunt journal repair r1" in told
    assert "--yes" in told
    found = json.loads(exeunt("journal", "repair", "r1", "--json")[1])
    assert (found["repaired"], found["damage"]["bytes"]) == (False, len(data) - at)
    assert (found["damage"]["turns_kept"], found["damage"]["turns"]) == (1, 2)
    assert journal.read_bytes() == data
    assert not (journal.parent / "torn").exists()
    assert "exeunt journal repair r1" in exeunt("show", "r1")[2], "the way there is told"


def test_a_repair_keeps_what_it_cuts_and_the_run_can_go_on(exeunt: Exeunt, journal: Path) -> None:
    """Its bytes lie beside the journal; another repair finds nothing more to do."""
    whole = journal.read_bytes()
    flip(journal)
    data = journal.read_bytes()
    at = frame.scan(data).end
    code, _, told = exeunt("journal", "repair", "r1", "--yes")
    assert code == 0
    assert "next: exeunt resume r1" in told
    assert journal.read_bytes() == whole[:at]
    assert (journal.parent / "torn" / f"{at}-{len(data)}").read_bytes() == data[at:]
    assert "cut off" in exeunt("ps")[1]
    assert exeunt("trace", "r1")[2] == ""
    code, _, told = exeunt("journal", "repair", "r1", "--yes")
    assert (code, "is sound" in told) == (0, True)


@pytest.mark.parametrize("damage", ["emptied", "lost", "replaced", "a folder"])
def test_a_repair_of_what_no_cut_mends_is_refused(
    exeunt: Exeunt, journal: Path, damage: str
) -> None:
    """As by every other verb, with or without --yes."""
    DAMAGES[damage][0](journal)
    for option in ([], ["--yes"]):
        code, shown, told = exeunt("journal", "repair", "r1", *option)
        assert (code, shown) == (2, "")
        assert DAMAGES[damage][1] in told


def test_damage_of_the_first_event_is_not_cut(exeunt: Exeunt, journal: Path) -> None:
    """Nothing would be left of the run, and its bytes may be worth more than none."""
    flip(journal, 0)
    data = journal.read_bytes()
    code, _, told = exeunt("journal", "repair", "r1", "--yes")
    assert code == 2
    assert "from its beginning, so a cut would keep nothing" in told
    assert journal.read_bytes() == data


def test_a_journal_that_is_held_is_not_repaired(exeunt: Exeunt, journal: Path) -> None:
    """Whoever performs the run, or supervises its tree, is named."""
    flip(journal)
    data = journal.read_bytes()
    with lock_tree(journal.parent):
        code, _, told = exeunt("journal", "repair", "r1", "--yes")
        assert (code, f"held by process {os.getpid()} that supervises it" in told) == (2, True)
    with (journal.parent / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, _, told = exeunt("journal", "repair", "r1", "--yes")
        assert (code, "run r1 is held by process" in told) == (2, True)
    assert journal.read_bytes() == data
