"""What README shows to be typed does what it says there."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from actors.events import Opened
from supervisor import StateDir

HERE = Path(__file__).parent.parent
README = HERE / "README.md"
SECONDS_MAX = 60.0

pytestmark = pytest.mark.slow


@pytest.mark.skipif(not README.exists(), reason="README.md is not beside the tests")
def test_the_run_that_is_killed_is_killed_and_resumed(tmp_path: Path) -> None:
    """Typed without a pause, on a machine however busy: it was under way, and goes on."""
    blocks = re.findall(r"^```\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    (block,) = [block for block in blocks if "--run-id killed" in block]
    shutil.copytree(HERE / "configs", tmp_path / "configs")
    shutil.copytree(HERE / "examples" / "workspace", tmp_path / "examples" / "workspace")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "EXEUNT_STATE_DIR": str(tmp_path / "state")}
    shell = subprocess.Popen(
        ["bash", "-c", block],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, told = shell.communicate(timeout=SECONDS_MAX)
    finally:
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 0, told
    assert out.startswith("8 of 8 questions came back answered")
    opened = [
        one for one in StateDir(tmp_path / "state").events("killed") if isinstance(one, Opened)
    ]
    assert len(opened) == 2, told
