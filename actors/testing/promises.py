"""The promises that a checker holds a run to, one function each; each raises Broken."""

import math
from collections import Counter
from fractions import Fraction
from pathlib import Path

import msgspec

from actors.events import (
    ApprovalAsked,
    ApprovalGiven,
    Asked,
    AskFailed,
    Finished,
    Opened,
    Replied,
    RunStopped,
    Started,
    StopRequested,
)
from actors.messages import Nature, ResultKind
from actors.money import FREE
from actors.outcome import ORPHANED, Cancelled, Status
from actors.state import Call, State
from actors.testing.book import Book
from actors.testing.evidence import Effect, Evidence, Reference, hold
from actors.testing.lives import payload_digest
from actors.trace import TRACE, lines_of
from actors.verdict import APPROVE, RUN_AGAIN

UNLIKE = frozenset({ResultKind.IN_DOUBT, ResultKind.CRASHED, ResultKind.CANCELLED})
"""Answers that a crash or a Stop may put in the place of what would have been said."""


def calls_of(state: State) -> list[Call]:
    """The calls of a run, in the order of their refs."""
    return [call for turn in state.turns for call in turn.calls]


def check_acknowledged(book: Book, evidence: Evidence) -> None:
    """I2: what was acknowledged is there, byte for byte."""
    for line in evidence.notes:
        kind, *rest = line.split()
        if kind != "ack" or rest[0] != evidence.run_dir.name:
            continue
        seq, digest = int(rest[1]), rest[2]
        hold(seq <= len(book.frames), "I2", f"frame {seq} was acknowledged and is gone")
        there = payload_digest(book.frames[seq - 1].payload)
        hold(there == digest, "I2", f"frame {seq} is not what was acknowledged")


def check_heads(book: Book) -> None:
    """I10: every stored head is the fold of the events up to it."""
    state = State()
    for seq, event in enumerate(book.events, 1):
        state.apply(event)
        if isinstance(event, Replied | Finished | RunStopped):
            hold(event.head == state.head, "I10", f"frame {seq} holds {event.head}")


def check_under_way(state: State) -> None:
    """I8: a result is saved at once, so what a crash cuts off is one write, or none at all."""
    open_calls = [call for call in state.pending if call.attempts]
    beside = (Nature.READ_ONLY, Nature.CHILD)
    writes = [call.ref for call in open_calls if call.nature not in beside]
    refs = [call.ref for call in open_calls]
    hold(not writes or len(refs) == 1, "I8", f"the calls {refs} were under way at once")


def check_turns(book: Book, evidence: Evidence) -> None:
    """I3 and I4: a saved turn is never asked again, nor one turn more often than we crashed."""
    saved: set[int] = set()
    asked: Counter[int] = Counter()
    for event in book.events:
        if isinstance(event, Replied):
            hold(event.turn not in saved, "I3", f"turn {event.turn} was replied to twice")
            hold(event.turn == len(saved) + 1, "I3", f"turn {event.turn} is out of order")
            saved.add(event.turn)
        elif isinstance(event, Asked):
            hold(event.turn not in saved, "I3", f"turn {event.turn} was asked after its reply")
            asked[event.turn] += 1
    billed = Counter(bill.turn for bill in evidence.bills)
    for turn, times in billed.items():
        hold(times <= asked[turn], "I3", f"turn {turn}: {times} bills, {asked[turn]} asked")
    hold(saved <= set(billed), "I3", f"turns {saved - set(billed)} came without a bill")
    again = sum(billed.values()) - len(billed)
    failed = sum(isinstance(event, AskFailed) for event in book.events)
    limit = evidence.crashes + failed
    hold(again <= limit, "I4", f"{again} turns billed again, {limit} crashes and failures")


