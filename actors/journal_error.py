"""What keeps a run's journal from being read or written, each kind with who must act."""

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import cast


class JournalError(Exception):
    """The journal cannot be used; ``str()`` says why and what to do. The operator must act."""

    kind = "journal"


class Held(JournalError):
    """Another process holds the run: wait for it or stop it, nothing is wrong with the file."""

    kind = "held"


class Corrupt(JournalError):
    """Bytes before the tail are not what was written; nothing is cut without a person."""

    kind = "journal_corrupt"


class NewerSchema(JournalError):
    """The journal was written by a later version, which must be used to go on."""

    kind = "newer_schema"


class DiskFailed(JournalError):
    """A write or sync failed (an I/O error); the file holds its last whole frame."""

    kind = "disk"


class DiskFull(DiskFailed):
    """There is no room to write: the whole tree is stopped, and goes on once there is."""

    kind = "disk_full"


PAUSING = frozenset({Held.kind, NewerSchema.kind, DiskFull.kind})
"""Nothing is wrong with the run: it goes on once a person has ended what holds it, taken the
version that wrote it or made room. Of a child they pause the whole tree; of any other it fails."""


def disk_failed(path: Path, error: OSError) -> DiskFailed:
    """What a failed call of the system means, in words that say what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"cannot save to {path}: disk full; make room and resume the run")
    words = error.strerror or str(error)
    return DiskFailed(f"cannot save to {path}: {words}; mend that and resume the run")


def unreadable(path: Path, error: OSError) -> DiskFailed:
    """Why something of a run cannot be read, in words that say what to do."""
    words = error.strerror or str(error)
    return DiskFailed(f"cannot read {path}: {words}; mend that and try again")


def failure_of(group: BaseExceptionGroup[BaseException]) -> DiskFailed | None:
    """What a group tells of the disk, which may strike in several tasks at once.

    None when anything else went wrong as well.
    """
    failures, others = group.split(JournalError)
    if others or not failures:
        return None
    found = list(_leaves(failures))
    kind = DiskFull if any(isinstance(one, DiskFull) for one in found) else DiskFailed
    return kind("; ".join(sorted({str(one) for one in found})))


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for inner in group.exceptions:
        if isinstance(inner, BaseExceptionGroup):
            yield from _leaves(cast(BaseExceptionGroup[BaseException], inner))
        else:
            yield inner
