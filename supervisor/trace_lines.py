"""The trace lines of a tree as they stand on disk, put in order and made whole, never written.

A line names the journal frame that it shows. What a crash kept out of the file is made again from
the journal, as the run's next process would do.
"""

import heapq
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from actors.journal import JournalError
from actors.state import State
from actors.trace import TRACE, lines_of
from supervisor.state_dir import StateDir

_CHUNK = 1 << 20


class Line(msgspec.Struct, frozen=True):
    """One line: its bytes as they are in the file, and what is needed to order and follow it."""

    raw: bytes
    run_id: str
    at: float
    seq: int
    type: str
    frame: int = 0


class _Keys(msgspec.Struct):
    run_id: str
    seq: int
    at: float
    type: str
    frame: int = 0


_decoder = msgspec.json.Decoder(_Keys)
_encoder = msgspec.json.Encoder()


class TraceFile:
    """The trace of one run, read from where the last ``read`` ended."""

    def __init__(self, run_dir: Path) -> None:
        """The file may not be there yet."""
        self._path = run_dir / TRACE
        self._offset = 0
        self.last: Line | None = None
        """The last line that was read."""

    def read(self) -> Iterator[Line]:
        """The whole lines that are new; what is no trace line is left out."""
        try:
            file = self._path.open("rb")
        except OSError:
            return
        with file:
            if os.fstat(file.fileno()).st_size < self._offset:
                self._offset = 0  # It was begun anew, as the journal had lost what it told.
            file.seek(self._offset)
            rest = b""
            while data := file.read(_CHUNK):
                *whole, rest = (rest + data).split(b"\n")
                for raw in whole:
                    self._offset += len(raw) + 1
                    if line := _parsed(raw):
                        self.last = line
                        yield line


class Merged:
    """The new lines of a tree that is under way, in the order of time.

    Lines of one moment reach their files one after the other. So each read gives out what is not
    later than the last one saw, and keeps the rest: what belongs before it may still be on its way.
    """

    def __init__(self, state_dir: StateDir, root: str) -> None:
        """``root`` is the run whose tree it is; children may come later."""
        self._state_dir = state_dir
        self._root = root
        self._files: dict[str, TraceFile] = {}
        self._kept: list[Line] = []

    def read(self) -> list[Line]:
        """The lines that can be put in order by now."""
        horizon = self._kept[-1].at if self._kept else 0.0
        kept = self.rest()
        self._kept = [line for line in kept if line.at > horizon]
        return [line for line in kept if line.at <= horizon]

    def rest(self) -> list[Line]:
        """All lines that were not given out yet."""
        for run_id in (self._root, *self._state_dir.below(self._root)):
            if run_id not in self._files:
                self._files[run_id] = TraceFile(self._state_dir.run_dir(run_id))
        new = [line for file in self._files.values() for line in file.read()]
        lines = sorted([*self._kept, *new], key=lambda line: line.at)
        self._kept = []
        return lines

    @property
    def ended(self) -> bool:
        """Whether the last line of the root tells its ending."""
        last = self._files[self._root].last
        return last is not None and last.type == "run_stopped"


def _parsed(raw: bytes) -> Line | None:
    try:
        keys = _decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    return Line(raw, keys.run_id, keys.at, keys.seq, keys.type, keys.frame)


def all_lines(
    state_dir: StateDir, run_ids: list[str], damaged: Callable[[str, JournalError], None]
) -> Iterator[Line]:
    """The lines of these runs in the order of time, those that a file lacks included.

    Of a run whose journal cannot be read, which ``damaged`` is told, those that its file has.
    """
    runs = [run_lines(state_dir, run_id, damaged) for run_id in run_ids]
    return heapq.merge(*runs, key=lambda line: line.at)


def run_lines(
    state_dir: StateDir, run_id: str, damaged: Callable[[str, JournalError], None]
) -> list[Line]:
    """The lines of one run, as ``all_lines`` has them."""
    lines = list(TraceFile(state_dir.run_dir(run_id)).read())
    try:
        events = state_dir.events(run_id)
    except JournalError as error:
        damaged(run_id, error)
        return lines
    last = max((line.frame for line in lines), default=0)
    if last > len(events):
        # A power cut: what the journal lost never happened.
        lines, last = [], 0
    state = State()
    seq = lines[-1].seq if lines else 0
    for frame, event in enumerate(events, 1):
        state.apply(event)
        for told in lines_of(event, state) if frame > last else []:
            seq += 1
            head: dict[str, Any] = {"run_id": state.run_id, "root_id": state.root, "seq": seq}
            raw = _encoder.encode(head | {"at": round(event.at, 6)} | told | {"frame": frame})
            lines.append(Line(raw, state.run_id, event.at, seq, told["type"], frame))
    return lines
