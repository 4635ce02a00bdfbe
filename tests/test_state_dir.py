"""The state directory: one that cannot be read is told in words, and names are names."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.cli import main
from supervisor.state_dir import StateDir, StateError
from supervisor.tree_lock import lock_tree

CONFIG = Path(__file__).parent.parent / "configs" / "plan.toml"
COMMANDS = [
    ["ps"],
    ["ps", "r1"],
    ["show", "r1"],
    ["trace", "r1"],
    ["stop", "r1"],
    ["tell", "r1", "hello"],
    ["resume", "r1"],
    ["approve", "r1", "1.0"],
    ["run", str(CONFIG), "--run-id", "r1"],
]
AS_NOBODY = """
import json, os, sys
from supervisor.cli import main
from supervisor.commands import ps, run, show, stop, tell, trace, verdict
from supervisor.config import load_config
commands = json.loads(sys.argv[1])
load_config(commands[-1][1])
if os.geteuid() == 0:
    os.setuid(65534)
print([main([*words, "--state-dir", sys.argv[2]]) for words in commands])
"""
"""Types commands as a user for whom modes count, once all that they load has been loaded."""


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A state directory with a run r1, which nobody may enter."""
    folder = tmp_path / "state"
    (folder / "runs" / "r1").mkdir(parents=True)
    folder.chmod(0)
    yield folder
    folder.chmod(0o700)


@pytest.mark.slow
def test_a_directory_of_another_user_is_one_sentence(closed: Path) -> None:
    """No traceback, and nobody is told that it holds no runs."""
    command = [sys.executable, "-P", "-c", AS_NOBODY, json.dumps(COMMANDS), str(closed)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ran.stdout == f"{[2] * len(COMMANDS)}\n", ran.stderr
    assert ran.stderr == len(COMMANDS) * (
        f"exeunt: the state directory {closed} cannot be read: Permission denied. "
        "Name one of your own with --state-dir\n"
    )


def test_a_directory_that_is_not_there_has_no_runs_and_a_file_is_told(tmp_path: Path) -> None:
    """The first is how everybody begins, the second is a mistake."""
    assert list(StateDir(tmp_path / "elsewhere").run_ids()) == []
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match="cannot be read: Not a directory"):
        list(StateDir(tmp_path / "file").run_ids())


@pytest.mark.parametrize("words", [["run", str(CONFIG), "--run-id", ""], ["ps", ""]])
def test_an_empty_name_is_no_name(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused, and not taken for none."""
    assert main([*words, "--state-dir", str(tmp_path)]) == 2
    assert "'' is no run id" in capsys.readouterr().err
    assert list(StateDir(tmp_path).run_ids()) == []


def test_who_supervises_a_tree_is_asked_of_the_kernel(tmp_path: Path) -> None:
    """For as long as the lock is held."""
    state_dir = StateDir(tmp_path)
    (state_dir.runs / "r1").mkdir(parents=True)
    assert state_dir.supervisor_of("r1") is None
    with lock_tree(state_dir.run_dir("r1")):
        assert state_dir.supervisor_of("r1") == os.getpid()
    assert state_dir.supervisor_of("r1") is None
