"""The trace: one JSON line an event, a view of the journal that ``resume`` never reads.

Every line but ``tool_progress`` is a pure function of a journal event, and names its frame, so
that what a crash left out is written at the next open.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from actors.events import (
    AnyEvent,
    ApprovalAsked,
    AskFailed,
    ContextFitted,
    Finished,
    Opened,
    Replied,
    RunStopped,
    Started,
    UserMessage,
)
from actors.messages import Nature, ResultKind
from actors.money import usd
from actors.outcome import Cancelled, Outcome
from actors.state import Call, State
from actors.text import clean, excerpt

TRACE = "trace.jsonl"
TEXT_MAX = 500
"""Characters of a progress label, and of what a person said."""
PROGRESS_MAX = 10_000
"""Progress lines of one process that the file keeps; whoever follows hears all of them."""
_TAIL = 1 << 20
_encoder = msgspec.json.Encoder()

Line = dict[str, Any]
Follower = Callable[[bytes], None]


def lines_of(event: AnyEvent, state: State) -> list[Line]:
    """The trace lines of an event, often none; ``state`` is the state after it."""
    line = _line_of(event, state)
    lines = [line] if line else []
    match event:
        case Started(nature=Nature.CHILD):
            child = _child_line("child_started", event.ref, state)
            lines.append(child | {"agent": event.agent})
        case Finished() if state.call(event.ref).is_child:
            child = _child_line("child_stopped", event.ref, state)
            lines.append(child | {"status": event.child_status or event.outcome.value})
        case _:
            pass
    return lines


def _child_line(kind: str, ref: str, state: State) -> Line:
    return {"type": kind, "child_id": f"{state.run_id}.{ref}", "call": ref}


def _line_of(event: AnyEvent, state: State) -> Line | None:
    match event:
        case Opened(epoch=epoch, why=why) if epoch > 1 and why != "verdict":
            line: Line = {"type": "run_resumed", "epoch": epoch}
            line |= {"dropped_bytes": event.dropped} if event.dropped else {}
            return line | ({"crash": event.crash} if event.crash else {})
        case Replied():
            return (
                {
                    "type": "turn",
                    "turn": event.turn,
                    "input_tokens": event.usage.input_tokens,
                    "output_tokens": event.usage.output_tokens,
                    "cached_input_tokens": event.usage.cached_input_tokens,
                    "cost_usd": usd(event.cost_nusd),
                    "total_cost_usd": usd(state.head.cost_nusd),
                    "finish": event.finish,
                }
                | ({"estimated": True} if event.usage.estimated else {})
                | _noted(event.notes)
            )
        case ContextFitted():
            return {
                "type": "context_fitted",
                "before": event.before,
                "after": event.after,
                "cleared": event.cleared,
                "folded": event.folded,
                "why": event.why,
            }
        case AskFailed():
            return {
                "type": "turn_failed",
                "turn": event.turn,
                "kind": event.kind,
                "error": event.words,
                "retry_in_s": round(max(0.0, event.retry_at - event.at), 3),
            }
        case Started():
            call = state.call(event.ref)
            line = _of_call("tool_start", call) | {"args": shown_args(call)}
            return line | ({"attempt": event.attempt} if event.attempt > 1 else {})
        case Finished():
            return _result_line(event, state.call(event.ref))
        case ApprovalAsked():
            call = state.call(event.ref)
            return _of_call("approval_required", call) | {"args": shown_args(call)}
        case UserMessage():
            return {"type": "told", "who": event.who, "text": excerpt(event.text, TEXT_MAX)}
        case RunStopped():
            outcome = Outcome(event.status, event.interruption, event.error, event.output)
            by = event.interruption
            line = {"who": by.who} if isinstance(by, Cancelled) else {}
            return line | {
                "type": "run_stopped",
                "status": event.status.value,
                "reason": outcome.reason,
                "turns": state.head.turns,
                "cost_usd": usd(state.head.cost_nusd),
                "possibly_spent_usd": usd(state.head.maybe_nusd),
            }
        case _:
            return None


def _noted(notes: tuple[str, ...]) -> Line:
    return {"notes": list(notes)} if notes else {}


def _of_call(kind: str, call: Call) -> Line:
    return {"type": kind, "tool_name": call.written.name, "call": call.ref}


def _result_line(event: Finished, call: Call) -> Line:
    ms = round((event.at - call.started_at) * 1000, 1) if call.attempts else 0.0
    ok = event.outcome in (ResultKind.OK, ResultKind.DEDUPED)
    line = _of_call("tool_result", call) | {"ms": max(0.0, ms), "ok": ok}
    if event.outcome not in (ResultKind.OK, ResultKind.ERROR):
        line["outcome"] = event.outcome.value
    if not ok:
        line["error"] = excerpt(event.content)
    return line | _noted(event.notes)


def shown_args(call: Call) -> Any:
    """The arguments of a call as data, or as the raw text where they are no JSON."""
    try:
        return msgspec.json.decode(call.arguments) if call.arguments else {}
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return excerpt(call.arguments)


class Trace:
    """Writes the lines of one run, and hands each to whoever follows."""

    def __init__(
        self, run_dir: Path, state: State, frames: int, follow: Follower | None = None
    ) -> None:
        """Open the file; ``frames`` is how many frames the journal has."""
        self._state = state
        self._follow = follow
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(run_dir / TRACE, flags, 0o600)
        end = _read_end(self._fd)
        if end.frame > frames:
            # The trace outran the journal (a power cut): what the journal lost never happened.
            os.ftruncate(self._fd, 0)
            end = _End()
        self._there, self.seq = end, end.seq
        self._progressed = 0

    def event(self, event: AnyEvent, frame: int) -> None:
        """Write the lines of an event that the state has just taken in, unless they are there."""
        if frame >= self._there.frame:
            # A kill may have come between two lines of one event.
            shown = self._there.lines if frame == self._there.frame else 0
            for line in lines_of(event, self._state)[shown:]:
                self._write(line, event.at, frame)

    def progress(self, call: Call, label: str, at: float) -> None:
        """Write a progress line of a running call; it stands in no journal."""
        self._progressed += 1
        label = clean(label[:TEXT_MAX])
        if self._progressed == PROGRESS_MAX:
            label += f" [the last of {PROGRESS_MAX} progress lines that are kept of a process]"
        line = _of_call("tool_progress", call) | {"label": label}
        self._write(line, at, None, kept=self._progressed <= PROGRESS_MAX)

    def _write(self, line: Line, at: float, frame: int | None, *, kept: bool = True) -> None:
        self.seq += 1
        whole: Line = {
            "run_id": self._state.run_id,
            "root_id": self._state.root,
            "seq": self.seq,
            "at": round(at, 6),
        }
        whole |= line
        if frame is not None:
            whole["frame"] = frame
        data = _encoder.encode(whole)
        try:
            if kept:
                os.write(self._fd, data + b"\n")
        except OSError:
            # The trace is a view: a full disk stops the run at its journal, not here.
            pass
        if self._follow:
            self._follow(data)

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _End(msgspec.Struct, frozen=True):
    """How far a trace file goes; zeros where it has nothing."""

    seq: int = 0
    frame: int = 0
    """The last frame that a line names."""
    lines: int = 0
    """How many lines name it."""


def _read_end(fd: int) -> _End:
    """How far the file goes. A torn last line is cut, for its event is written again."""
    size = os.fstat(fd).st_size
    tail, start, found = _TAIL, size, None
    # As much as it takes to see all lines of the last frame: seldom more than one step.
    while start and found is None:
        start = max(0, size - tail)
        data = os.pread(fd, size - start, start)
        end = data.rfind(b"\n") + 1
        if end or not start:
            if end < len(data):
                os.ftruncate(fd, start + end)
            found = _search(data[:end], whole=not start)
        tail *= 8
    return found or _End()


def _search(data: bytes, *, whole: bool) -> _End | None:
    """The end of these lines; None when more of the file must be seen for it."""
    seq = frame = lines = 0
    for raw in reversed(data.split(b"\n")):
        try:
            line: Line = msgspec.json.decode(raw, type=dict[str, Any])
        except msgspec.MsgspecError:
            continue  # Empty, or its beginning is not in the data.
        seq = seq or int(line.get("seq", 0))
        named = int(line.get("frame", 0))
        if named and frame and named != frame:
            return _End(seq, frame, lines)
        frame = frame or named
        lines += bool(named)
    return _End(seq, frame, lines) if whole else None
