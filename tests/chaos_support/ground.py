"""The ground on which runs are killed: one provider for all of them, and a folder for each."""

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import trio
from errand_tools import LEDGERS

from actors.fs import REAL, Fs
from actors.money import Prices, nusd
from actors.outcome import Approval
from actors.spec import AgentTool, Limits, ProviderSpec, RunSpec, ToolsSpec
from actors.state import State
from actors.testing.checker import check_children, check_crashed, check_run, reference_of
from actors.testing.dying_fs import Place
from actors.testing.evidence import Bills, Evidence, Reference, read_effects
from actors.testing.lives import Life, LifeEnd, begin
from actors.verdict import Verdict, record_verdict
from actors.wire import Start, StartChild

# Odd on purpose, so that every turn's cost has to be rounded up.
PRICES = Prices(input=2_000_003, cached_input=200_001, output=12_000_007)
SUPPORT = Path(__file__).parent
TOOLS = (
    "look",
    "survey",
    "stumble",
    "put",
    "pay",
    "send",
    "demolish",
    "poison",
    "wedge",
    "hammer",
)
VERDICTS = {
    "approve": (True, None),
    "reject": (False, None),
    "run_again": (True, None),
    "done": (True, True),
    "not_done": (False, False),
}
LIVES_MAX = 8
LIFE_SECONDS = 15.0

Prepare = Callable[[], None]


class Ground:
    """Where runs are made; every process that uses one makes its own on the same folder."""

    def __init__(self, folder: Path, base_url: str, bills: Path) -> None:
        self.folder = folder
        self.base_url = base_url
        self.bills_path = bills
        self.bills = Bills(bills)
        self._numbers = itertools.count(1)
        self._references: dict[str, Reference] = {}

    def new_run(self, script: str, durability: str) -> "Subject":
        """Make the folder of a run that nobody has opened yet."""
        run_id = f"r{os.getpid()}x{next(self._numbers)}"
        home = self.folder / run_id
        (home / "runs" / run_id).mkdir(parents=True, mode=0o700)
        spec = RunSpec(
            agent="runner",
            task="Do the errands.",
            system="You run errands.",
            provider=ProviderSpec(model=script, timeout_seconds=10.0, max_output_tokens=500),
            prices=PRICES,
            tools=_tools(script),
            limits=Limits(max_budget_nusd=nusd(5.0)),
            durability=durability,
        )
        start = Start(
            run_id=run_id,
            root_id=run_id,
            run_dir=str(home / "runs" / run_id),
            spec=spec,
            base_url=self.base_url,
        )
        return Subject(self, home, start)

    def reference(self, script: str) -> Reference:
        """How a script ends undisturbed."""
        if script not in self._references:
            subject = self.new_run(script, "process")
            subject.until_ended()
            while subject.approve_first():
                subject.until_ended()
            self._references[script] = reference_of(subject.run_dir)
            subject.remove()
        return self._references[script]


def _tools(script: str) -> ToolsSpec:
    tools = ToolsSpec(names=TOOLS, modules=("errand_tools",), search_path=(str(SUPPORT),))
    if script != "delegating":
        return tools
    inquire = AgentTool(name="inquire", agent="inquirer", description="Find out.")
    return msgspec.structs.replace(tools, names=(*TOOLS, "inquire"), agents=(inquire,))


