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
from nobody import NOBODY, as_nobody
from world import World

from actors.journal import read_events
from actors.outcome import Status
from actors.state import fold
from actors.testing.scripts import Call, Say
from supervisor import ConfigError, RunRefused, StateDir, key_names, load_config, open_supervisor

__all__ = ["helpers_on_the_path"]

KEY = "sk-a-key-that-nobody-may-see-0123456789"
DONE = Say("done")
SHOWN = "shown to tools"
SECONDS_MAX = 60.0
OURS = os.pathsep.join((str(HERE), str(HERE.parent)))
"""The path of this checkout's helpers and packages, whatever the interpreter has installed."""
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
environment = ["SHOWN"]
[state]
durability = "process"
"""
NOSY = """
[run]
agent = "lead"
task = "Look around."
[provider]
kind = "openai"
base_url = "{base_url}"
api_key_env = "A_KEY"
model = "{model}"
[agents.lead]
tools = ["peek", "pry"]
[tools.ours]
module = "my_tools"
environment = ["SHOWN"]
[state]
durability = "process"
"""
KEYS = {"A_KEY": KEY, "OPENAI_API_KEY": f"{KEY}-by-default"}
PROGRAM = """
import sys

import trio
from supervisor import LimitChange, key_names, load_config, open_supervisor

async def main():
    config = load_config("exeunt.toml", ["agents.lead.limits.max_turns=1"])
    names = key_names(config)
    for going_on in (False, True):
        async with open_supervisor("state", key_names=names, spawn=sys.argv[1]) as supervisor:
            if going_on:
                report = await supervisor.resume("mine", LimitChange(max_turns=5))
                assert report.status == "completed", report
            else:
                report = await supervisor.run(config, "mine")
                assert report.status == "max_turns_exceeded", report

trio.run(main)
"""
PYTEST = """
import os, sys

import pytest

os.environ.update(line.split("=", 1) for line in sys.stdin.read().splitlines())
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "test_mine.py"]))
"""
MY_TEST = """
import sys

pytest_plugins = ["actors.testing.plugin"]

