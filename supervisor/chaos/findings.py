"""What a session found, from its rounds: failures with the command to see them again, and tools."""

import shlex
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from actors.messages import Nature
from actors.testing.chaos_report import ChaosReport, Failure, UnsafeTool
from supervisor.chaos.ended import SHIPPED
from supervisor.chaos.missed import why_missed
from supervisor.chaos.plan import Lure, parse
from supervisor.chaos.round import Round
from supervisor.chaos.session import Session

WORDS_MAX = 2000


def findings(
    session: Session,
    rounds: Sequence[Round],
    *,
    command: Sequence[str],
    seed: int,
    seconds: float,
    chosen: bool = False,
    interrupted: bool = False,
) -> ChaosReport:
    """The report of these rounds; ``command`` is what the user typed, short of the plans.

    Of plans that were ``chosen`` by the user, each must strike. An ``interrupted`` session has
    fewer rounds than were asked for.
    """
    missed = tuple(
        f"{one.plan} struck nothing: {why_missed(parse(one.plan), session)}"
        for one in rounds
        if not (one.struck or one.failure)
    )
    kept = {one.plan for one in rounds if one.struck and not (one.failure or one.doubts)}
    failures = tuple(
        _failure(one, kept, shlex.join([*command, "--seed", str(seed), "--plan", one.plan]))
        for one in rounds
        if one.failure
    )
    reference = session.reference
    natures = dict(reference.natures)
    for one in rounds:
        natures.update(one.natures)
    again = {tool for one in rounds for tool in one.again}
    safe = {tool for tool, nature in natures.items() if nature is not Nature.WRITE}
    return ChaosReport(
        ok=not (failures or interrupted)
        and not (missed and (chosen or len(missed) == len(rounds))),
        interrupted=interrupted,
        seed=seed,
        kills=len(rounds),
        struck=sum(one.struck > 0 for one in rounds),
        boundaries=len(session.boundaries),
        runs=len(reference.runs),
        status=reference.status,
        repeatable=not session.varying,
        seconds=round(seconds, 1),
        varying=tuple(session.varying.values()),
        untried=tuple(sorted(safe - again - SHIPPED)),
        lifted=session.lifted,
        missed=missed,
        failures=failures,
        unsafe_tools=_unsafe(natures, rounds, failures),
        short_budgets=tuple(sorted({agent for one in rounds for agent in one.short})),
    )


def _failure(one: Round, kept: Collection[str], replay: str) -> Failure:
    """``kept`` are the plans of the rounds in which the same tree came to the same."""
    words = one.failure[-WORDS_MAX:]
    tools = _tools(one.charges)
    # What a trap of its own has tried and found safe, it is not.
    left = _tools(charge for charge in one.charges if str(charge) not in kept)
    if len(left) == 1 < len(tools):
        tools = left
        words += f"; in rounds of their own the others were, so it is {left[0]}"
    return Failure(plan=one.plan, words=words, replay=replay, tools=tools)


def _tools(charges: Iterable[Lure]) -> tuple[str, ...]:
    return tuple(sorted({charge.tool for charge in charges}))


def _unsafe(
    natures: Mapping[str, Nature], rounds: Sequence[Round], failures: Sequence[Failure]
) -> tuple[UnsafeTool, ...]:
    """The plain writes among the tools that were used, and those that broke a promise of theirs."""
    in_doubt = Counter(tool for one in rounds for tool in one.doubts)
    broken: defaultdict[str, list[Failure]] = defaultdict(list)
    for failure in failures:
        # Of several nobody knows which; the failure names them all.
        if len(failure.tools) == 1:
            broken[failure.tools[0]].append(failure)
    plain = {name for name, nature in natures.items() if nature is Nature.WRITE}
    return tuple(
        UnsafeTool(
            tool=name,
            in_doubt=in_doubt[name],
            words=_broken_words(name, natures[name], len(found), len(rounds))
            if (found := broken[name])
            else _plain_words(name, in_doubt[name], len(rounds)),
            broken=len(found),
            # A trap's plan is the shortest, and the one that meets it each time.
            replay=min(found, key=lambda one: len(one.plan)).replay if found else "",
        )
        for name in sorted({*plain, *in_doubt, *broken})
    )


def _broken_words(name: str, nature: Nature, times: int, rounds: int) -> str:
    seen = f"in {times} of {rounds} rounds files or answer came out otherwise after a kill"
    if nature is Nature.WRITE:
        return f"{name} leaves work behind its answer, which a kill undoes: {seen}. Let it wait"
    return (
        f"{name} is {nature}, so a call that was cut off is run again: {seen}. Let it do one thing "
        "once a key, or take that flag away"
    )


def _plain_words(name: str, doubts: int, rounds: int) -> str:
    seen = (
        f"in {doubts} of {rounds} rounds a call was cut off and is in doubt"
        if doubts
        else f"in these {rounds} rounds no call was cut off, but one could be"
    )
    return (
        f"{name} is a plain write, so it is never run twice: {seen}. Give it a key (keyed=True) or "
        "a probe, if it can be made safe to repeat"
    )
