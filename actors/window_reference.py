"""The policy ``reference``: the specification's rule to the letter, beside which ours is measured.

It looks at the whole history each time. Once that is over the budget, results are cleared whenever
four of them lie behind the newest that fit in a quarter; what still does not fit is dropped by
turns of the user, then by rounds.
"""

import msgspec

from actors.window import Marks, Window

KEPT_SHARE = 0.25
BATCH = 4

replace = msgspec.structs.replace


def fit_reference(window: Window, marks: Marks, budget: int) -> Marks:
    """The marks for the next request; still over the budget when nothing more can be done."""
    if window.size(replace(marks, cleared_upto=0, folded_upto=0)) <= budget:
        return marks
    # 1. Clear the oldest results, in batches.
    old = window.newest_within(KEPT_SHARE * budget)
    marks = replace(marks, cleared_upto=old - old % BATCH, folded_upto=0)
    # 2. Keep the newest whole turns of the user that fit.
    for turn in window.person_turns(marks.folded_upto, window.rounds - 1):
        if window.size(marks) <= budget:
            return marks
        marks = _drop(window, marks, turn)
    # 3. Keep the newest whole rounds that fit, always at least one.
    while window.size(marks) > budget and marks.folded_upto < window.rounds - 1:
        marks = _drop(window, marks, marks.folded_upto + 1)
    return marks


def _drop(window: Window, marks: Marks, rounds: int) -> Marks:
    cleared = max(marks.cleared_upto, window.results_before(rounds))
    return replace(marks, folded_upto=rounds, cleared_upto=cleared)
