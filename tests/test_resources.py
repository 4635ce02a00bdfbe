"""Resource limits of an actor and its tools, with real processes that go over them."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from caged import caged, helpers_on_the_path, use
from caged_tools import MIB
from world import World

from actors import landlock
from actors.events import Opened
from actors.outcome import Outcome, Status
from actors.resources import limit_words
from actors.spec import Resources
from actors.testing.scripts import Call, Say
from actors.tool_calls import error_words
from supervisor.commands import doctor
from supervisor.config import ConfigError, load_config

__all__ = ["helpers_on_the_path"]

DONE = Say("done")
OUT_OF_TIME = "killed by SIGXCPU, as it had used up its CPU time of 1 s (cpu_s)"
LIMITS = Resources(memory_mib=1024, cpu_seconds=50, open_files=100, file_size_mib=10)
CONFIG = """
[run]
agent = "lead"
task = "x"
[provider]
kind = "scripted"
script = "plan"
[agents.lead]
"""


async def run(world: World, tool: str, resources: Resources, kind: str = "zygote") -> Outcome:
    await world.provide([Call(tool), DONE])
    use(world, tool)
    world.change(resources=resources)
    async with caged(world, kind=kind) as here:
        outcome = await here.run()
    assert outcome
    return outcome


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("allocate", "error: out of memory: the limit is 1024 MiB (memory_mb)"),
        ("open_many", "error: too many open files: the limit is 100 (open_files)"),
        ("write_long", "error: file too large: the limit is 10 MiB (file_size_mb)"),
    ],
)
async def test_a_tool_over_a_limit_is_told_which(world: World, tool: str, words: str):
    """The model reads the limit's name and size, and the run goes on."""
    outcome = await run(world, tool, LIMITS)
    assert world.results() == [words]
    assert outcome.status is Status.COMPLETED


async def test_programs_have_their_actor_s_limits(world: World):
    """No process of the run has more, and none leaves a core file."""
    await run(world, "tell_limits", LIMITS)
    actor, program = json.loads(world.results()[0])
    own = json.loads(actor)
    expected = {"AS": 1024 * MIB, "CPU": 50, "NOFILE": 100, "FSIZE": 10 * MIB, "CORE": 0}
    assert own == {**expected, "xfsz": True}
    assert {name: program[name] for name in expected} == expected


@pytest.mark.slow
async def test_a_run_out_of_cpu_time_fails_by_name(world: World):
    """Each process is killed at its limit; after the restarts the run's error names the limit."""
    world.change(max_restarts=1)
    outcome = await run(world, "spin", Resources(cpu_seconds=1))
    assert outcome.status is Status.FAILED
    assert outcome.error
    assert "crash loop" in outcome.error
    assert outcome.error.endswith(f"the last process {OUT_OF_TIME}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "words", "processes"),
    [
        ("burn", f"started before the process was killed ({OUT_OF_TIME}) and its outcome is", 2),
        ("spin", f"ended the process 3 times, the last one {OUT_OF_TIME}, and was not run", 4),
    ],
)
async def test_the_model_reads_which_limit_ended_its_call(
    world: World, tool: str, words: str, processes: int
):
    """A write that nobody can answer for, and a read that was tried again; the run goes on."""
    outcome = await run(world, tool, Resources(cpu_seconds=1))
    assert outcome.status is Status.COMPLETED
    (result,) = world.results()
    assert words in result
    assert len([one for one in world.events if isinstance(one, Opened)]) == processes


async def test_too_little_memory_to_work_in_is_refused(world: World):
    """The words say how much an actor needs, and nothing is asked."""
    outcome = await run(world, "allocate", Resources(memory_mib=70))
    assert outcome.status is Status.FAILED
    assert "memory_mb = 70 is too little for an actor" in (outcome.error or "")
    assert not world.bills()


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.EMFILE, "x"), OSError(27, "x")])
def test_no_limit_of_ours_is_named_where_there_is_none(error: Exception):
    """The words say what happened, with a size only if there is a limit."""
    words = limit_words(error)
    assert words.split(":")[0] in ("out of memory", "too many open files", "file too large")
    assert "-1" not in words
    assert error_words(error) == words


def load(tmp_path: Path, text: str) -> Any:
    (tmp_path / "given").mkdir(exist_ok=True)
    file = tmp_path / "exeunt.toml"
    file.write_text(CONFIG + text)
    return load_config(file, environ={}).run_spec()


def test_a_config_limits_an_agent(tmp_path: Path):
    """``[agents.X.resources]`` and ``[agents.X.sandbox]`` reach the run's specification."""
    spec = load(
        tmp_path,
        "[agents.lead.resources]\nmemory_mb = 1024\ncpu_s = 50\nopen_files = 100\n"
        "file_size_mb = 64\n"
        '[agents.lead.sandbox]\nlandlock = true\nread = ["given"]\n',
    )
    assert spec.resources == Resources(
        memory_mib=1024, cpu_seconds=50, open_files=100, file_size_mib=64
    )
    assert spec.sandbox
    assert spec.sandbox.network is False
    assert spec.sandbox.read == (str(tmp_path / "given"),)


def test_doctor_says_what_is_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of this machine and of each agent; a sandbox that cannot be had is a problem."""
    load(tmp_path, "[agents.lead.resources]\ncpu_s = 50\n[agents.lead.sandbox]\nlandlock = true\n")
    config = load_config(tmp_path / "exeunt.toml", environ={})
    monkeypatch.setattr(landlock, "abi", lambda: 4)
    words = doctor._isolation(config)
    assert "Landlock can confine files, TCP here" in words
    assert "lead has a sandbox and cpu_s = 50" in words
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    assert "Landlock can confine nothing here" in doctor._isolation(None)
    with pytest.raises(doctor.Problem, match=r"agent lead: the sandbox needs Landlock version 4"):
        doctor._isolation(config)


def test_a_config_without_them_limits_nothing(tmp_path: Path):
    """Nor does a sandbox that is switched off."""
    assert load(tmp_path, "").resources == Resources()
    assert load(tmp_path, "[agents.lead.sandbox]\nlandlock = false\n").sandbox is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[agents.lead.resources]\nmemory_mb = 1", "agents.lead.resources.memory_mb: expected"),
        ("[agents.lead.resources]\ncpu_s = 1.5", "agents.lead.resources.cpu_s: expected"),
        ("[agents.lead.resources]\nprocesses = 9", "agents.lead.resources.processes: unknown key"),
        ("[agents.lead.sandbox]\nnetwork = false", "agents.lead.sandbox.landlock: is missing"),
        (
            '[agents.lead.sandbox]\nlandlock = true\nread = ["none"]',
            "agents.lead.sandbox.read[0]: there is no none in the working directory",
        ),
    ],
)
def test_a_bad_limit_is_refused(tmp_path: Path, text: str, words: str):
    """The error names the key, and a sandbox is never on by half."""
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert words in str(caught.value)
