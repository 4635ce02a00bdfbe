"""The rehearsal: what it leaves behind, and a machine that has no room for it."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os, resource, sys, threading
from actors.rehearsal import rehearse

def open_files():
    return sorted(os.listdir("/proc/self/fd"))

before = open_files()
if sys.argv[1] == "no room":
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
endings = rehearse()
assert open_files() == before, open_files()
assert threading.active_count() == 1
print(*endings)
"""


def rehearsed(how: str, tmp_path: Path) -> str:
    """What a process prints that rehearses."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT, how],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert list(tmp_path.iterdir()) == []
    return done.stdout + done.stderr


def test_a_rehearsal_ends_well_and_leaves_nothing_behind(tmp_path: Path):
    """No file, no open descriptor, no thread: a fork would inherit them."""
    assert rehearsed("well", tmp_path) == "interrupted completed completed completed completed\n"


def test_a_machine_without_room_only_starts_cold(tmp_path: Path):
    """Where no file can be written there is no rehearsal, and no error either."""
    assert rehearsed("no room", tmp_path) == "\n"


def test_a_folder_that_no_configuration_could_name_only_makes_it_start_cold(tmp_path: Path):
    """Names that are no UTF-8 are in no frame, and so in no rehearsal."""
    odd = tmp_path / os.fsdecode(b"\xff")
    odd.mkdir()
    assert rehearsed("well", odd) == "\n"
