"""Which calls of tools are behind what a tree does by itself, as far as its journals tell."""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from actors.journal import JournalError
from actors.messages import ResultKind
from supervisor.chaos.check import ran
from supervisor.chaos.ended import Ran
from supervisor.chaos.world import Home
from supervisor.state_dir import StateDir, StateError


def under_way(home: Home) -> str:
    """The calls that have not answered yet; empty when there are none."""
    return _named(one for one in _calls(home) if one.outcome is None)


def died(home: Home) -> str:
    """The calls that ended their own process, in a tree that nobody has struck."""
    lost = (ResultKind.IN_DOUBT, ResultKind.CRASHED)
    return _named(one for one in _calls(home) if one.attempts > 1 or one.outcome in lost)


def left(home: Home, pids: Iterable[int]) -> str:
    """The calls during which these processes began; else all that may have begun them."""
    began = [at for pid in pids if (at := _began(pid))]
    calls = _calls(home)
    sure = [
        one
        for one in calls
        if any(one.started_at - 1 / _ticks() <= at <= one.ended_at for at in began)
    ]
    return _named(sure or calls)


def _calls(home: Home) -> list[Ran]:
    state_dir = StateDir(home.state_dir)
    found: list[Ran] = []
    # A run that has no journal yet has called nothing.
    with suppress(StateError, JournalError):
        for name in (home.run_id, *state_dir.below(home.run_id)):
            found += ran(home, name, state_dir.state(name))
    return found


def _named(calls: Iterable[Ran]) -> str:
    return " and ".join(f"tool {one.tool} (call {one.call} of run {one.run})" for one in calls)


def _began(pid: int) -> float | None:
    """When a process was forked, in Unix seconds, early by up to a tick; None when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / _ticks()
    return time.time() - age


def _ticks() -> int:
    return os.sysconf("SC_CLK_TCK")
