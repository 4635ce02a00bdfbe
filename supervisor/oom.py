"""Whether the system has killed a process because its memory had run out."""

import signal
from pathlib import Path

from supervisor.spawned import Exit

VMSTAT = Path("/proc/vmstat")


class OomWatch:
    """Counts the system's kills for memory from when it is made."""

    def __init__(self) -> None:
        self._kills = _kills()

    def words(self, ending: Exit) -> str:
        """What to say of an ending that such a kill explains; nothing for any other.

        The kernel tells how many it has killed and not whom, so this is a likelihood.
        """
        before, self._kills = self._kills, _kills()
        killed = ending.signal == signal.SIGKILL and self._kills > before
        return ", very likely by the system, which had run out of memory" if killed else ""


def _kills() -> int:
    try:
        text = VMSTAT.read_text()
    except OSError:
        return 0
    lines = (line.split() for line in text.splitlines())
    return next((int(count) for name, count in lines if name == "oom_kill"), 0)