def check_calls(book: Book, state: State) -> None:
    """I5 and I15: one answer a call, none after it, and only what was approved was run."""
    answered: set[str] = set()
    asked: dict[str, bytes] = {}
    approved: dict[str, ApprovalGiven] = {}
    for event in book.events:
        match event:
            case Finished(ref=ref):
                hold(ref not in answered, "I8", f"{ref} was answered twice")
                answered.add(ref)
            case ApprovalAsked(ref=ref):
                asked[ref] = event.digest
            case ApprovalGiven(ref=ref):
                approved[ref] = event
            case Started(ref=ref):
                hold(ref not in answered, "I8", f"{ref} was run after its answer")
                verdict = approved.get(ref)
                if event.nature is Nature.WRITE:
                    # A plain write is run again only if a person says so again.
                    approved.pop(ref, None)
                hold(ref not in asked or _allows(verdict, event), "I15", f"{ref} was not approved")
            case _:
                pass
    for turn in state.turns[:-1]:
        for call in turn.calls:
            hold(call.result is not None, "I5", f"{call.ref} has no answer, and its turn is past")


def _allows(verdict: ApprovalGiven | None, started: Started) -> bool:
    if verdict is None or verdict.verdict not in (APPROVE, RUN_AGAIN):
        return False
    return verdict.args is not None or verdict.digest == started.digest


def check_effects(book: Book, state: State, evidence: Evidence) -> None:
    """I6 and I8: nothing happened more often than it was said to be started."""
    happened: dict[str, list[Effect]] = {}
    for effect in evidence.effects:
        happened.setdefault(effect.ref, []).append(effect)
    started = Counter(event.ref for event in book.events if isinstance(event, Started))
    told_again = Counter(
        event.ref
        for event in book.events
        if isinstance(event, ApprovalGiven) and event.verdict == RUN_AGAIN
    )
    repeats = sum(started.values()) - len(started)
    side_by_side = max((len(turn.calls) for turn in state.turns), default=1)
    limit = evidence.crashes * side_by_side
    hold(repeats <= limit, "I8", f"{repeats} calls were started again, {evidence.crashes} crashes")
    calls = {call.ref: call for call in calls_of(state)}
    for ref, effects in happened.items():
        hold(ref in calls, "I8", f"{ref} had an effect and was never asked for")
        forgotten = evidence.power_cut and effects[0].kind == "read"
        words = f"{ref} had {len(effects)} effects and {started[ref]} starts"
        hold(forgotten or len(effects) <= started[ref], "I8", words)
        _check_kind(calls[ref], effects, told_again[ref])
    doubts = 0
    for ref, call in calls.items():
        result, effects = call.result, happened.get(ref, [])
        if not result:
            continue
        if result.outcome is ResultKind.OK:
            hold(bool(effects) or call.is_child, "I8", f"{ref} is told as done and never happened")
        elif result.outcome is ResultKind.IN_DOUBT:
            doubts += 1
            hold(call.attempts > 0, "I8", f"{ref} is in doubt and was never started")
        elif result.outcome in (ResultKind.DEDUPED, ResultKind.REJECTED):
            hold(not effects, "I8", f"{ref} is told as {result.outcome.value} and happened")
    hold(doubts <= evidence.crashes, "I8", f"{doubts} calls in doubt, {evidence.crashes} crashes")


def _check_kind(call: Call, effects: list[Effect], told_again: int) -> None:
    keys = {effect.key for effect in effects}
    match effects[0].kind:
        case "write":
            words = f"the plain write {call.ref} happened {len(effects)} times"
            hold(len(effects) <= 1 + told_again, "I6", words)
        case "probed":
            hold(len(effects) == 1, "I6", f"the write {call.ref} with a probe happened twice")
        case "keyed":
            hold(len(keys) == 1, "I6", f"{call.ref} bore the keys {sorted(keys)}")
        case _:
            pass


