"""Where a key is, and who can read it: nobody but the supervisor and the actor that sends it."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from caged import HERE, caged, helpers_on_the_path, use
from world import World

from actors.journal import read_events
from actors.outcome import Status
from actors.state import fold
from actors.testing.scripts import Call, Say

__all__ = ["helpers_on_the_path"]

KEY = "sk-a-key-that-nobody-may-see-0123456789"
DONE = Say("done")
NOBODY = 65534
CONFIG = """
[run]
agent = "lead"
task = "Look around."
[provider]
kind = "openai"
base_url = "{base_url}"
api_key_env = "A_KEY"
model = "{model}"
[agents.lead]
tools = ["search"]
[tools.files]
root = "{workspace}"
[tools.ours]
module = "caged_tools"
environment = ["A_KEY", "SHOWN"]
[state]
durability = "process"
"""


@pytest.mark.parametrize("kind", ["zygote", "subprocess"])
async def test_no_process_but_the_supervisor_has_the_key(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str
):
    """A search of all processes, by root if that is who tests, finds it in no environment."""
    # Later than this process's start, so that it is not in what /proc shows of it.
    monkeypatch.setenv("A_KEY", KEY)
    await world.provide([Call("search"), DONE])
    use(world, "search")
    async with caged(world, kind=kind, drop_env=("A_KEY",)) as here:
        outcome = await here.run(key=KEY)
    assert outcome
    assert outcome.status is Status.COMPLETED
    assert "actors" in world.results()[0]
    assert KEY not in world.results()[0]
    assert not _holders_of(KEY, world.run_dir)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["zygote", "subprocess"])
async def test_a_tool_of_the_same_user_cannot_read_the_key(world: World, place: Path, kind: str):
    """Not in the supervisor, whose environment has it, and not by naming it for its programs."""
    await world.provide([Call("search"), DONE])
    config = place / "exeunt.toml"
    config.write_text(CONFIG.format(base_url=world.base_url, model=world.model, workspace=place))
    command = [sys.executable, "-P", "-m", "supervisor", "run", "--run-id", "nosy", str(config)]
    env = {
        **os.environ,
        "A_KEY": KEY,
        "SHOWN": "shown to tools",
        "HIDDEN": "hidden from tools",
        "EXEUNT_SPAWN": kind,
        "EXEUNT_STATE_DIR": str(place / "state"),
        "PYTHONPATH": str(HERE),
    }
    with trio.fail_after(20):
        ran = await trio.run_process(
            [*_as_nobody(), *command],
            env=env,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    result = fold(read_events(place / "state" / "runs" / "nosy")).turns[0].calls[0].result
    assert result
    text = result.content
    # What a tool may see, it saw: so the search has worked.
    assert "shown to tools" in text
    assert "HIDDEN=hidden" not in text
    assert "-m\nsupervisor\nrun" in text
    assert KEY not in text
    assert not _holders_of(KEY, place)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that nobody may enter and root need not; pytest's own lies in a folder of root's."""
    with tempfile.TemporaryDirectory() as name:
        if os.geteuid() == 0:
            os.chown(name, NOBODY, NOBODY)
        yield Path(name)


def _as_nobody() -> list[str]:
    """Words that start a program as a user who is not root, where root would hide a failure."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("root may read everything, and there is no setpriv to be somebody else")
    # The interpreter may lie in a folder of root's, which this capability alone lets it read.
    words = f"--reuid={NOBODY} --regid={NOBODY} --clear-groups"
    rights = "--inh-caps=-all,+dac_read_search --ambient-caps=-all,+dac_read_search"
    return [setpriv, *words.split(), *rights.split(), "--bounding-set=-all,+dac_read_search"]


def _holders_of(secret: str, folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if secret.encode() in path.read_bytes()]
