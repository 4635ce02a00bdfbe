"""A small world for whole runs in this process: a provider, tools made on the spot, one run."""

import itertools
import json
import shutil
import sys
import types
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import trio

from actors.events import AnyEvent
from actors.fs import Fs
from actors.journal import read_events
from actors.money import Prices
from actors.opening import OpenRun, open_run
from actors.outcome import Outcome
from actors.spec import ErrorPolicy, LimitChange, Limits, ProviderSpec, RunSpec, ToolsSpec
from actors.state import State, fold
from actors.testing.provider import ProviderSettings, serve
from actors.testing.scripts import Call, Conversation, Say, ScriptFunction, script
from actors.tools import Tool
from actors.verdict import Verdict, record_verdict
from actors.wire import Start

PRICES = Prices(input=2_000_000, cached_input=200_000, output=12_000_000)
"""$2.00, $0.20 and $12.00 per million tokens."""
EXAMPLES = Path(__file__).parent.parent / "examples" / "workspace"
LIMIT_SECONDS = 10.0

Step = Say | Call | Sequence[Say | Call]
Script = str | ScriptFunction | Sequence[Step]

_numbers = itertools.count(1)


def usd(amount: float) -> int:
    """An amount in 1e-9 USD."""
    return round(amount * 1e9)


class Watched(Fs):
    """The disk, with an event for each boundary that a run passes."""

    def __init__(self) -> None:
        self.passed: defaultdict[str, trio.Event] = defaultdict(trio.Event)

    def boundary(self, name: str) -> None:
        self.passed[name].set()


