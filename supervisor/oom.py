"""Whether a process was killed because it had used up its CPU time, or the system its memory."""

import signal
from pathlib import Path

from actors.spec import Resources
from supervisor.spawned import Exit

VMSTAT = Path("/proc/vmstat")


class OomWatch:
    """Counts the system's kills for memory from when it is made."""

    def __init__(self) -> None:
        self._kills = _kills()

    def words(self, ending: Exit, limits: Resources) -> str:
        """What to say of an ending that a limit or such a kill explains; nothing for any other.

        The kernel tells how many it has killed and not whom, so that is a likelihood.
        """
        before, self._kills = self._kills, _kills()
        if _out_of_time(ending, limits.cpu_seconds):
            return f", as it had used up its CPU time of {limits.cpu_seconds} s (cpu_s)"
        killed = ending.signal == signal.SIGKILL and self._kills > before
        return ", very likely by the system, which had run out of memory" if killed else ""


def _out_of_time(ending: Exit, seconds: int | None) -> bool:
    """SIGXCPU says so; who ignores that is killed a second of CPU time later."""
    if seconds is None:
        return False
    late = ending.signal == signal.SIGKILL and ending.cpu_seconds > seconds
    return late or ending.signal == signal.SIGXCPU


def _kills() -> int:
    try:
        text = VMSTAT.read_bytes()
    except OSError:
        return 0
    # Read for each run of a tree, so not taken apart line by line.
    _, _, count = (b"\n" + text).partition(b"\noom_kill ")
    return int(count.split(maxsplit=1)[0]) if count else 0
