"""A person's verdict on a call that waits: recorded by whoever holds the run's lock, used once."""

from pathlib import Path

import msgspec

from actors.epoch import visit
from actors.events import ApprovalGiven
from actors.fs import REAL, Fs
from actors.messages import Nature
from actors.outcome import RESUMABLE
from actors.record import Record
from actors.state import Call, State

APPROVE, REJECT = "approve", "reject"
RUN_AGAIN, DONE, NOT_DONE = "run_again", "done", "not_done"


class VerdictRefused(Exception):
    """The verdict fits no call that waits; nothing was recorded. The person must name another."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a person says of the call ``ref``; ``args`` are other arguments for it, as JSON."""

    ref: str
    yes: bool
    who: str
    happened: bool | None = None
    """Of a call in doubt alone: whether it is known to have taken effect."""
    reason: str = ""
    args: str | None = None


async def record_verdict(run_dir: Path, verdict: Verdict, fs: Fs = REAL) -> bool:
    """Take the run's lock and record a verdict; False when it stood there already.

    Raises:
        VerdictRefused: the call does not wait for it.
        JournalError: the run is held, its journal is damaged, or the disk fails.
    """
    record = Record(run_dir, fs)
    try:
        given = _given(record.state, verdict)
        if given is None:
            return False
        # In one write, so that no epoch stands there without the verdict that it was for.
        await record.add(visit(record), given, barrier=True)
    finally:
        record.close()
    return True


def _given(state: State, verdict: Verdict) -> ApprovalGiven | None:
    """The event to record, or None when the same verdict is recorded and not used yet."""
    call = _found(state, verdict.ref)
    waiting = _waiting_words(state)
    doubt = outcome_unknown(call)
    if verdict.happened is not None and not doubt:
        words = "was not started, so nobody has to say whether it happened"
        raise VerdictRefused(f"call {call.ref} {words}")
    if doubt and verdict.args is not None:
        raise VerdictRefused(f"call {call.ref} was started, so its arguments stay as they are")
    digest = call.digest if doubt else call.asked
    if digest is None:
        raise VerdictRefused(f"call {call.ref} does not wait for a verdict; {waiting}")
    word = _word(verdict, doubt)
    before = call.verdict
    if before and not waits(call):
        same_args = verdict.args is None or verdict.args == before.args
        if before.verdict == word and same_args:
            return None
        words = (
            f"has a verdict by {before.who} already ({before.verdict}), and the first one counts"
        )
        raise VerdictRefused(f"call {call.ref} {words}; {waiting}")
    return ApprovalGiven(
        ref=call.ref,
        digest=digest,
        verdict=word,
        who=verdict.who,
        reason=verdict.reason,
        args=verdict.args,
    )


def _word(verdict: Verdict, doubt: bool) -> str:
    if not doubt:
        return APPROVE if verdict.yes else REJECT
    if not verdict.yes:
        return NOT_DONE
    return DONE if verdict.happened else RUN_AGAIN


def _found(state: State, ref: str) -> Call:
    if state.outcome and state.outcome.status not in RESUMABLE:
        raise VerdictRefused(f"the run has ended ({state.outcome.status}), so no call waits")
    for call in state.pending:
        if call.ref == ref:
            return call
    known = ref in {call.ref for turn in state.turns for call in turn.calls}
    words = f"call {ref} has its answer already" if known else f"there is no call {ref!r}"
    raise VerdictRefused(f"{words}; {_waiting_words(state)}")


def waits(call: Call) -> bool:
    """Whether a call needs a person: it was asked about, or started with an unknown outcome."""
    if call.result:
        return False
    if outcome_unknown(call):
        return call.verdict is None or call.verdict.verdict not in (RUN_AGAIN, DONE, NOT_DONE)
    if call.asked is None:
        return False
    # A verdict counts for the arguments that were shown; a tool that changed is asked about anew.
    verdict = call.verdict
    answered = verdict and verdict.digest == call.asked and verdict.verdict in (APPROVE, REJECT)
    return not answered


def outcome_unknown(call: Call) -> bool:
    """Whether a write was started and has no answer, so that nobody knows what became of it.

    One with a key is run again, so it is unknown only where the run has stopped to ask.
    """
    started = call.attempts > 0 and call.result is None and call.abandoned is None
    return started and (call.doubted or call.nature in (Nature.WRITE, Nature.PROBED))


def _waiting_words(state: State) -> str:
    waiting = [call.ref for call in state.pending if waits(call)]
    return f"waiting for a verdict: {', '.join(waiting)}" if waiting else "no call waits"
