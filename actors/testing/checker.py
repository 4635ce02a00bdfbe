"""The checker: whether a run that was killed kept every promise, from four ledgers.

The journal says what the run believes. Three ledgers lie outside of any crash: what the provider
billed, what the tools did to the world, and what the process noted as acknowledged. Call
``check_crashed`` right after a crash, before anybody resumes, and ``check_run`` at the end::

    evidence = Evidence(run_dir, crashes=1, bills=bills.of("r1"), effects=effects, notes=notes)
    check_run(evidence)
"""

from pathlib import Path

from actors.state import State, fold
from actors.testing import promises
from actors.testing.book import Book
from actors.testing.evidence import Evidence, Reference, hold


def reference_of(run_dir: Path) -> Reference:
    """What an undisturbed run came to; raises Broken where its journal is not whole."""
    state = fold(Book(run_dir, whole=True).events)
    results = {
        call.ref: (call.result.outcome, call.result.content)
        for call in promises.calls_of(state)
        if call.result
    }
    return Reference(state.outcome.output if state.outcome else None, results)


def check_crashed(evidence: Evidence) -> None:
    """Check what must hold right after a crash, before any resume; raises Broken."""
    book = Book(evidence.run_dir, whole=False)
    promises.check_acknowledged(book, evidence)
    promises.check_under_way(fold(book.events))
    promises.check_heads(book)


def check_run(
    evidence: Evidence, reference: Reference | None = None, *, ended: bool = True
) -> State:
    """Check what must hold of a run, and return its state; raises Broken.

    Not ``ended`` is a child that nobody resumed, because its parent was stopped.
    """
    book = Book(evidence.run_dir, whole=ended)
    promises.check_acknowledged(book, evidence)
    promises.check_turns(book, evidence)
    state = fold(book.events)
    promises.check_calls(book, state)
    promises.check_effects(book, state, evidence)
    promises.check_money(book, state, evidence)
    promises.check_heads(book)
    if ended:
        promises.check_ending(book, state, evidence)
        promises.check_trace(book, evidence.run_dir)
    if reference:
        promises.check_like(state, reference)
    return state


def check_children(parent: Evidence, state: State, children: dict[str, State]) -> None:
    """I9: each child that is there was asked for, and its money is counted once; raises Broken.

    ``children`` are the states of the children, by the ref of their call.
    """
    name = parent.run_dir.name
    there = {path.name for path in parent.run_dir.parent.glob(f"{name}.*")}
    calls = {f"{name}.{call.ref}": call for call in promises.calls_of(state) if call.is_child}
    started = {run_id for run_id, call in calls.items() if call.attempts}
    hold(there <= started, "I9", f"the children {sorted(there - started)} were never asked for")
    total = 0
    for run_id in sorted(there):
        call = calls[run_id]
        child = children[call.ref]
        hold(child.epoch <= 1 + parent.crashes, "I9", f"{run_id} was opened {child.epoch} times")
        if call.result:
            total += call.result.child_nusd
            told, spent = call.result.child_nusd, child.spent_nusd
            hold(told == spent, "I9", f"{run_id} spent {spent}, and its parent has {told}")
    hold(state.head.children_nusd == total, "I9", f"children cost {state.head.children_nusd}")
