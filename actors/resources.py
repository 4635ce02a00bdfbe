"""Resource limits of an actor and its tools: set once, inherited by all that it starts.

Each limit is of one process. RLIMIT_NPROC is not offered, as it does nothing for root; core files
are off for every process since its birth.
"""

import errno
import resource
import signal
import time
from pathlib import Path

from actors.spec import Resources

ROOM_MIB = 64
"""Memory that must be left beyond what the actor itself has mapped when its limit is set."""
_MIB = 1 << 20


def limit(resources: Resources) -> None:
    """Limit this process and what it will start; what is None stays as it was.

    Raises ValueError when the actor could not work within its memory, OSError when the kernel
    refuses.
    """
    if resources.memory_mib is not None:
        least = _mapped_mib() + ROOM_MIB
        if resources.memory_mib < least:
            raise ValueError(
                f"memory_mb = {resources.memory_mib} is too little for an actor, which needs "
                f"{least} by itself; raise it"
            )
        _limit(resource.RLIMIT_AS, resources.memory_mib * _MIB)
    if resources.cpu_seconds is not None:
        # What a fresh interpreter has used to start is not the run's. A second after SIGXCPU comes
        # SIGKILL, for whoever ignores the first.
        seconds = int(time.process_time()) + resources.cpu_seconds
        _limit(resource.RLIMIT_CPU, seconds, seconds + 1)
    if resources.open_files is not None:
        _limit(resource.RLIMIT_NOFILE, resources.open_files)
    if resources.file_size_mib is not None:
        # A write that is too long shall be an error in the tool, not the end of the process.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        _limit(resource.RLIMIT_FSIZE, resources.file_size_mib * _MIB)


def limit_words(error: BaseException) -> str:
    """Which limit an error comes from, in words; empty when it comes from none."""
    match error:
        case MemoryError() | OSError(errno=errno.ENOMEM):
            return _words("out of memory", resource.RLIMIT_AS, _MIB, "MiB (memory_mb)")
        case OSError(errno=errno.EMFILE):
            return _words("too many open files", resource.RLIMIT_NOFILE, 1, "(open_files)")
        case OSError(errno=errno.EFBIG):
            return _words("file too large", resource.RLIMIT_FSIZE, _MIB, "MiB (file_size_mb)")
        case _:
            return ""


def _words(what: str, kind: int, unit: int, name: str) -> str:
    soft, _ = resource.getrlimit(kind)
    return what if soft == resource.RLIM_INFINITY else f"{what}: the limit is {soft // unit} {name}"


def _limit(kind: int, soft: int, hard: int | None = None) -> None:
    """Never above what this process was given: only root could, and it did not mean to."""
    _, most = resource.getrlimit(kind)
    wanted = (soft, soft if hard is None else hard)
    if most != resource.RLIM_INFINITY:
        wanted = (min(wanted[0], most), min(wanted[1], most))
    resource.setrlimit(kind, wanted)


def _mapped_mib() -> int:
    """Address space of this process; 0 where there is no /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return 0
    return pages * resource.getpagesize() // _MIB
