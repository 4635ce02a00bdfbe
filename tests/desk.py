"""A folder with a configuration and the user's own modules, whose code is tried before a run."""

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from grove import Host

from supervisor import ConfigError, StateDir, Supervisor, load_config
from supervisor.code_check import check_code

HERE = Path(__file__).parent
WORKSPACE = HERE.parent / "examples" / "workspace"
EXEUNT = [sys.executable, "-P", "-m", "supervisor"]
SECONDS_MAX = 30.0
CONFIG = """
[run]
agent = "lead"
task = "Free some space."
[provider]
kind = "scripted"
script = "destructive"
[agents.lead]
tools = {tools}
[agents.lead.limits]
stop_when = {stop_when}
[agents.scout]
tools = ["mine"]
[tools.files]
root = "workspace"
[tools.ask]
agent = "scout"
[tools.own]
module = "my_tools"
{more}
"""
MINE = """
from actors import tool
@tool(read_only=True)
def mine() -> str:
    return "something"
"""
HANG = "__import__('threading').Event().wait()"
KEY = "sk-a-key-that-no-module-may-see"


class Desk:
    """A folder with a configuration, modules beside it and a state directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "my.toml"
        self.state = StateDir(folder / "state")
        shutil.copytree(WORKSPACE, folder / "workspace")
        self.module("my_tools", MINE)
        self.write()

    def write(self, *tools: str, stop_when: tuple[str, ...] = (), more: str = "") -> None:
        named = json.dumps(tools or ["list_files", "delete_file", "mine"])
        given = json.dumps(stop_when)
        self.config.write_text(CONFIG.format(tools=named, stop_when=given, more=more))

    def module(self, name: str, text: str) -> None:
        (self.folder / f"{name}.py").write_text(text)

    def check(self, host: Host, seconds: float = SECONDS_MAX) -> None:
        """Raises ConfigError."""
        self.state.prepare()
        config = load_config(self.config)
        folder = self.state.runs
        host.play(functools.partial(check_code, host.spawner, config, folder, seconds))

    def refused(self, host: Host, seconds: float = SECONDS_MAX) -> str:
        """The words behind the name of the file, with which every error begins."""
        with pytest.raises(ConfigError) as caught:
            self.check(host, seconds)
        file, _, words = str(caught.value).partition(": ")
        assert file == str(self.config)
        return words

    def type_(self, *words: str) -> tuple[int, Any, str]:
        """``exeunt ... --json``, with a key in the environment: exit code, document, the rest."""
        env = {**os.environ, "EXEUNT_STATE_DIR": str(self.state.path), "OPENAI_API_KEY": KEY}
        done = subprocess.run(
            [*EXEUNT, *words, "--json"],
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.stdout.count("\n") == 1, done.stderr
        return done.returncode, json.loads(done.stdout), done.stderr

    def play(self, host: Host, test: Callable[[Supervisor], Awaitable[None]]) -> None:
        """Play a test with a supervisor of this desk in the host's loop."""

        async def played() -> None:
            self.state.prepare()
            with trio.fail_after(SECONDS_MAX):
                async with trio.open_nursery() as nursery:
                    await test(Supervisor(self.state, host.spawner, nursery, lambda *_: None))
                    nursery.cancel_scope.cancel()

        host.play(played)
