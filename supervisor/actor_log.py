"""Where what an actor prints goes: a file beside its journal, which is kept from growing on."""

import contextlib
import os
from pathlib import Path

from actors.journal import DiskFull, disk_failed
from actors.wire import Refused

LOG = "actor.log"
LOG_MAX = 10 * 1024 * 1024
"""Bytes from which on a log is cut; what is printed within ``LOOK_SECONDS`` comes on top."""
LOG_KEPT = 1024 * 1024
"""Bytes of its end that a cut keeps."""
LOOK_SECONDS = 1.0
"""How far apart the logs of a tree under way are looked at."""


def open_log(run_dir: Path) -> int | Refused:
    """A descriptor to append to the log of a run, or why there is none."""
    path = run_dir / LOG
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        failed = disk_failed(path, error)
        if isinstance(failed, DiskFull):
            return Refused(failed.kind, str(failed))
        return Refused("spawn", f"cannot open {path}: {error.strerror}")


def cut_log(run_dir: Path) -> None:
    """Cut a log that has grown over ``LOG_MAX`` down to its end, and say so in it.

    Whoever writes into it appends, so it goes on behind the words. Of a log that cannot be read
    or cut nothing is said: it is nobody's record.
    """
    path = run_dir / LOG
    with contextlib.suppress(OSError):
        size = path.stat().st_size
        if size <= LOG_MAX:
            return
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(path, flags), "r+b", buffering=0) as file:
            end = os.pread(file.fileno(), LOG_KEPT, size - LOG_KEPT)
            file.truncate(0)
            file.write(
                b"[... what was printed before is left out: a log is cut at %d bytes ...]\n"
                % LOG_MAX
            )
            file.write(end)
