"""Opens a run: takes its lock, reads its journal, gathers its tools, records who performs it."""

import fcntl
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import trio

from actors.catalogue import Catalogue, CatalogueError
from actors.children import Children, child_tools
from actors.confinement import ConfinementError, confine
from actors.custodian import MARKER
from actors.decision import Rules, Run, StopCondition
from actors.epoch import begin
from actors.events import ChildSettled, Opened, RunStopped, UserMessage
from actors.fs import REAL, Fs
from actors.journal import Corrupt, DiskFull, Held, disk_failed
from actors.messages import Prompt, ResultKind
from actors.notes import NOTE_TOOLS, Notes
from actors.outcome import RESUMABLE, Outcome, Status
from actors.performer import Performer
from actors.provider import Provider, open_client
from actors.record import Record
from actors.spec import Limits, RunSpec
from actors.state import State
from actors.stop_condition import load_condition
from actors.tool_calls import ToolCalls
from actors.tool_context import ToolContext
from actors.trace import Follower
from actors.transcript import open_transcript
from actors.user_module import ModuleError
from actors.warm import TlsError, tls
from actors.wire import Start
from actors.workspace import Workspace

EFFECTS_LOCK = "effects.lock"
EFFECTS_SECONDS_MAX = 3.0


class Unusable(Exception):
    """The run cannot be performed as configured; nothing was recorded. The operator must act."""

    kind = "configuration"


class OpenRun:
    """A run that is ours: its record, and the performer of what is left of it."""

    def __init__(self, record: Record, performer: Performer | None) -> None:
        self.record = record
        self._performer = performer

    def request_stop(self, reason: str, who: str) -> None:
        """Stop the run, unless it has ended."""
        if self._performer:
            self._performer.request_stop(reason, who)

    async def tell(self, text: str, who: str) -> None:
        """Take a person's message, unless the run has ended. Raises DiskFailed."""
        if self.record.state.outcome is None:
            await self.record.add(UserMessage(text=text, who=who), barrier=True)

    async def perform(self) -> Outcome:
        """Go on to an ending; of a run that has one, return that."""
        if self._performer:
            return await self._performer.perform()
        assert self.record.state.outcome
        return self.record.state.outcome


@asynccontextmanager
async def open_run(
    start: Start,
    fs: Fs = REAL,
    follow: Follower | None = None,
    children: Children | None = None,
) -> AsyncGenerator[OpenRun, None]:
    """Yield the OpenRun that ``start`` asks for; the lock is held until the block is left.

    Raises:
        JournalError: the run is held, its journal is damaged or from a later version, or the
            disk fails.
        Unusable: a tool module is missing or the like; a run that is new is recorded as failed.
    """
    run_dir = Path(start.run_dir)
    record = Record(run_dir, fs, follow)
    effects_fd = -1
    workspace: Workspace | None = None
    notes: Notes | None = None
    try:
        _check_name(record, start)
        outcome = record.state.outcome
        if outcome and outcome.status not in RESUMABLE:
            yield OpenRun(record, None)
            return
        effects_fd = await _hold_effects(run_dir, fs)
        try:
            catalogue, conditions = Catalogue(()), list[StopCondition]()
            context = tls("")
            if start.stop is None and not start.fail:
                context = tls(start.base_url)
                notes = _notes(start, fs)
                # Before the first line of the user's own code.
                confine(start)
                agents = child_tools(start.spec.tools.agents)
                catalogue = Catalogue.load(start.spec.tools, agents)
                path = start.spec.tools.search_path
                conditions = [load_condition(one, path) for one in start.spec.limits.stop_when]
                workspace = _workspace(start.spec.tools.workspace)
        except (ConfinementError, ModuleError, CatalogueError, TlsError, Unusable) as error:
            if record.state.epoch:
                raise Unusable(str(error)) from error
            await record.add(_begin(record, start, {}), barrier=True)
            await record.add(RunStopped(status=Status.FAILED, error=str(error)), barrier=True)
            yield OpenRun(record, None)
            return
        tools = {tool.name: tool.nature.value for tool in catalogue} or record.state.tools
        await record.add(_begin(record, start, tools), barrier=True)
        children = children or Children(run_dir)
        await record.add(*_settled(record.state, children))
        spec = start.spec
        rules = _rules(start, catalogue, conditions)
        async with open_client(context) as client:
            provider = Provider(client, start.base_url, spec.provider, start.api_key)
            calls = ToolCalls(
                record,
                spec.errors,
                _context_maker(start, workspace, notes, effects_fd),
                children,
            )
            transcript = await open_transcript(record.state, spec, catalogue.tools_json())
            yield OpenRun(
                record, Performer(record, rules, spec.provider, provider, calls, transcript)
            )
    finally:
        for one in (workspace, notes):
            if one:
                one.close()
        if effects_fd >= 0:
            os.close(effects_fd)
        record.close()


