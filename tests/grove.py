"""Trees of small agents in real processes, with one spawner for all tests that share it.

A test is played in the trio loop of a ``Host``, whose zygote is warm for the next one; everything
else, such as state directory, supervisor and provider, is the test's own.
"""

import functools
import itertools
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import trio
from run_tools import is_alive

from actors.events import AnyEvent, Opened
from actors.journal import JOURNAL
from actors.outcome import Cancelled, Status
from actors.state import State
from actors.testing.faults import Fault
from actors.testing.provider import ProviderSettings, serve
from actors.testing.scripts import Call, Conversation, Say, ScriptFunction, script
from supervisor.child import Child
from supervisor.config import Config, load_config
from supervisor.report import Report
from supervisor.spawner import Spawner, open_spawner
from supervisor.state_dir import StateDir
from supervisor.supervisor import Supervisor

HERE = Path(__file__).parent
WORKSPACE = HERE.parent / "examples" / "workspace"
SECONDS = 30.0
MODULES = ("run_tools.py", "tree_tools.py")
PRELOAD = ("actors.actor", "actors.tokens:encoding")

Steps = ScriptFunction | Sequence[Say | Call | Sequence[Call]]

_numbers = itertools.count(1)


class Host:
    """A trio loop in a thread, with a spawner that outlives single tests."""

    spawner: Spawner

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._live,), name="grove")
        self._thread.start()
        assert self._ready.wait(60), "no spawner was opened"

    async def _live(self) -> None:
        async with open_spawner("zygote", preload=PRELOAD) as spawner:
            self.spawner = spawner
            self._token = trio.lowlevel.current_trio_token()
            self._end = trio.Event()
            self._ready.set()
            await self._end.wait()

    def play(self, function: Callable[[], Awaitable[None]]) -> None:
        """Run a function to its end in this loop."""
        trio.from_thread.run(function, trio_token=self._token)

    def close(self) -> None:
        """Let the processes and the thread go."""
        self._token.run_sync_soon(self._end.set)
        self._thread.join(60)
        assert not self._thread.is_alive()


def fan(many: int, tool: str = "research") -> ScriptFunction:
    """A script that asks so many questions in one message, and repeats what came back."""

    def play(conversation: Conversation) -> Any:
        if conversation.turn == 0:
            return [ask(f"question {number}", tool) for number in range(many)]
        return Say("\n".join(conversation.results))

    return play


def ask(question: str, tool: str = "research") -> Call:
    """A call of a tool with a run behind it."""
    return Call(tool, {"question": question})


def echo(conversation: Conversation) -> Say:
    """A script that answers at once."""
    return Say(f"about {conversation.task}")


