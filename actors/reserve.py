"""Whether a run may start another child, and how much of its budget that one may have."""

from actors.child_report import kind_of, reason_of
from actors.outcome import Status, path_of
from actors.state import State
from actors.tools import Tool

ALIKE_MAX = 3
"""A fan-out whose first so many children failed alike is not gone on with."""


def no_child(state: State, tool: Tool) -> str | None:
    """Why no further child may be started, in words; None when one may."""
    if len(path_of(state.run_id)) > (depth := state.limits.max_depth):
        return f"not run: the tree's depth below its root is limited to {depth}"
    if state.head.children >= state.limits.max_children:
        return f"not run: this run has started {state.head.children} children, its limit"
    if reserve_nusd(state, tool, 1) == 0:
        return "not run: the budget has nothing left for a child"
    ended = [call.result for call in state.turns[-1].calls if call.result and call.is_child]
    reasons = [reason_of(one.content) for one in ended if one.child_status == Status.FAILED]
    failed = len(reasons)
    if failed == len(ended) >= ALIKE_MAX and len({kind_of(one) for one in reasons}) == 1:
        return (
            f"not run: the first {failed} calls of {tool.name} in this message failed alike, "
            f"so the others were not started. {reasons[0]}"
        )
    return None


def reserve_nusd(state: State, tool: Tool, waiting: int) -> int | None:
    """What a child that starts now may spend, in 1e-9 USD; None when nothing bounds it.

    It is the smaller of its own limit and its share of what is left, where ``waiting`` children,
    itself included, are still to come. What one does not spend is there for those after it.
    """
    limit, own = state.limits.max_budget_nusd, tool.budget_nusd
    if limit is None:
        return own
    share = max(0, limit - state.spent_nusd) // waiting
    return share if own is None else min(own, share)
