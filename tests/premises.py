"""A folder with configurations and a state directory, and supervisors over it."""

import functools
import json
import shutil
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from grove import Host

from actors.events import Opened
from actors.journal import read_events
from supervisor import StateDir, Supervisor, load_config, open_supervisor
from supervisor.config import Config
from supervisor.spawner import Spawner

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


class Premises:
    """A folder with configurations and a state directory, and a supervisor over it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state_dir = folder / "state"
        self.spawner: Spawner | None = None
        """One that is warm; without it each supervisor opens its own, as programs do."""
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
        """A supervisor, for as long as the block lasts."""
        with trio.fail_after(SECONDS):
            if self.spawner is None:
                async with open_supervisor(self.state_dir, listener=self.hear) as supervisor:
                    yield supervisor
                return
            state_dir = StateDir(self.state_dir)
            state_dir.prepare()
            async with trio.open_nursery() as nursery:
                yield Supervisor(state_dir, self.spawner, nursery, self.hear)
                nursery.cancel_scope.cancel()

    def pids(self, run_id: str) -> list[int]:
        events = read_events(self.state_dir / "runs" / run_id)
        return [event.pid for event in events if isinstance(event, Opened)]


def ignore(run_id: str, line: bytes) -> None:
    """Nobody listens."""


def hosted(test: Callable[["Premises"], Awaitable[None]]) -> Callable[["Premises", Host], None]:
    """Play a test in the host's loop, with its warm spawner."""

    @functools.wraps(test)
    def run(premises: Premises, host: Host) -> None:
        premises.spawner = host.spawner
        host.play(functools.partial(test, premises))

    del run.__wrapped__  # pytest would read the parameters of the test
    return run
