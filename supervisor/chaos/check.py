"""What must hold over a whole tree once it has ended, however it was struck.

Each run is held against its own journal, the provider's bills and, where there is one, the ledger
of the tools (``actors.testing.checker``); then the runs against each other, and all of it against
the same tree undisturbed.
"""

from collections import defaultdict

import msgspec

from actors.events import AnyEvent, ApprovalGiven, Started
from actors.journal import JOURNAL
from actors.messages import Nature, ResultKind
from actors.outcome import Status
from actors.state import Call, State, fold
from actors.testing.checker import check_run
from actors.testing.evidence import Effect, Evidence, hold
from actors.verdict import RUN_AGAIN
from supervisor.chaos.world import Home
from supervisor.state_dir import StateDir

UNLIKE = (ResultKind.IN_DOUBT, ResultKind.CRASHED)
"""Answers that a kill may put in the place of what would have been said."""


class Doubt(msgspec.Struct, frozen=True):
    """A call whose outcome nobody knew after a kill."""

    tool: str
    run: str
    call: str


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """What a tree came to."""

    status: str
    output: str | None
    error: str | None
    workspace: dict[str, str]
    runs: tuple[str, ...]
    doubts: tuple[Doubt, ...] = ()
    tools: dict[str, str] = {}
    """Nature of each tool that was started, as the journals have it."""
    short: tuple[str, ...] = ()
    """Agents whose budget a kill used up, as what was possibly spent counts."""
    unlike: bool = False
    """Something else was said or done than undisturbed, as it may be, so the answer may differ."""


def check_tree(home: Home, kills: int, reference: Ended | None = None) -> Ended:
    """Check every promise at the end of a round; raises Broken.

    ``kills`` is how often a process was killed from outside.
    """
    state_dir = StateDir(home.state_dir)
    names = [home.run_id, *state_dir.below(home.run_id)]
    books = {n: state_dir.events(n) for n in names if (state_dir.run_dir(n) / JOURNAL).exists()}
    states = {name: fold(events) for name, events in books.items()}
    bills = home.bills()
    for name, state in states.items():
        ended = state.outcome is not None or not _given_up(states, name)
        evidence = Evidence(
            run_dir=state_dir.run_dir(name),
            crashes=kills,
            bills=bills.of(name),
            effects=_effects(home, name, state),
        )
        try:
            check_run(evidence, ended=ended)
            _check_starts(books[name])
        except AssertionError as broken:
            raise type(broken)(f"run {home.short(name)}: {broken}") from broken
    _check_children(states)
    ended = _ended(home, states)
    if reference:
        _check_like(ended, reference)
    return ended


def _given_up(states: dict[str, State], name: str) -> bool:
    """Whether a child's parent was told that it failed, when its own disk could not record it."""
    parent, ref = _parent(name)
    call = {one.ref: one for one in _calls(states[parent])}.get(ref) if parent in states else None
    return bool(call and call.result and call.result.outcome is ResultKind.ERROR)


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
    doubts: list[Doubt] = []
    tools: dict[str, str] = {}
    short: list[str] = []
    unlike = any(state.outcome is None for state in states.values())
    for name, state in states.items():
        if state.outcome and state.outcome.status is Status.MAX_BUDGET:
            short.append(state.agent)
        for call in _calls(state):
            if call.nature:
                tools[call.written.name] = call.nature.value
            if call.result is None or call.result.outcome not in UNLIKE:
                continue
            unlike = True
            if call.result.outcome is ResultKind.IN_DOUBT:
                doubts.append(Doubt(call.written.name, home.short(name), call.ref))
    return Ended(
        status=outcome.status.value,
        output=outcome.output,
        error=outcome.error,
        workspace=home.workspace(),
        runs=tuple(home.short(name) for name in states),
        doubts=tuple(doubts),
        tools=tools,
        short=tuple(short),
        unlike=unlike or bool(short),
    )


def _check_like(ended: Ended, reference: Ended) -> None:
    """The tree came to what it comes to undisturbed, but for what was told as not known."""
    unknown = ended.unlike and not reference.unlike
    words = f"ended as {ended.status} ({ended.error}), and undisturbed as {reference.status}"
    hold(ended.status == reference.status or unknown, "answer", words)
    if unknown:
        return
    words = f"the answer is {ended.output!r}, and undisturbed {reference.output!r}"
    hold(ended.output == reference.output, "answer", words)
    words = f"the runs are {ended.runs}, and undisturbed {reference.runs}"
    hold(ended.runs == reference.runs, "answer", words)
    changed = [
        path
        for path in sorted({*ended.workspace, *reference.workspace})
        if ended.workspace.get(path) != reference.workspace.get(path)
    ]
    hold(not changed, "workspace", f"other contents than undisturbed: {', '.join(changed[:5])}")
