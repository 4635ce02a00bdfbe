"""Where what an actor prints goes: a file beside its journal."""

import os
from pathlib import Path

from actors.journal import DiskFull, disk_failed
from actors.wire import Refused

LOG = "actor.log"


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
