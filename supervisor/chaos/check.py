"""What must hold over a whole tree once it has ended, however it was struck.

Each run is held against its own journal, the provider's bills and, where there is one, the ledger
of the tools (``actors.testing.checker``); then the runs against each other, and all of it against
the same tree undisturbed.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator

from actors.events import AnyEvent, ApprovalGiven, Started
from actors.journal import JOURNAL
from actors.messages import Nature, ResultKind
from actors.outcome import Status
from actors.state import Call, State, fold
from actors.testing.checker import check_run
from actors.testing.evidence import Effect, Evidence, hold
from actors.verdict import RUN_AGAIN
from supervisor.chaos.compare import check_like
from supervisor.chaos.ended import Ended, Ran
from supervisor.chaos.world import Home
from supervisor.state_dir import StateDir

UNLIKE = (ResultKind.IN_DOUBT, ResultKind.CRASHED)
"""Answers that a kill may put in the place of what would have been said."""


def check_tree(
    home: Home, kills: int, reference: Ended | None = None, varying: Collection[str] = ()
) -> Ended:
    """Check every promise at the end of a round; raises Broken.

    ``kills`` is how often a process was killed from outside. The tree is compared with the same
    one undisturbed, but for what is ``varying`` by itself.
    """
    state_dir = StateDir(home.state_dir)
    names = [home.run_id, *state_dir.below(home.run_id)]
    books = {n: state_dir.events(n) for n in names if (state_dir.run_dir(n) / JOURNAL).exists()}
    states = {name: fold(events) for name, events in books.items()}
    bills = home.bills()
    for name, state in states.items():
        evidence = Evidence(
            run_dir=state_dir.run_dir(name),
            crashes=kills,
            bills=bills.of(name),
            effects=_effects(home, name, state),
        )
        try:
            check_run(evidence)
            _check_starts(books[name])
        except AssertionError as broken:
            raise type(broken)(f"run {home.short(name)}: {broken}") from broken
    _check_children(states)
    ended = _ended(home, states)
    if reference:
        check_like(ended, reference, varying)
    return ended


def _parent(name: str) -> tuple[str, str]:
    """The parent of a run and the call that it answers; two empty texts for a root."""
    parts = name.split(".")
    return (".".join(parts[:-2]), ".".join(parts[-2:])) if len(parts) > 2 else ("", "")


def _calls(state: State) -> list[Call]:
    return [call for turn in state.turns for call in turn.calls]


def _effects(home: Home, name: str, state: State) -> list[Effect]:
    """The tools' ledger; where nobody keeps one, what a run says it did is taken for it."""
    kept = home.world.effects
    found = kept(home.path, name) if kept else []
    told = [
        Effect(kind="told", ref=call.ref)
        for call in _calls(state)
        if call.result and call.result.outcome is ResultKind.OK
        if call.is_child or not kept
    ]
    return found + told


def _check_starts(events: list[AnyEvent]) -> None:
    """I6, by the run's own word: a plain write starts once, a keyed one under one key."""
    starts: defaultdict[str, list[Started]] = defaultdict(list)
    again: defaultdict[str, int] = defaultdict(int)
    for event in events:
        if isinstance(event, Started):
            starts[event.ref].append(event)
        elif isinstance(event, ApprovalGiven) and event.verdict == RUN_AGAIN:
            again[event.ref] += 1
    for ref, found in starts.items():
        if found[0].nature is Nature.WRITE:
            words = f"the plain write {ref} was started {len(found)} times"
            hold(len(found) <= 1 + again[ref], "I6", words)
        keys = {one.key for one in found}
        hold(len(keys) == 1, "I6", f"{ref} bore the keys {sorted(keys)}")


def _check_children(states: dict[str, State]) -> None:
    """I9: each run below is the child of a call, and its parent counted its money once."""
    for name, state in states.items():
        parent, ref = _parent(name)
        if parent:
            words = f"{name} is the child of no call"
            hold(parent in states, "I9", words)
            calls = {call.ref: call for call in _calls(states[parent])}
            call = calls.get(ref)
            hold(call is not None and call.is_child, "I9", words)
        children = [call for call in _calls(state) if call.is_child and call.result]
        for call in children:
            assert call.result
            child = states.get(f"{name}.{call.ref}")
            spent = child.spent_nusd if child else 0
            words = f"{name}.{call.ref} spent {spent}, and its parent counts"
            hold(call.result.child_nusd == spent, "I9", f"{words} {call.result.child_nusd}")
            done = call.result.outcome is ResultKind.OK
            completed = bool(child and child.outcome and child.outcome.status is Status.COMPLETED)
            words = f"{name}.{call.ref} completed: {completed}; its parent was told: {done}"
            hold(not done or completed, "I9", words)
        total = sum(call.result.child_nusd for call in children if call.result)
        words = f"{name} counts {state.head.children_nusd} for its children, who spent {total}"
        hold(state.head.children_nusd == total, "I9", words)


def _ended(home: Home, states: dict[str, State]) -> Ended:
    outcome = states[home.run_id].outcome
    assert outcome, "the checker has seen that every run has an ending"
    short = tuple(
        state.agent
        for state in states.values()
        if state.outcome and state.outcome.status is Status.MAX_BUDGET
    )
    unlike = any(
        call.result.outcome in UNLIKE
        for state in states.values()
        for call in _calls(state)
        if call.result
    )
    return Ended(
        status=outcome.status.value,
        output=None if outcome.output is None else home.placeless(outcome.output),
        error=outcome.error or outcome.reason,
        workspace=home.workspace(),
        runs=tuple(home.short(name) for name in states),
        ran=tuple(one for name, state in states.items() for one in ran(home, name, state)),
        short=short,
        unlike=unlike or bool(short),
    )


def ran(home: Home, name: str, state: State) -> Iterator[Ran]:
    """The calls that a tool was started for in one run, as its state has them."""
    for call in _calls(state):
        if call.nature and not call.is_child:
            result = call.result
            yield Ran(
                tool=call.written.name,
                run=home.short(name),
                call=call.ref,
                nature=call.nature,
                attempts=call.attempts,
                outcome=result.outcome if result else None,
                said=home.placeless(result.content) if result else "",
                started_at=call.started_at,
                ended_at=result.at if result else math.inf,
                behind=bool(result and result.at < state.opened_at),
            )
