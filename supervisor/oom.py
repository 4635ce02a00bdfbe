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
        text = VMSTAT.read_bytes()
    except OSError:
        return 0
    # Read for each run of a tree, so not taken apart line by line.
    _, _, count = (b"\n" + text).partition(b"\noom_kill ")
    return int(count.split(maxsplit=1)[0]) if count else 0
