"""What of a tree is not the same twice although nobody disturbs it, and which tool that comes from.

Whatever varies by itself says nothing about kills, so it is told once and compared in no round.
"""

import time
from collections.abc import Mapping

from supervisor.chaos.compare import FILE, differences
from supervisor.chaos.ended import Ended, Ran, tool_names

_CLOCK_REALTIME_COARSE = 5
"""Linux's clock that files are stamped by: it is behind the clock by up to a tick of the kernel."""


def varying(first: Ended, second: Ended, changed_at: Mapping[str, float]) -> dict[str, str]:
    """What differs in two undisturbed endings, each with words that name the tools.

    ``changed_at`` is when each file of the second one's workspace was last written.
    """
    said = {(one.run, one.call): one.said for one in first.ran}
    other = [one for one in second.users if one.said != said.get((one.run, one.call))]
    tick = time.clock_getres(_CLOCK_REALTIME_COARSE)
    found: dict[str, str] = {}
    for what in differences(second, first):
        if what.startswith(FILE):
            path = what.removeprefix(FILE)
            at = changed_at.get(path, 0.0)
            writers = [one for one in second.users if one.started_at - tick <= at <= one.ended_at]
            found[what] = f"{path}{_last_written(writers, second)}"
        else:
            found[what] = what + _first_said(other)
    return found


def _last_written(writers: list[Ran], second: Ended) -> str:
    if writers:
        return f", last written while {' and '.join(tool_names(writers))} ran"
    names = ", ".join(tool_names(second.users))
    return f", last written while no tool ran; which one it was of cannot be known: {names}"


def _first_said(other: list[Ran]) -> str:
    """What was said later may come from what was said first."""
    if not other:
        return ""
    first = min(other, key=lambda one: one.started_at)
    return f", after {first.tool} had answered otherwise (call {first.call} of run {first.run})"
