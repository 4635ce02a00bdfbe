"""Why a plan struck nothing, in words that say what there would have been to strike."""

from collections.abc import Collection

from supervisor.chaos.plan import BYTES, Boundary, Plan
from supervisor.chaos.session import Session
from supervisor.words import count

SHOWN_MAX = 12


def why_missed(plan: Plan, session: Session) -> str:
    """What the plan waited for in vain, held against the undisturbed tree."""
    if plan.lure and plan.lure.tool not in session.tools:
        return f"undisturbed, the tree calls no tool {plan.lure.tool}{_of(session.tools)}"
    if not plan.strikes:
        return "its tool did not return"
    at = plan.strikes[0].boundary
    there = session.boundaries
    if not (in_run := [one for one in there if one.run == at.run]):
        return f"undisturbed, there is no run {at.run}{_of({one.run for one in there})}"
    if not (alike := [one for one in in_run if one.event == at.event]):
        return f"run {at.run} has no {at.event}{_of({one.event for one in in_run})}"
    most = max(one.number for one in alike)
    if at.number > most:
        return f"run {at.run} has {_many(at, most)}"
    return "who was to be struck was not there any more, or its moment never came"


def _many(at: Boundary, most: int) -> str:
    return f"{count(most, 'byte')} at its end" if at.event == BYTES else f"{at.event} {most} times"


def _of(names: Collection[str]) -> str:
    shown = sorted(names)[:SHOWN_MAX]
    return f"; it has {', '.join(shown)}" if shown else ""
