"""Runs a batch of calls: records that each starts, performs it, and records its answer in words.

A call that is cancelled gets no answer here: a Stop or a fatal error is in the state by then, and
the loop answers what is pending. A call that only has to be run again stays pending.
"""

import errno
import os
import threading
from collections.abc import Callable
from hashlib import blake2b
from typing import cast

import msgspec
import trio

from actors.children import Children
from actors.decision import Answer, Calls, Run
from actors.events import Abandoned, Finished, Started
from actors.fan_out import FanOut
from actors.messages import Nature, ResultKind
from actors.pending import in_doubt_words
from actors.record import Record
from actors.resources import limit_words
from actors.spec import ErrorPolicy
from actors.state import Call
from actors.text import clean, cut
from actors.tool_context import ToolContext
from actors.tool_errors import PermanentError, ToolError
from actors.tool_result import result_text
from actors.tools import Tool

RESULT_MAX = 1024 * 1024
"""Characters of one result that are kept; head and tail of a longer one."""
EDIT_SHOWN = 2000
"""Characters of a person's edit that the model is shown."""
SIDE_BY_SIDE_MAX = 16
PROGRESS_SECONDS_MIN = 0.2

ContextOf = Callable[[Run, str, Callable[[str], None]], ToolContext]


class MustLeave(Exception):
    """A blocking tool is still running, and only the end of this process stops it."""


class ToolCalls:
    """Performs the calls of one run."""

    def __init__(
        self, record: Record, errors: ErrorPolicy, context_of: ContextOf, children: Children
    ) -> None:
        self._record = record
        self._children = children
        self._fan_out = FanOut(record, children)
        self._errors = errors
        self._context_of = context_of
        self._slots = trio.CapacityLimiter(SIDE_BY_SIDE_MAX)
        self._threads = trio.CapacityLimiter(SIDE_BY_SIDE_MAX)
        self.blocking = 0
        """Plain functions whose threads still run."""
        self._lock = threading.Lock()

    async def perform(self, batch: Calls) -> None:
        """Answer and run a batch; raises MustLeave when a blocking tool overran its time."""
        if batch.answers:
            await self._record.add(*(self._in_words(answer) for answer in batch.answers))
        if not batch.runs:
            return
        async with trio.open_nursery() as nursery:
            for run in batch.runs:
                if run.tool.nature is not Nature.CHILD:
                    nursery.start_soon(self._one, run, nursery.cancel_scope)
            children = [run for run in batch.runs if run.tool.nature is Nature.CHILD]
            if children:
                nursery.start_soon(self._fan_out.perform, children)
        if any(run.call.abandoned for run in batch.runs):
            raise MustLeave

    async def _one(self, run: Run, batch_scope: trio.CancelScope) -> None:
        async with self._slots:
            call, tool = run.call, run.tool
            write = tool.nature is not Nature.READ_ONLY
            started = _started(run, self._record.state.run_id)
            await self._record.add(started, barrier=write)
            context = self._context_of(run, started.key, self._progress_of(call))
            finished = await self._outcome(run, context, started.key)
            if finished is None:
                batch_scope.cancel()
                return
            await self._record.add(_told_of_edit(call, finished), barrier=write)
            if finished.permanent:
                batch_scope.cancel()

    def _in_words(self, answer: Answer) -> Finished:
        """The answer that the loop gave; of a child, with what it has found so far."""
        call = answer.call
        finished = Finished(
            ref=call.ref,
            outcome=answer.outcome,
            content=answer.content,
            permanent=answer.permanent,
        )
        if not call.is_child:
            return finished
        report = self._children.report(call.ref, reserve_nusd=call.reserve_nusd)
        return msgspec.structs.replace(
            finished,
            content=f"{answer.content}. From the child: {report.words}",
            child_nusd=report.spent_nusd,
            child_status=report.status,
        )

    async def _outcome(self, run: Run, context: ToolContext, key: str) -> Finished | None:
        """The answer to one call, whatever its function does; None when it had to be abandoned."""
        tool, ref = run.tool, run.call.ref
        boundary = self._record.fs.boundary
        try:
            if run.probe_first and tool.probe:
                verdict = await tool.ask_probe(run.arguments, key)
                if verdict == "done":
                    words = "done: a check after a restart found that this call had taken effect"
                    return Finished(ref=ref, outcome=ResultKind.OK, content=words)
                if verdict != "not_done":
                    words = in_doubt_words(self._record.state)
                    return Finished(ref=ref, outcome=ResultKind.IN_DOUBT, content=words)
            boundary(f"tool:{tool.name}:before")
            with trio.move_on_after(tool.timeout_seconds) as scope:
                value = await self._call(tool, context, run)
                boundary(f"tool:{tool.name}:after")
                return _finished_with(ref, value)
            words = _overran(tool)
            if tool.plain:
                self._record.write(Abandoned(ref=ref, words=words))
                return None
            assert scope.cancelled_caught
            return Finished(ref=ref, outcome=ResultKind.ERROR, content=words)
        except (Exception, SystemExit) as error:
            return self._failed(ref, error)

    async def _call(self, tool: Tool, context: ToolContext, run: Run) -> object:
        if not tool.plain:
            return await tool.call(context, run.arguments)

        def blocking() -> object:
            try:
                return tool.call_plain(context, run.arguments)
            finally:
                with lock:
                    self.blocking -= 1

        lock = self._lock
        await trio.lowlevel.checkpoint_if_cancelled()
        with lock:
            self.blocking += 1
        return await trio.to_thread.run_sync(
            blocking, abandon_on_cancel=True, limiter=self._threads
        )

    def _failed(self, ref: str, error: BaseException) -> Finished:
        permanent = _is_permanent(error)
        words = f"error: {error_words(error)}"
        match self._errors.tool_errors:
            case "hide" if not permanent:
                words = "the tool failed"
            case "fatal":
                permanent = True
            case _:
                pass
        return Finished(
            ref=ref, outcome=ResultKind.ERROR, content=cut(words, RESULT_MAX), permanent=permanent
        )

    def _progress_of(self, call: Call) -> Callable[[str], None]:
        """Progress from the loop or from any thread; more often than anyone can read is dropped."""
        last = -1.0
        home = threading.get_ident()
        token = trio.lowlevel.current_trio_token()

        def write(label: str) -> None:
            nonlocal last
            now = trio.current_time()
            if call.result is None and now - last >= PROGRESS_SECONDS_MIN:
                last = now
                self._record.progress(call, label)

        def progress(label: str) -> None:
            if threading.get_ident() == home:
                write(label)
            else:
                token.run_sync_soon(write, label)

        return progress