def _check_name(record: Record, start: Start) -> None:
    if record.state.epoch and record.state.run_id != start.run_id:
        raise Corrupt(
            f"{start.run_dir} holds the journal of run {record.state.run_id}, not of "
            f"{start.run_id}. Nothing was changed; put it back where it belongs."
        )


def _rules(start: Start, catalogue: Catalogue, conditions: list[StopCondition]) -> Rules:
    spec = start.spec
    return Rules(
        catalogue=catalogue,
        errors=spec.errors,
        max_output_tokens=spec.provider.max_output_tokens,
        max_retries=spec.provider.max_retries,
        on_in_doubt=spec.tools.on_in_doubt,
        max_restarts=spec.max_restarts,
        restart_period_seconds=spec.restart_period_seconds,
        fatal=start.fail,
        stop_conditions=conditions,
    )


def _begin(record: Record, start: Start, tools: dict[str, str]) -> Opened:
    """The ``run.opened`` of this epoch; the prompts stand in the first one only."""
    spec, state = start.spec, record.state
    first = state.epoch == 0
    limits = spec.limits if first else state.limits
    prompts = (Prompt("system", spec.system), Prompt("user", spec.task))
    return begin(
        record,
        why=start.why,
        run_id=start.run_id,
        root=start.root_id,
        agent=spec.agent,
        durability=spec.durability,
        config_digest=spec_digest(spec),
        limits=_raised(limits, start),
        tools=tools,
        prices=spec.prices if first else state.prices,
        prompts=tuple(p for p in prompts if p.text) if first else (),
        crash=start.crash,
    )


def _settled(state: State, children: Children) -> list[ChildSettled]:
    """What children that were stopped together with this run had spent when they had ended."""
    answered = [c for c in state.turns[-1].calls if c.is_child] if state.turns else []
    return [
        ChildSettled(ref=call.ref, child_nusd=spent)
        for call in answered
        if call.result and call.result.outcome is ResultKind.CANCELLED
        if (spent := children.report(call.ref, reserve_nusd=call.reserve_nusd).spent_nusd)
        != call.result.child_nusd
    ]


def _raised(limits: Limits, start: Start) -> Limits:
    raised = start.raised
    changes: dict[str, Any] = {
        name: value
        for name in raised.__struct_fields__
        if (value := getattr(raised, name)) is not None
    }
    return msgspec.structs.replace(limits, **changes)


def spec_digest(spec: RunSpec) -> str:
    """Names a configuration: 32 hex digits."""
    return blake2b(msgspec.msgpack.encode(spec), digest_size=16).hexdigest()


async def _hold_effects(run_dir: Path, fs: Fs) -> int:
    """Wait for the subprocess tools of an earlier process; they hold this lock while they live."""
    try:
        fd = fs.open(run_dir / EFFECTS_LOCK, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise disk_failed(run_dir / EFFECTS_LOCK, error) from error
    deadline = trio.current_time() + EFFECTS_SECONDS_MAX
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if trio.current_time() > deadline:
                os.close(fd)
                raise Held(
                    f"a tool that an earlier process of run {run_dir.name} started is still "
                    "running; end it, then resume the run"
                ) from None
            await trio.sleep(0.02)
        else:
            return fd


def _workspace(root: str | None) -> Workspace | None:
    try:
        return Workspace(root) if root else None
    except OSError as error:
        raise Unusable(f"the workspace {root} cannot be opened: {error.strerror}") from error


def _notes(start: Start, fs: Fs) -> Notes | None:
    if not NOTE_TOOLS.intersection(start.spec.tools.names):
        return None
    try:
        return Notes(Path(start.run_dir), fs)
    except OSError as error:
        failed = disk_failed(Path(start.run_dir), error)
        if isinstance(failed, DiskFull):
            raise failed from error
        raise Unusable(f"the run's notes cannot be opened: {error.strerror}") from error


def _context_maker(
    start: Start, workspace: Workspace | None, notes: Notes | None, effects_fd: int
) -> Callable[[Run, str, Callable[[str], None]], ToolContext]:
    marker = os.environ.get(MARKER, "")

    def context_of(run: Run, key: str, report: Callable[[str], None]) -> ToolContext:
        return ToolContext(
            run_id=start.run_id,
            call=run.call.ref,
            key=key,
            report=report,
            attempt=run.attempt,
            workspace=workspace,
            notes=notes,
            environment=start.spec.tools.environment,
            pass_fds=(effects_fd,),
            marker=marker,
        )

    return context_of