class Grove:
    """A state directory, a workspace, a provider that plays functions, and agents."""

    nursery: trio.Nursery
    supervisor: Supervisor

    def __init__(self, host: Host, folder: Path) -> None:
        self.folder = folder
        self.workspace = folder / "workspace"
        self.ledger = folder / "ledger"
        self.lines: list[dict[str, Any]] = []
        """The trace of all runs, in the order in which it was heard."""
        self.asked: list[Conversation] = []
        """What reached the scripts."""
        self._host = host
        self._spawner: Spawner = host.spawner
        self._news = trio.Event()
        self._agents: dict[str, str] = {}
        self._tools: dict[str, str] = {}
        self._provided = ""
        shutil.copytree(WORKSPACE, self.workspace)
        for name in MODULES:
            shutil.copy(HERE / name, folder)

    def play(self, test: Callable[[], Awaitable[None]]) -> None:
        """Play a test in the host's loop, within its time; all that it started ends with it."""

        async def played() -> None:
            with trio.fail_after(SECONDS):
                async with trio.open_nursery() as nursery:
                    self.nursery = nursery
                    self.supervisor = self.another()
                    await test()
                    nursery.cancel_scope.cancel()

        self._host.play(played)

    def another(self) -> Supervisor:
        """A further supervisor of the same state directory."""
        state_dir = StateDir(self.folder / "state")
        state_dir.prepare()
        return Supervisor(state_dir, self._spawner, self.nursery, self._hear)

    # What is configured.

    def agent(
        self,
        name: str,
        steps: Steps,
        *tools: str,
        faults: Sequence[Fault] = (),
        errors: str = "",
        **limits: Any,
    ) -> None:
        """An agent that plays a function, or steps turn by turn."""
        model = f"{name}-{next(_numbers)}"

        @script(model, faults=faults)
        def play(conversation: Conversation) -> Any:
            self.asked.append(conversation)
            if callable(steps):
                return steps(conversation)
            return steps[min(conversation.turn, len(steps) - 1)]

        rows = [f"{key} = {json.dumps(value)}" for key, value in limits.items()]
        self._agents[name] = "\n".join(
            [
                f"[agents.{name}]",
                f"model = {json.dumps(model)}",
                f"tools = {json.dumps(tools)}",
                f"[agents.{name}.errors]",
                errors,
                f"[agents.{name}.limits]",
                *rows,
            ]
        )

    def behind(self, **tools: str) -> None:
        """Put an agent behind each tool."""
        self._tools |= tools

    def family(self, many: int, child: Steps = echo, *tools: str, **options: Any) -> None:
        """A lead that asks so many questions in one message, and its researchers.

        The lead's options bear ``lead_`` before their names.
        """
        lead = {key[5:]: value for key, value in options.items() if key.startswith("lead_")}
        own = {key: value for key, value in options.items() if not key.startswith("lead_")}
        self.agent("lead", fan(many), "research", **lead)
        self.agent("researcher", child, *tools, **own)
        self.behind(research="researcher")

    def chain(self, leaf: Steps, *tools: str, **options: Any) -> None:
        """Three generations: a lead, a child of it, and a grandchild r1.1.0.1.0 with these steps.

        The lead's options bear ``lead_`` before their names.
        """
        lead = {key[5:]: value for key, value in options.items() if key.startswith("lead_")}
        own = {key: value for key, value in options.items() if not key.startswith("lead_")}
        self.agent("lead", fan(1, "delegate"), "delegate", **lead)
        self.agent("middle", fan(1), "research")
        self.agent("leaf", leaf, *tools, **own)
        self.behind(delegate="middle", research="leaf")

    async def config(
        self,
        *,
        prices: bool = True,
        provider: str = "",
        supervision: str = "stop_grace_s = 2.0",
        sets: Sequence[str] = (),
        **settings: Any,
    ) -> Config:
        """The configuration, once its provider serves; ``settings`` are the provider's."""
        if not self._provided or settings:
            chosen = ProviderSettings(ledger=str(self.ledger), **settings)
            self._provided = await self.nursery.start(serve, chosen)
        text = f"""
[run]
agent = "lead"
task = "Which file mentions a timeout?"
[provider]
kind = "openai"
model = "none"
base_url = "{self._provided}"
stream = false
{provider or "max_output_tokens = 300"}
[tools.files]
root = "{self.workspace}"
[tools.run_tools]
module = "run_tools"
[tools.tree_tools]
module = "tree_tools"
[supervision]
{supervision}
[state]
durability = "process"
"""
        if prices:
            text += "[pricing]\ninput = 2.00\ncached_input = 0.20\noutput = 12.00\n"
        text += "".join(f'[tools.{tool}]\nagent = "{name}"\n' for tool, name in self._tools.items())
        text += "\n".join(self._agents.values())
        path = self.folder / "config.toml"
        path.write_text(text)
        return load_config(path, sets, environ={})

    async def run(self, run_id: str = "r1", **options: Any) -> Report:
        """Configure and run a tree to its end."""
        return await self.supervisor.run(await self.config(**options), run_id)

    # What happens.

    def _hear(self, run_id: str, line: bytes) -> None:
        told = json.loads(line)
        assert told["run_id"] == run_id
        self.lines.append(told)
        self._news.set()
        self._news = trio.Event()

    async def heard(self, kind: str, run_id: str = "", times: int = 1) -> list[dict[str, Any]]:
        """Wait for so many lines of a type, of one run or of any."""
        while len(found := self.told(kind, run_id)) < times:
            await self._news.wait()
        return found

    def told(self, kind: str = "", run_id: str = "") -> list[dict[str, Any]]:
        """The lines so far of a type, of one run or of any."""
        return [
            line
            for line in self.lines
            if kind in ("", line["type"]) and run_id in ("", line["run_id"])
        ]

    def go(self) -> None:
        """Let the tools that wait for it go on."""
        (self.workspace / "go").touch()

    async def beside(
        self, act: Callable[[], Awaitable[object]], root: str = "r1", **options: Any
    ) -> Report:
        """Run a tree, or go on with it, with something else going on."""
        async with trio.open_nursery() as nursery:
            resumes = self.supervisor.state_dir.exists(root)
            config = None if resumes else await self.config(**options)
            nursery.start_soon(act)
            supervisor = self.supervisor
            run = supervisor.run(config, root) if config else supervisor.resume(root)
            report = await run
            nursery.cancel_scope.cancel()
        return report

    def child(self, run_id: str) -> Child:
        """A run that is under way."""
        (found,) = [one for one in self.supervisor.children() if one.run_id == run_id]
        return found

    def kill(self, run_id: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to the process of a run that is under way."""
        pid = self.child(run_id).pid
        assert pid
        os.kill(pid, number)

    def zygote_pid(self) -> int:
        """The process that every actor is a child of."""
        way: Any = self._spawner
        return way._way._life.pid

    def births(self) -> int:
        """Spawns under way in the zygote."""
        way: Any = self._spawner
        return len(way._way._life._births)

    async def supervisor_process(self, run_id: str) -> trio.Process:
        """A supervisor in a process of its own, which starts the run that was configured."""
        command = [sys.executable, "-P", str(HERE / "tree_supervisor.py"), str(self.folder), run_id]
        return await self.nursery.start(functools.partial(trio.run_process, command, check=False))

    # What stands on disk.

    def state(self, run_id: str) -> State:
        """The state of a run, from its journal."""
        return self.supervisor.state_dir.state(run_id)

    def in_flight(self, run_id: str) -> bool:
        """Whether a run has a request on its way."""
        there = (self.supervisor.state_dir.run_dir(run_id) / JOURNAL).exists()
        return there and self.state(run_id).asked is not None

    def events(self, run_id: str, kind: type[AnyEvent]) -> list[Any]:
        """The events of one kind in a run's journal."""
        return [e for e in self.supervisor.state_dir.events(run_id) if isinstance(e, kind)]

    def runs(self, root: str = "r1") -> list[str]:
        """The runs of a tree, the root first."""
        return [root, *self.supervisor.state_dir.below(root)]

    def results(self, run_id: str = "r1") -> list[str]:
        """What a run's calls were answered, in the order of their refs."""
        turns = self.state(run_id).turns
        return [call.result.content for turn in turns for call in turn.calls if call.result]

    def pids(self, root: str = "r1") -> set[int]:
        """Every process that ever performed a run of the tree."""
        return {one.pid for run in self.runs(root) for one in self.events(run, Opened)}

    def living(self, root: str = "r1") -> set[int]:
        """Those of them that are there now."""
        return {pid for pid in self.pids(root) if is_alive(pid) and pid != os.getpid()}

    def bills(self) -> list[dict[str, Any]]:
        """What the provider charged, outside of anything that the runs say."""
        if not self.ledger.exists():
            return []
        return [json.loads(line) for line in self.ledger.read_bytes().splitlines()]

    def billed_nusd(self, run_id: str = "") -> int:
        """The provider's own sum for a run, or for all, in 1e-9 USD."""
        return sum(
            2000 * (bill["input_tokens"] - bill["cached_input_tokens"])
            + 200 * bill["cached_input_tokens"]
            + 12000 * bill["output_tokens"]
            for bill in self.bills()
            if run_id in ("", bill["key"].partition(":")[0])
        )


def played(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make a test of a coroutine function whose first parameter is ``grove``."""

    @functools.wraps(test)
    def run(grove: Grove, **others: Any) -> None:
        grove.play(functools.partial(test, grove, **others))

    return run


def cancelled(grove: Grove, run_id: str) -> Cancelled:
    """Why a run was stopped, and that nothing of it is left open."""
    state = grove.state(run_id)
    assert state.outcome, f"{run_id} has no ending"
    assert state.outcome.status is Status.INTERRUPTED
    assert state.pending == []
    assert isinstance(state.outcome.interruption, Cancelled)
    return state.outcome.interruption


def check_quiet(grove: Grove) -> None:
    """No process is left, and no run says anything behind its ending, neither here nor on disk."""
    assert grove.living() == set()
    for run_id in grove.runs():
        heard = [line["type"] for line in grove.told("", run_id)]
        path = grove.supervisor.state_dir.run_dir(run_id) / "trace.jsonl"
        on_disk = [json.loads(line)["type"] for line in path.read_bytes().splitlines()]
        for lines in (heard, on_disk):
            assert lines.count("run_stopped") == 1
            assert lines[-1] == "run_stopped"