class World:
    """One run directory, one workspace, and whatever provider was chosen last."""

    def __init__(self, folder: Path, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.run_id = "r1"
        self.run_dir = folder / "runs" / self.run_id
        self.run_dir.mkdir(parents=True)
        self.workspace = folder / "workspace"
        shutil.copytree(EXAMPLES, self.workspace)
        self.ledger = folder / "ledger"
        self.model = ""
        self.base_url = ""
        self.api_key: str | None = None
        self.fs: Fs = Watched()
        self.told: defaultdict[str, trio.Event] = defaultdict(trio.Event)
        """An event for each type of trace line, set when one was written."""
        self.asked: list[Conversation] = []
        """What reached the script, each request once."""
        self.spec = RunSpec(
            agent="lead",
            task="Which file mentions a timeout?",
            system="You are a research agent.",
            provider=ProviderSpec(model="", max_retries=3, timeout_seconds=5.0),
            prices=PRICES,
            tools=ToolsSpec(
                names=("list_files", "read_file", "delete_file"), workspace=str(self.workspace)
            ),
            durability="process",
        )

    async def provide(self, script_: Script, **settings: Any) -> None:
        """Serve a script: a built-in one by name, a function, or the steps turn by turn."""
        self.model = script_ if isinstance(script_, str) else self._register(script_)
        chosen = ProviderSettings(script=self.model, ledger=str(self.ledger), **settings)
        self.base_url = await self._nursery.start(serve, chosen)
        provider = msgspec.structs.replace(self.spec.provider, model=self.model)
        self.change(provider=provider)

    def _register(self, source: ScriptFunction | Sequence[Step]) -> str:
        name = f"made-{next(_numbers)}"

        @script(name)
        def play(conversation: Conversation) -> Any:
            self.asked.append(conversation)
            if callable(source):
                return source(conversation)
            return source[min(conversation.turn, len(source) - 1)]

        return name

    def change(self, **fields: Any) -> None:
        """Change the run's specification."""
        self.spec = msgspec.structs.replace(self.spec, **fields)

    def ask(self, **fields: Any) -> None:
        """Change how the provider is asked."""
        self.change(provider=msgspec.structs.replace(self.spec.provider, **fields))

    def limit(self, **fields: Any) -> None:
        """Set limits."""
        self.change(limits=Limits(**fields))

    def forgive(self, **fields: Any) -> None:
        """Set the error policy."""
        self.change(errors=ErrorPolicy(**fields))

    def offer(self, *tools: Tool, workspace: bool = False, **fields: Any) -> None:
        """Give the run these tools, and no others; the shipped ones may come with a workspace."""
        module = types.ModuleType(f"made_tools_{next(_numbers)}")
        for number, one in enumerate(tools):
            setattr(module, f"tool_{number}", one)
        sys.modules[module.__name__] = module
        names = tuple(one.name for one in tools)
        root = str(self.workspace) if workspace else None
        self.change(
            tools=ToolsSpec(names=names, modules=(module.__name__,), workspace=root, **fields)
        )

    def start(self, why: str = "start", raised: LimitChange | None = None) -> Start:
        """The first frame that an actor of this run gets."""
        return Start(
            run_id=self.run_id,
            root_id=self.run_id,
            run_dir=str(self.run_dir),
            spec=self.spec,
            base_url=self.base_url,
            api_key=self.api_key,
            raised=raised or LimitChange(),
            why=why,
        )

    async def perform(
        self,
        why: str = "start",
        *,
        raised: LimitChange | None = None,
        meanwhile: Callable[[OpenRun], Awaitable[None]] | None = None,
    ) -> Outcome:
        """Perform the run until it has an ending, with something else going on ``meanwhile``."""
        with trio.fail_after(LIMIT_SECONDS):
            async with open_run(self.start(why, raised), self.fs, self._hear) as run:
                outcome = await _perform(run, meanwhile)
        assert outcome == self.state.outcome
        return outcome

    def _hear(self, line: bytes) -> None:
        self.told[json.loads(line)["type"]].set()

    async def answer(
        self,
        call: str,
        yes: bool,
        reason: str = "",
        args: str | None = None,
        happened: bool | None = None,
    ) -> None:
        """Record a person's verdict on a call, as ``approve`` and ``reject`` do."""
        verdict = Verdict(
            ref=call, yes=yes, who="tester", reason=reason, args=args, happened=happened
        )
        assert await record_verdict(self.run_dir, verdict)

    async def reached(self, boundary: str) -> None:
        """Wait until the run passes a boundary, such as ``tool:NAME:before``."""
        assert isinstance(self.fs, Watched)
        await self.fs.passed[boundary].wait()

    @property
    def events(self) -> list[AnyEvent]:
        """The journal."""
        return read_events(self.run_dir)

    @property
    def state(self) -> State:
        """The state as the journal has it."""
        return fold(self.events)

    def results(self) -> list[str]:
        """What the calls were answered, in the order of their refs."""
        return [
            call.result.content for turn in self.state.turns for call in turn.calls if call.result
        ]

    def lines(self, kind: str = "") -> list[dict[str, Any]]:
        """The trace, or its lines of one type."""
        raw = (self.run_dir / "trace.jsonl").read_bytes()
        lines = [json.loads(line) for line in raw.split(b"\n") if line]
        return [line for line in lines if not kind or line["type"] == kind]

    def bills(self) -> list[dict[str, Any]]:
        """What the provider charged, outside of anything that the run says."""
        if not self.ledger.exists():
            return []
        return [json.loads(line) for line in self.ledger.read_bytes().splitlines()]

    def billed_nusd(self) -> int:
        """The provider's own sum, in 1e-9 USD."""
        return sum(
            2000 * (bill["input_tokens"] - bill["cached_input_tokens"])
            + 200 * bill["cached_input_tokens"]
            + 12000 * bill["output_tokens"]
            for bill in self.bills()
        )


async def _perform(run: OpenRun, meanwhile: Callable[[OpenRun], Awaitable[None]] | None) -> Outcome:
    """Perform a run beside something else; what leaves the run leaves here as it is."""
    outcome: Outcome | None = None
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        if meanwhile:
            nursery.start_soon(meanwhile, run)
        try:
            outcome = await run.perform()
        except Exception as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure:
        raise failure
    assert outcome
    return outcome
