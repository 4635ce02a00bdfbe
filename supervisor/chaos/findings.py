"""What a session found, from its rounds: failures with the command to see them again, and tools."""

import shlex
from collections import Counter
from collections.abc import Sequence

from actors.messages import Nature
from actors.testing.chaos_report import ChaosReport, Failure, UnsafeTool
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
) -> ChaosReport:
    """The report of these rounds; ``command`` is what the user typed, short of the plans."""
    failures = tuple(
        Failure(
            plan=one.plan,
            words=one.failure[-WORDS_MAX:],
            replay=shlex.join([*command, "--seed", str(seed), "--plan", one.plan]),
        )
        for one in rounds
        if one.failure
    )
    reference = session.reference
    return ChaosReport(
        ok=not failures,
        seed=seed,
        kills=len(rounds),
        struck=sum(one.struck > 0 for one in rounds),
        boundaries=len(session.boundaries),
        runs=len(reference.runs),
        status=reference.status,
        repeatable=session.repeatable,
        seconds=round(seconds, 1),
        failures=failures,
        unsafe_tools=_unsafe(reference.tools, rounds),
        short_budgets=tuple(sorted({agent for one in rounds for agent in one.short})),
    )


def _unsafe(undisturbed: dict[str, str], rounds: Sequence[Round]) -> tuple[UnsafeTool, ...]:
    """The plain writes among the tools that were used, and how often a kill left one in doubt."""
    natures = dict(undisturbed)
    in_doubt: Counter[str] = Counter()
    for one in rounds:
        natures.update(one.tools)
        in_doubt.update({doubt.tool for doubt in one.doubts})
    plain = [name for name, nature in natures.items() if nature == Nature.WRITE]
    return tuple(
        UnsafeTool(name, in_doubt[name], _unsafe_words(name, in_doubt[name], len(rounds)))
        for name in sorted({*plain, *in_doubt})
    )


def _unsafe_words(name: str, doubts: int, rounds: int) -> str:
    seen = (
        f"in {doubts} of {rounds} rounds a call was cut off and is in doubt"
        if doubts
        else f"in these {rounds} rounds no call was cut off, but one could be"
    )
    return (
        f"{name} is a plain write, so it is never run twice: {seen}. Give it a key (keyed=True) or "
        "a probe, if it can be made safe to repeat"
    )
