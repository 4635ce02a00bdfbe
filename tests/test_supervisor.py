"""Whole runs through a supervisor: configuration in, report out, and one Stop for everything."""

import json
import os
import shutil
import signal
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from run_tools import is_alive

from actors.events import Opened
from actors.journal import read_events
from actors.spec import LimitChange
from supervisor import ConfigError, RunRefused, StateError, Supervisor, load_config, open_supervisor
from supervisor.config import Config
from supervisor.stop_socket import StopRequest, ask

HERE = Path(__file__).parent
WORKSPACE = HERE.parent / "examples" / "workspace"
SECONDS = 20.0
HEAD = """
[run]
agent = "lead"
task = "Which file mentions a timeout?"
[agents.lead]
tools = {tools}
[tools.files]
root = "workspace"
[tools.mine]
module = "run_tools"
[supervision]
stop_grace_s = 1.0
[state]
durability = "process"
"""
SCRIPTED = """
[pricing]
input = 2.00
output = 12.00
[provider]
kind = "scripted"
script = "{script}"
scripts = ["run_scripts"]
latency_ms = {latency}
"""


class Ground:
    """A folder with configurations and a state directory, and a supervisor over it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state_dir = folder / "state"
        self.lines: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self.told: defaultdict[str, trio.Event] = defaultdict(trio.Event)
        shutil.copytree(WORKSPACE, folder / "workspace")
        for name in ("run_tools.py", "run_scripts.py"):
            shutil.copy(HERE / name, folder)

    def config(self, script: str, *tools: str, latency: int = 0, more: str = "") -> Config:
        text = HEAD.format(tools=json.dumps(tools or ["list_files", "read_file"]))
        text += SCRIPTED.format(script=script, latency=latency) + more
        return self.config_of(text)

    def config_of(self, text: str) -> Config:
        path = self.folder / "config.toml"
        path.write_text(text)
        return load_config(path)

    def hear(self, run_id: str, line: bytes) -> None:
        told = json.loads(line)
        self.lines[run_id].append(told)
        self.told[told["type"]].set()

    @asynccontextmanager
    async def supervisor(self) -> AsyncGenerator[Supervisor, None]:
        with trio.fail_after(SECONDS):
            async with open_supervisor(self.state_dir, listener=self.hear) as supervisor:
                yield supervisor

    def pids(self, run_id: str) -> list[int]:
        events = read_events(self.state_dir / "runs" / run_id)
        return [event.pid for event in events if isinstance(event, Opened)]


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


@pytest.mark.slow
async def test_a_run_is_reported_as_its_journal_has_it(ground: Ground) -> None:
    """Figures, answer, trace and files; afterwards nothing is left running."""
    async with ground.supervisor() as supervisor:
        report = await supervisor.run(ground.config("plan"), "r1")
        assert supervisor.children() == []
    assert (report.status, report.exit_code) == ("completed", 0)
    assert report.output == "errors.log mentions a timeout: worker 7 timed out after 30000 ms."
    assert (report.turns, report.tool_runs) == (3, 2)
    expected = report.input_tokens * 2e-6 + report.output_tokens * 12e-6
    assert report.cost_usd == pytest.approx(expected) == report.tree.cost_usd
    assert ground.lines["r1"][-1]["type"] == "run_stopped"
    assert not any(map(is_alive, ground.pids("r1")))
    run_dir = ground.state_dir / "runs" / "r1"
    assert {path.stat().st_mode & 0o077 for path in run_dir.iterdir()} == {0}
    assert not (run_dir / "control.sock").exists()


@pytest.mark.slow
async def test_a_killed_run_ends_as_one_that_never_was(ground: Ground) -> None:
    """The actor is killed in its second turn: the same answer, cost and number of tool runs."""
    async with ground.supervisor() as supervisor:
        whole = await supervisor.run(ground.config("plan"), "r1")

        async def kill() -> None:
            await ground.told["tool_result"].wait()
            (child,) = supervisor.children()
            assert child.pid
            os.kill(child.pid, signal.SIGKILL)

        ground.told.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            killed = await supervisor.run(ground.config("plan", latency=50), "r2")
    assert (killed.output, killed.turns, killed.tool_runs) == (
        whole.output,
        whole.turns,
        whole.tool_runs,
    )
    assert killed.cost_usd == whole.cost_usd
    assert 0 < killed.possibly_spent_usd < 0.1
    assert len(ground.pids("r2")) == 2


@pytest.mark.slow
async def test_a_run_over_two_supervisors_is_one_run(ground: Ground) -> None:
    """The first stops it, the second goes on; its trace is one query."""
    async with ground.supervisor() as supervisor:
        async with trio.open_nursery() as nursery:

            async def stop() -> None:
                await ground.told["tool_result"].wait()
                supervisor.stop("good night")

            nursery.start_soon(stop)
            report = await supervisor.run(ground.config("plan", latency=50), "r1")
        assert (report.status, report.exit_code) == ("interrupted", 6)
        assert report.interruption["reason"] == "good night"
        late = await supervisor.run(ground.config("plan"), "r2")
        assert late.interruption["reason"] == "good night"
    async with ground.supervisor() as supervisor:
        report = await supervisor.resume("r1")
        assert report.status == "completed"
        assert (report.turns, report.tool_runs) == (3, 2)
        again = await supervisor.resume("r1")
        assert again == report
    seqs = [line["seq"] for line in ground.lines["r1"]]
    assert seqs == list(range(1, len(seqs) + 1))


@pytest.mark.slow
async def test_stop_from_another_terminal_reaches_a_tool(ground: Ground) -> None:
    """Through the socket in the run's directory: private, and gone with the run."""
    async with ground.supervisor() as supervisor:
        run_dir = ground.state_dir / "runs" / "r1"
        taken: list[bool] = []

        async def stop() -> None:
            await ground.told["tool_progress"].wait()
            assert (run_dir / "control.sock").stat().st_mode & 0o077 == 0
            for run_id in ("r9", "r1"):
                request = StopRequest(run_id, "stopped from afar", "somebody")
                taken.append(await trio.to_thread.run_sync(ask, run_dir, request))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop)
            report = await supervisor.run(ground.config("waits", "wait"), "r1")
    assert taken == [False, True]
    assert report.interruption == {
        "type": "cancelled",
        "reason": "stopped from afar",
        "who": "somebody",
    }
    assert not ask(run_dir, StopRequest("r1", "too late"))