def _started(run: Run, run_id: str) -> Started:
    call, tool = run.call, run.tool
    return Started(
        ref=call.ref,
        name=tool.name,
        nature=tool.nature,
        key=idempotency_key(run_id, call.ref, tool.name),
        attempt=run.attempt,
        digest=run.digest,
    )


def _finished_with(ref: str, value: object) -> Finished:
    text = result_text(value)
    notes: list[str] = []
    if isinstance(value, str) and text != value and value:
        notes.append("cleaned")
    if len(text) > RESULT_MAX:
        notes.append(f"capped: {len(text)} characters")
        text = cut(text, RESULT_MAX)
    return Finished(ref=ref, outcome=ResultKind.OK, content=text, notes=tuple(notes))


def _told_of_edit(call: Call, finished: Finished) -> Finished:
    """Tell the model of a person's edit, or it takes the result for that of its own arguments."""
    if call.edited is None:
        return finished
    words = f"[A person changed the arguments of this call to {cut(call.edited, EDIT_SHOWN)}]"
    return msgspec.structs.replace(
        finished,
        content=f"{words}\n{finished.content}",
        notes=(*finished.notes, "arguments edited"),
    )


def _overran(tool: Tool) -> str:
    words = f"error: {tool.name} did not end within {tool.timeout_seconds:g} s and was stopped"
    if tool.nature is Nature.READ_ONLY:
        return words
    return f"{words}. Whether it took effect is not known. Check before you ask for it again."


def _is_permanent(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        group = cast(BaseExceptionGroup[BaseException], error)
        return any(_is_permanent(inner) for inner in group.exceptions)
    return isinstance(error, PermanentError | PermissionError)


def error_words(error: BaseException) -> str:
    """What an exception says, in words for a model: never empty, never a traceback."""
    if isinstance(error, BaseExceptionGroup):
        group = cast(BaseExceptionGroup[BaseException], error)
        return "; ".join(error_words(inner) for inner in group.exceptions[:5])
    if isinstance(error, ToolError):
        return clean(str(error)) or type(error).__name__
    if words := limit_words(error):
        return words
    if isinstance(error, OSError) and error.errno:
        name = f": {error.filename}" if error.filename else ""
        return clean(f"{os.strerror(error.errno).lower()}{name} ({errno.errorcode[error.errno]})")
    if isinstance(error, SystemExit):
        return "the tool tried to end the process"
    try:
        text = str(error)
    except Exception:
        text = ""
    return clean(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def idempotency_key(run_id: str, ref: str, tool_name: str) -> str:
    """The key of a call, the same over all restarts and attempts: 32 hex digits."""
    text = f"{run_id}\0{ref}\0{tool_name}".encode("utf-8", "replace")
    return blake2b(text, digest_size=16).hexdigest()
