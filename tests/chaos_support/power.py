"""Power cuts: what a disk may hold when the power goes between any two calls of a run.

A life is performed on a disk that writes down every call, with how long the ledgers outside were
at that moment. From the calls up to a moment a model of the disk follows: what is surely there
(synced), and what may be there, whole, in part, or as a length without its data.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import msgspec

from actors.fs import Fs
from actors.journal import JOURNAL

SECTOR = 512
"""What a disk writes at once, or not at all."""


class Op(msgspec.Struct, frozen=True, array_like=True):
    """One call, and the length of each ledger before it."""

    kind: str
    path: str
    size: int
    data: bytes
    ledgers: tuple[int, ...]


class RecordingFs(Fs):
    """The real disk, with every call written down in a file that no cut reaches."""

    def __init__(self, log: Path, ledgers: tuple[Path, ...]) -> None:
        self._log = log
        self._ledgers = ledgers
        self._paths: dict[int, str] = {}

    def _note(self, kind: str, path: Path | str, size: int = 0, data: bytes = b"") -> None:
        sizes = tuple(ledger.stat().st_size if ledger.exists() else 0 for ledger in self._ledgers)
        line = msgspec.msgpack.encode(Op(kind, str(path), size, data, sizes))
        fd = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, len(line).to_bytes(4, "little") + line)
        os.close(fd)

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        self._note("open", path)
        fd = super().open(path, flags, mode)
        self._paths[fd] = str(path)
        return fd

    def write(self, fd: int, data: bytes) -> None:
        self._note("write", self._paths[fd], data=data)
        super().write(fd, data)

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self._note("sync", self._paths[fd])

    def truncate(self, fd: int, size: int) -> None:
        self._note("truncate", self._paths[fd], size)
        super().truncate(fd, size)

    def mkdir(self, path: Path) -> None:
        self._note("mkdir", path)
        super().mkdir(path)

    def sync_dir(self, path: Path) -> None:
        super().sync_dir(path)
        self._note("sync_dir", path)

    def boundary(self, name: str) -> None:
        self._note("boundary", name)


class ForgetfulFs(RecordingFs):
    """A mistake: files are not synced, and everybody believes they are."""

    def sync(self, fd: int) -> None:
        pass


class NamelessFs(RecordingFs):
    """A mistake: the names of new files are not synced."""

    def sync_dir(self, path: Path) -> None:
        pass


def read_log(log: Path) -> list[Op]:
    data, ops, at = log.read_bytes(), list[Op](), 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "little")
        ops.append(msgspec.msgpack.decode(data[at + 4 : end], type=Op))
        at = end
    return ops


class Disk:
    """The journal of one run as a disk may have it after some calls."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = str(run_dir)
        self._parent = str(run_dir.parent)
        self._path = str(run_dir / JOURNAL)
        self.surely = b""
        """What was synced."""
        self.maybe = b""
        """What was written."""
        self.exists = False
        self.named = False
        """The name of the journal was synced, and the name of its directory."""
        self._names: set[str] = set()

    def do(self, op: Op) -> None:
        if op.kind == "sync_dir" and op.path in (self._run_dir, self._parent):
            # The directory above holds the run's own name from the start.
            if op.path == self._parent or self.exists:
                self._names.add(op.path)
            self.named = self._names == {self._run_dir, self._parent}
        if op.path != self._path:
            return
        match op.kind:
            case "open":
                self.exists = True
            case "write":
                self.maybe += op.data
            case "truncate":
                self.maybe = self.maybe[: op.size]
            case "sync":
                self.surely = self.maybe
            case _:
                pass

    def states(self, rng: random.Random, cuts: int = 2) -> Iterator[bytes | None]:
        """What may be found after a power cut now; None is no journal."""
        if not self.named:
            yield None
        if not self.exists:
            return
        seen: set[bytes] = set()
        for state in (self.surely, self.maybe, *self._torn(rng, cuts)):
            if state not in seen:
                seen.add(state)
                yield state

    def _torn(self, rng: random.Random, cuts: int) -> Iterator[bytes]:
        base, whole = len(self.surely), len(self.maybe)
        if not (self.maybe.startswith(self.surely) and whole > base):
            return
        for _ in range(cuts):
            yield self.maybe[: rng.randint(base, whole)]
        # The length came to the disk and the data did not, or only up to some sector.
        yield self.surely + bytes(whole - base)
        at = rng.randint(base, whole)
        yield self.maybe[:at] + bytes(whole - at)
        for _ in range(cuts):
            yield self._holed(rng, base)

    def _holed(self, rng: random.Random, base: int) -> bytes:
        """Some of the new sectors were not written."""
        data = bytearray(self.maybe)
        for first in range(base - base % SECTOR, len(data), SECTOR):
            if rng.random() < 0.5:
                start, end = max(first, base), min(first + SECTOR, len(data))
                data[start:end] = bytes(end - start)
        return bytes(data)
