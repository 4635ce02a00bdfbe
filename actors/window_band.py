"""The policy ``band``: let a request grow to a high mark, then make it small in one rewrite.

A rewrite breaks the provider's prefix cache once, however much it does, so it does all the work
there is: clear, fold, and only if the budget itself is still exceeded, cut.
"""

import math
from functools import partial

import msgspec

from actors.window import Marks, Policy, Window

SAVING_MIN = 0.1
"""A rewrite that nobody forced must make the request smaller by this share of the budget."""
HIGH_MIN = 0.9
"""``auto`` never rewrites earlier, so that the model keeps most of its window."""
CUT_MIN = 200
"""Tokens of a cut result below which it would say nothing any more."""

replace = msgspec.structs.replace


def fit_band(window: Window, marks: Marks, budget: int, policy: Policy, *, cold: bool) -> Marks:
    """The marks for the next request; still over the budget when nothing more can be done."""
    size = window.size(marks)
    low = policy.low * budget
    if size <= high_water(window, budget, policy) and not (cold and size > low):
        return marks
    new = _clear(window, marks, budget, policy)
    new = _fold(window, new, low)
    if size <= budget and not cold and size - window.size(new) < SAVING_MIN * budget:
        return marks
    if window.size(new) > budget:
        new = _clear_to(window, new, window.results - 1)
        new = _fold(window, new, low)
        new = _cut(window, new, budget)
    return new


def high_water(window: Window, budget: int, policy: Policy) -> float:
    """The size from which on a request is rewritten.

    Waiting costs the cached price of what was kept longer; a rewrite costs the full price of what
    it keeps. ``auto`` is where both together cost least a round, for rounds as large as of late.
    """
    if policy.high != "auto":
        return policy.high * budget
    if not policy.cached_share:
        return float(budget)
    low = max(policy.low * budget, window.fixed)
    again = 2 * (1 - policy.cached_share) / policy.cached_share
    cheapest = low + math.sqrt(again * low * window.growth())
    return min(float(budget), max(HIGH_MIN * budget, cheapest))


def _clear(window: Window, marks: Marks, budget: int, policy: Policy) -> Marks:
    """Clear the oldest results until the low mark, but none of those the floor protects."""
    start = marks.cleared_upto
    most = window.newest_within(policy.floor * budget) - start
    wanted = window.clear_for(marks, window.size(marks) - policy.low * budget) - start
    # Fewer than a batch are cleared only where there is no more to clear.
    return _clear_to(window, marks, start + min(max(wanted, policy.batch), most))


def _clear_to(window: Window, marks: Marks, cleared_upto: int) -> Marks:
    cleared = min(max(marks.cleared_upto, cleared_upto), window.results)
    return replace(marks, cleared_upto=cleared)


def _fold(window: Window, marks: Marks, low: float) -> Marks:
    """Fold the oldest cleared rounds until the low mark: whole turns of the user first."""
    # The newest round always stands, whatever it holds.
    most = min(window.cleared_rounds(marks.cleared_upto), window.rounds - 1)
    start = marks.folded_upto
    if window.size(marks) <= low or most <= start:
        return marks
    for turn in window.person_turns(start, most):
        if window.size(replace(marks, folded_upto=turn)) <= low:
            return replace(marks, folded_upto=turn)
        start = turn
    # Each round is larger than its line, so that sizes only fall and can be searched.
    fits = partial(_fits, window, marks, low)
    below, above = start, most
    while below < above:
        middle = (below + above) // 2
        if fits(middle):
            above = middle
        else:
            below = middle + 1
    return replace(marks, folded_upto=below)


def _fits(window: Window, marks: Marks, low: float, folded_upto: int) -> bool:
    return window.size(replace(marks, folded_upto=folded_upto)) <= low


def _cut(window: Window, marks: Marks, budget: int) -> Marks:
    """Cut the newest result, if that is what it takes."""
    over = window.size(marks) - budget
    newest = window.results - 1
    if over <= 0 or newest < 0:
        return marks
    left = window.result(newest) - over
    if newest == marks.cut_result:
        left = min(window.result(newest), marks.cut_tokens) - over
    if left < CUT_MIN:
        return marks
    return replace(marks, cut_result=newest, cut_tokens=left)
