"""Who supervises a tree: one process at a time, by the kernel's lock on a file beside its root.

The lock ends with the process, however that ends. An actor's lock on its journal keeps the record
whole; this one keeps the rest, as the socket, with the supervisor whose actors those are.
"""

import contextlib
import fcntl
import os
from collections.abc import Generator
from pathlib import Path

from actors.journal import disk_failed
from actors.wire import Refused

LOCK = "supervisor.lock"


@contextlib.contextmanager
def lock_tree(run_dir: Path) -> Generator[Refused | None, None, None]:
    """Hold the tree below a root for as long as the block lasts; yields why not, or nothing."""
    path = run_dir / LOCK
    try:
        # An actor that inherited it would hold the tree after its supervisor's death.
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        failed = disk_failed(path, error)
        yield Refused(failed.kind, str(failed))
        return
    try:
        yield _locked(fd, path)
    finally:
        os.close(fd)


def _locked(fd: int, path: Path) -> Refused | None:
    run_id = path.parent.name
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
        holder = f"process {pid}" if pid.isdecimal() else "a process"
        words = f"run {run_id} is held by {holder} that supervises it already"
        return Refused("held", f"{words}. Stop it with: exeunt stop {run_id}")
    except OSError as error:
        return Refused("disk", f"cannot lock {path}: {error.strerror}")
    # On a full disk only the words for others are poorer.
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return None
