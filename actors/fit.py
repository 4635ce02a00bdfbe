"""Fits the next request to its budget, by whichever policy: the marks that do it, or the reason."""

import msgspec

from actors.calibration import Calibration
from actors.window import Marks, Part, Policy, Window
from actors.window_band import fit_band
from actors.window_reference import fit_reference

HEADROOM = 0.95
"""A window that a provider names is used up to this share, because counts are estimates."""


class Fitted(msgspec.Struct, frozen=True):
    """How the next request is shaped; sizes in the provider's tokens, as far as we know them."""

    marks: Marks
    before: int
    """What the request would have been under the old marks."""
    after: int
    cleared: int = 0
    """Results that this fitting cleared."""
    folded: int = 0
    """Rounds that it folded."""
    raw: int = 0
    """The request's size by our own count, from which usage is learned; 0: nothing is fitted."""
    rounds: int = 0
    """Rounds that the request is made of, folded ones too."""
    why: str = "budget"
    """``cold`` after a pause, when clearing costs nothing."""
    changed: bool = False
    """The request does not begin like the one before it: record the marks, and say so."""


class Overflow(msgspec.Struct, frozen=True):
    """The smallest request there can be is larger than the budget: nothing may be sent."""

    budget: int
    size: int
    parts: tuple[Part, ...]

    @property
    def words(self) -> str:
        """What happened and what to do, for the person."""
        parts = ", ".join(f"{part.name} {part.tokens}" for part in self.parts)
        return (
            f"the request cannot be fitted to its budget: it needs {self.size} tokens and may have "
            f"{self.budget} ({parts}). Nothing was sent and nothing is lost; raise budget_tokens, "
            "or make the largest part smaller, and start the run anew"
        )


def fit(
    window: Window,
    marks: Marks,
    budget: int,
    policy: Policy,
    calibration: Calibration,
    *,
    k0: float,
    cold: bool = False,
) -> Fitted | Overflow:
    """Shape the next request so that it has at most ``budget`` tokens.

    One pass: two calls in a row with the same history give the same marks, so nothing can loop.
    ``cold``: the provider's cache is lost anyway, so that clearing now costs nothing.
    """
    if marks.budget:
        budget = min(budget, marks.budget)
    fresh = window.fresh(calibration.rounds)
    before = calibration.tokens(window.size(marks), fresh, k0)
    if policy.name == "off":
        return Fitted(marks, before, before)
    raw_budget = calibration.raw_budget(budget, fresh, k0)
    if policy.name == "reference":
        new = fit_reference(window, marks, raw_budget)
    else:
        new = fit_band(window, marks, raw_budget, policy, cold=cold)
    size = window.size(new)
    after = calibration.tokens(size, fresh, k0)
    if size > raw_budget:
        scale = after / size
        parts = tuple(Part(p.name, round(p.tokens * scale)) for p in window.parts(new))
        return Overflow(budget, after, parts)
    return Fitted(
        new,
        before,
        after,
        cleared=new.cleared_upto - marks.cleared_upto,
        folded=new.folded_upto - marks.folded_upto,
        raw=size,
        rounds=window.rounds,
        why="cold" if cold else "budget",
        changed=new != marks,
    )


def lowered_budget(
    size: int, limit_tokens: int | None, used_tokens: int | None, max_output: int = 0
) -> int:
    """The budget for the one time that a request is sent again after the provider refused it.

    ``size`` is what we took the request for, ``limit_tokens`` and ``used_tokens`` what the
    provider named. It is the limit that it named, in our own count; else two thirds of the size.
    """
    if limit_tokens and limit_tokens > 0:
        limit, used = limit_tokens, used_tokens or size
        # Some count the reply that was asked for, too. It does not shrink with the request.
        if abs(used - max_output - size) < abs(used - size):
            limit, used = limit - max_output, used - max_output
        counted = limit * size // max(1, used)
        if 0 < counted < size:
            return int(counted * HEADROOM)
    return size * 2 // 3