class Subject:
    """One run, the lives it has had, and what they left behind."""

    def __init__(self, ground: Ground, home: Path, start: Start) -> None:
        self.ground = ground
        self.home = home
        self.start = start
        self.run_dir = Path(start.run_dir)
        self.effects = home / f"effects-{start.run_id}"
        self.notes = home / "notes"
        self.crashes = 0
        self.lives = 0
        self.ends: list[LifeEnd] = []
        self.why = "resume"
        self.prepare: Prepare | None = None
        """Called in each life before anything else: mutants come in here."""

    def begin(
        self,
        die_at: Place | None = None,
        *,
        stop_at: Place | None = None,
        disk: Fs = REAL,
        why: str | None = None,
    ) -> Life:
        """Fork the next life of this run."""
        why = why or (self.why if self.lives else "start")
        self.lives += 1
        start = msgspec.structs.replace(self.start, why=why)
        return begin(
            start,
            die_at=die_at,
            stop_at=stop_at,
            notes=self.notes,
            disk=disk,
            prepare=self._prepare,
            start_of=self.start_of if self.start.spec.tools.agents else None,
        )

    def start_of(self, frame: StartChild) -> Start:
        """What the child of a call is told."""
        run_id = f"{self.start.run_id}.{frame.ref}"
        run_dir = self.run_dir.parent / run_id
        spec = self.start.spec
        limits = msgspec.structs.replace(spec.limits, max_budget_nusd=frame.limit_nusd)
        provider = msgspec.structs.replace(spec.provider, model="inquiring")
        return msgspec.structs.replace(
            self.start,
            run_id=run_id,
            ref=frame.ref,
            run_dir=str(run_dir),
            spec=msgspec.structs.replace(
                spec,
                agent=frame.agent,
                task=frame.task,
                limits=limits,
                provider=provider,
                tools=_tools("inquiring"),
            ),
            why="resume" if run_dir.exists() else "start",
        )

    def _prepare(self) -> None:
        os.environ[LEDGERS] = str(self.home)
        if self.prepare:
            self.prepare()

    def live(
        self,
        die_at: Place | None = None,
        *,
        stop_at: Place | None = None,
        disk: Fs = REAL,
        why: str | None = None,
    ) -> LifeEnd:
        """Live one life, and after a crash check what must hold before anybody resumes."""
        return self.bury(self.begin(die_at, stop_at=stop_at, disk=disk, why=why).wait(LIFE_SECONDS))

    def bury(self, end: LifeEnd) -> LifeEnd:
        """Take in how a life ended."""
        assert end.error is None, end.error
        self.ends.append(end)
        if end.killed or end.refused:
            self.crashes += 1
            check_crashed(self.evidence())
        return end

    def until_ended(self) -> LifeEnd:
        """Resume until the run has an ending."""
        for _ in range(LIVES_MAX):
            end = self.live()
            assert end.refused is None, end.refused
            if end.outcome:
                return end
        raise AssertionError(f"the run did not end in {LIVES_MAX} lives")

    def evidence(self) -> Evidence:
        """What is known of the run by now."""
        notes = self.notes.read_text().splitlines() if self.notes.exists() else []
        return Evidence(
            run_dir=self.run_dir,
            crashes=self.crashes,
            bills=self.ground.bills.of(self.start.run_id),
            effects=read_effects(self.effects),
            notes=notes,
        )

    def child(self, ref: str) -> "Subject":
        """The run behind a call, with the crashes that it may have had."""
        start = self.start_of(StartChild(ref, "inquirer", "", None))
        child = Subject(self.ground, self.home, start)
        child.crashes = self.crashes
        return child

    def check(self, *, like: bool = True, ended: bool = True) -> State:
        """Check every promise at the end of the run, and return its state."""
        script = self.start.spec.provider.model
        reference = self.ground.reference(script) if like else None
        return check_run(self.evidence(), reference, ended=ended)

    def approve_first(self) -> bool:
        """Approve what the run waits for; False when it waits for nothing."""
        outcome = self.ends[-1].outcome
        waiting = outcome.interruption if outcome else None
        if not isinstance(waiting, Approval):
            return False
        self.answer(waiting.call, "approve")
        return True

    def check_children(self, state: State, *, like: bool = True, ended: bool = True) -> None:
        """Check every promise of the runs below this one, and of their ties to it."""
        refs = [call.ref for turn in state.turns for call in turn.calls if call.is_child]
        there = [child for child in map(self.child, refs) if child.run_dir.exists()]
        children = {child.start.ref: child.check(like=like, ended=ended) for child in there}
        check_children(self.evidence(), state, children)

    def answer(self, call: str, word: str) -> None:
        """Record a person's verdict on a call: one of ``VERDICTS``."""
        yes, happened = VERDICTS[word]
        verdict = Verdict(ref=call, yes=yes, who="tester", happened=happened)
        assert trio.run(record_verdict, self.run_dir, verdict)

    def remove(self) -> None:
        """Take the run off the disk."""
        shutil.rmtree(self.home)