def check_money(book: Book, state: State, evidence: Evidence) -> None:
    """I7: recorded <= billed <= recorded and possibly spent; equal when nothing crashed."""
    prices = state.prices or FREE
    # Reckoned here once more, so that a mistake of the run's own reckoning shows.
    billed = sum(
        math.ceil(
            Fraction(bill.input_tokens - bill.cached_input_tokens) * prices.input / 1000
            + Fraction(bill.cached_input_tokens) * prices.cached_input / 1000
            + Fraction(bill.output_tokens) * prices.output / 1000
        )
        for bill in evidence.bills
    )
    recorded = state.head.cost_nusd
    maybe = state.head.maybe_nusd + (state.asked.cap_nusd if state.asked else 0)
    words = f"billed {billed}, recorded {recorded} and possibly {maybe}"
    hold(recorded <= billed <= recorded + maybe, "I7", words)
    undisturbed = not evidence.crashes and not any(
        isinstance(event, AskFailed) for event in book.events
    )
    hold(not undisturbed or (recorded == billed and maybe == 0), "I7", words)


def check_ending(book: Book, state: State, evidence: Evidence) -> None:
    """I11: one ending, with a reason; and a Stop that was asked for ends as cancelled."""
    hold(state.outcome is not None, "I11", "the run has no ending")
    ended = False
    stop = False
    for event in book.events:
        ended = ended and isinstance(event, Opened)
        # An orphan was stopped by nobody's decision: a resume goes on as if it had only died.
        if isinstance(event, StopRequested) and event.who != ORPHANED:
            stop = True
        if isinstance(event, RunStopped):
            cancelled = isinstance(event.interruption, Cancelled)
            final = event.status in (Status.COMPLETED, Status.FAILED)
            hold(not stop or cancelled, "I11", f"a Stop ended as {event.status.value}")
            hold(not final or event is book.events[-1], "I11", "something follows the ending")
            ended, stop = True, False
    hold(ended, "I11", "the journal goes on behind its ending")
    noted = f"stop {evidence.run_dir.name}" in evidence.notes
    told = any(isinstance(event, StopRequested) for event in book.events)
    hold(told or not noted, "I11", "a Stop was asked for and is not in the journal")
    assert state.outcome
    hold(bool(state.outcome.reason), "I11", "the ending has no reason")


def check_trace(book: Book, run_dir: Path) -> None:
    """The trace shows each event once, in the journal's order, whatever a crash left out.

    Only the ending may be missing, of a child that nobody opened again.
    """
    state = State()
    told: list[int] = []
    for number, event in enumerate(book.events, 1):
        state.apply(event)
        told += [number] * len(lines_of(event, state))
    lines = [
        msgspec.json.decode(line, type=dict[str, object])
        for line in (run_dir / TRACE).read_bytes().splitlines()
    ]
    shown = [line["frame"] for line in lines if "frame" in line]
    like = shown == told[: len(shown)] and len(shown) >= len(told) - 1
    hold(like, "trace", f"it shows the frames {shown}, and not {told}")
    numbers = [line["seq"] for line in lines]
    hold(numbers == list(range(1, len(lines) + 1)), "trace", f"its lines are {numbers}")


def check_like(state: State, reference: Reference) -> None:
    """The run came to what it would have come to, but for what is told as not known."""
    if state.outcome and state.outcome.status is Status.COMPLETED:
        hold(state.outcome.output == reference.output, "I5", "the answer is another one")
        refs = [call.ref for call in calls_of(state)]
        hold(refs == list(reference.results), "I5", f"the calls are {refs}")
    for call in calls_of(state):
        if not call.result or call.result.outcome in UNLIKE:
            continue
        probed = call.nature is Nature.PROBED and call.attempts > 0
        outcome, content = reference.results[call.ref]
        like = call.result.content == content and _alike(call.result.outcome, outcome)
        hold(like or probed, "I5", f"{call.ref} was told {call.result.content[:100]!r}")


def _alike(one: ResultKind, other: ResultKind) -> bool:
    # A read whose earlier twin was cancelled is run, instead of being answered from it.
    return one is other or {one, other} == {ResultKind.OK, ResultKind.DEDUPED}