@pytest.mark.slow
async def test_a_run_under_way_is_refused_to_a_second_resume(ground: Ground) -> None:
    """In words, from this program and from another one; the first is not disturbed."""
    async with ground.supervisor() as supervisor:
        # Another program, of which only the tree matters here.
        other = Supervisor(supervisor.state_dir, supervisor.spawner, supervisor._nursery, ignore)

        async def intrude() -> None:
            await ground.told["tool_progress"].wait()
            (child,) = supervisor.children()
            with pytest.raises(RunRefused, match=f"is held by process {child.pid}"):
                await other.resume("r1")
            with pytest.raises(RunRefused, match="under way in this program"):
                await supervisor.resume("r1")
            supervisor.stop("enough")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(intrude)
            report = await supervisor.run(ground.config("waits", "wait"), "r1")
    assert report.interruption["reason"] == "enough"


def ignore(run_id: str, line: bytes) -> None:
    """Nobody listens."""


@pytest.mark.slow
async def test_kill_leaves_everything_resumable(ground: Ground) -> None:
    """No ending is recorded; raised limits come with the resume."""
    async with ground.supervisor() as supervisor:

        async def kill() -> None:
            await ground.told["tool_progress"].wait()
            supervisor.kill()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            report = await supervisor.run(ground.config("waits", "wait"), "r1")
        assert (report.status, report.exit_code) == (None, 130)
    async with ground.supervisor() as supervisor:
        report = await supervisor.resume("r1", LimitChange(max_turns=5))
    assert report.status == "completed"


@pytest.mark.slow
async def test_a_provider_that_dies_comes_back_at_its_address(ground: Ground) -> None:
    """The scripted provider keeps nothing of a run, so the run only asks again."""
    async with ground.supervisor() as supervisor:

        async def kill() -> None:
            await ground.told["tool_result"].wait()
            for pid in providers():
                os.kill(pid, signal.SIGKILL)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            report = await supervisor.run(ground.config("plan", latency=30), "r1")
    assert report.status == "completed"
    assert any(line["type"] == "turn_failed" for line in ground.lines["r1"])


def providers() -> list[int]:
    """The scripted providers that this process's zygote has made."""
    found = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/comm")]
    return [
        pid
        for pid in found
        if (fields := stat_of(pid)) and fields[0] == "exeunt-provider" and ours(int(fields[2]))
    ]


def ours(zygote: int) -> bool:
    fields = stat_of(zygote)
    return bool(fields) and int(fields[2]) == os.getpid()


def stat_of(pid: int) -> list[str]:
    """Name, state and parent of a process; nothing when it is gone."""
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
    except OSError:
        return []
    return [name, *rest.split()]


@pytest.mark.slow
async def test_mistakes_are_told_as_what_they_are(ground: Ground) -> None:
    """A run that cannot start leaves as the error that it is, alone and in words."""
    served = HEAD.format(tools="[]") + (
        '[provider]\nkind = "openai"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n'
        'api_key_env = "A_MISSING_KEY"\n'
    )
    async with ground.supervisor() as supervisor:
        await supervisor.run(ground.config("plan"), "r1")
        with pytest.raises(StateError, match="there is a run r1 already"):
            await supervisor.run(ground.config("plan"), "r1")
        with pytest.raises(StateError, match="there is no run r9"):
            await supervisor.resume("r9")
        with pytest.raises(StateError, match="is no run id"):
            await supervisor.run(ground.config("plan"), "../r9")
        with pytest.raises(ConfigError, match="A_MISSING_KEY is not set"):
            await supervisor.run(ground.config_of(served), "r2")
        assert not supervisor.state_dir.exists("r2")


@pytest.mark.slow
async def test_a_program_that_fails_leaves_no_process(ground: Ground) -> None:
    """An exception in the block passes as it is; its runs are stopped and recorded first."""

    class Mistake(Exception):
        pass

    async def fail() -> None:
        await ground.told["tool_progress"].wait()
        raise Mistake

    async def program() -> None:
        async with ground.supervisor() as supervisor, trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            await supervisor.run(ground.config("waits", "wait"), "r1")

    with pytest.raises(BaseExceptionGroup) as caught:
        await program()
    assert caught.group_contains(Mistake)
    assert not any(map(is_alive, ground.pids("r1")))
    async with ground.supervisor() as supervisor:
        report = await supervisor.resume("r1")
    assert report.status == "completed"