def test_my_agents_survive(exeunt_chaos):
    report = exeunt_chaos("exeunt.toml", plans=sys.argv[1:], recorded="once", state_dir="state")
    assert report.ok, report
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
    """Not in the supervisor, whose environment has it; and naming it for programs is refused."""
    await world.provide([Call("search"), DONE])
    config = place / "exeunt.toml"
    text = CONFIG.format(base_url=world.base_url, model=world.model, workspace=place)
    config.write_text(text.replace('["SHOWN"]', '["SHOWN", "A_KEY"]'))
    with pytest.raises(ConfigError, match=r"tools.ours.environment\[1\]: A_KEY holds a provider's"):
        load_config(config, environ={})
    config.write_text(text)
    command = [sys.executable, "-P", "-m", "supervisor", "run", "--run-id", "nosy", str(config)]
    env = {
        **os.environ,
        "A_KEY": KEY,
        "SHOWN": SHOWN,
        "HIDDEN": "hidden from tools",
        "EXEUNT_SPAWN": kind,
        "EXEUNT_STATE_DIR": str(place / "state"),
        "PYTHONPATH": OURS,
    }
    with trio.fail_after(20):
        ran = await trio.run_process(
            [*as_nobody(), *command],
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
    assert SHOWN in text
    assert "HIDDEN=hidden" not in text
    assert "-m\nsupervisor\nrun" in text
    assert KEY not in text
    assert not _holders_of(KEY, place)


class Verbs:
    """A config whose key is in a variable of another name, and what was seen while it was used."""

    def __init__(self, place: Path, world: World) -> None:
        self.place = place
        self.config = place / "exeunt.toml"
        text = NOSY.format(base_url=world.base_url, model=world.model)
        self.config.write_text(text)
        shutil.copy(HERE / "nosy_tools.py", place / "my_tools.py")
        self._env = {
            **os.environ,
            "SHOWN": SHOWN,
            "EXEUNT_STATE_DIR": str(place / "state"),
            "TMPDIR": str(place),
            "PYTHONPATH": OURS,
        }

    async def exeunt(self, *words: str, code: int = 0) -> None:
        """Type a verb."""
        await self.python("-m", "supervisor", *words, code=code)

    async def python(self, *words: str, exported: bool = True, code: int = 0) -> None:
        """Start Python with the keys in its environment, or else on its standard input."""
        lines = "\n".join(f"{name}={key}" for name, key in KEYS.items())
        with trio.fail_after(SECONDS_MAX):
            ran = await trio.run_process(
                [*as_nobody(), sys.executable, "-P", *words],
                env=self._env | (KEYS if exported else {}),
                cwd=self.place,
                stdin=b"" if exported else lines.encode(),
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
        assert ran.returncode == code, (words, ran.stderr, ran.stdout)
        assert KEY.encode() not in ran.stdout + ran.stderr

    def saw_no_key(self, *whens: str) -> None:
        """The user's code looked at these moments, and found what it may see but no key."""
        looks = list(self.place.glob("seen-*"))
        assert {path.name.split("-")[1] for path in looks} == set(whens)
        for path in looks:
            assert SHOWN.encode() in path.read_bytes()
        assert not _holders_of(KEY, self.place)
        for path in looks:
            path.unlink()


@pytest.mark.slow
async def test_no_verb_shows_a_key_to_the_users_code(world: World, place: Path):
    """Not when modules are checked, nor to a tool, its programs, a journal, a trace or a log."""
    await world.provide([Call("peek"), Call("pry"), DONE])
    verbs = Verbs(place, world)
    config = str(verbs.config)
    await verbs.exeunt("doctor", config)
    verbs.saw_no_key("loaded")
    await verbs.exeunt("run", config, "--run-id", "asks", code=5)
    verbs.saw_no_key("loaded", "called")
    await verbs.exeunt("approve", "asks", "2.0", "--args", "{}", "--no-resume")
    verbs.saw_no_key("loaded")
    await verbs.exeunt("resume", "asks")
    verbs.saw_no_key("loaded", "called")
    await verbs.exeunt("run", config, "--run-id", "again", code=5)
    await verbs.exeunt("approve", "again", "2.0")
    verbs.saw_no_key("loaded", "called")


@pytest.mark.slow
@pytest.mark.chaos
async def test_chaos_shows_no_key_to_the_users_code(world: World, place: Path):
    """No process of any round was ever given one, typed as a verb or asked for by a test."""
    await world.provide([Call("peek"), DONE])
    verbs = Verbs(place, world)
    await verbs.exeunt("run", str(verbs.config), "--run-id", "once")
    verbs.saw_no_key("loaded", "called")
    plan = "kill/zygote/root/turn/1/0"
    await verbs.exeunt("chaos", str(verbs.config), "--recorded", "once", "--plan", plan)
    verbs.saw_no_key("loaded", "called")
    (place / "test_mine.py").write_text(MY_TEST)
    # What a test runner was started with can be seen, as in a shell; what it was told later cannot.
    await verbs.python("-c", PYTEST, plan, exported=False)
    verbs.saw_no_key("loaded", "called")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["zygote", "subprocess"])
async def test_a_program_shows_no_key_to_the_users_code(world: World, place: Path, kind: str):
    """A run and a resume through ``open_supervisor``, told of the key as the README has it."""
    await world.provide([Call("peek"), DONE])
    verbs = Verbs(place, world)
    await verbs.python("-c", PROGRAM, kind)
    verbs.saw_no_key("loaded", "called")


@pytest.mark.slow
async def test_a_key_that_the_supervisor_was_not_told_of_is_refused(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
):
    """To a run and to a resume, with what to do, before anything is loaded or on disk."""
    await world.provide([Call("peek"), DONE])
    verbs = Verbs(place, world)
    config = load_config(verbs.config)
    monkeypatch.setenv("A_KEY", KEY)
    state_dir = StateDir(place / "state")
    state_dir.prepare()
    state_dir.create(config, "waits")
    words = r"^tools would see A_KEY, .* open_supervisor\(\.\.\., key_names=key_names\(config\)\)$"
    async with open_supervisor(state_dir) as supervisor:
        with pytest.raises(RunRefused, match=words):
            await supervisor.run(config, "new")
        with pytest.raises(RunRefused, match=words):
            await supervisor.resume("waits")
    assert not state_dir.exists("new")
    verbs.saw_no_key()
    async with open_supervisor(state_dir, key_names=key_names(config)) as supervisor:
        assert (await supervisor.resume("waits")).status == "completed"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that nobody may enter and root need not; pytest's own lies in a folder of root's."""
    with tempfile.TemporaryDirectory() as name:
        if os.geteuid() == 0:
            os.chown(name, NOBODY, NOBODY)
        yield Path(name)


def _holders_of(secret: str, folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if secret.encode() in path.read_bytes()]
