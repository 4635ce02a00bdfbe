"""The journal of one run: an append-only file that one process at a time may write.

Promises: an append is all or nothing; one whose barrier returned is on the disk; whoever holds
the lock is the only writer; a torn tail is cut and kept aside, damage before it is refused.
"""

import fcntl
import os
import socket
from pathlib import Path

import msgspec
import trio

from actors import frame
from actors.events import SCHEMA, AnyEvent, Opened, decoder, encoder
from actors.fs import REAL, Fs
from actors.journal_error import Corrupt as Corrupt
from actors.journal_error import DiskFailed as DiskFailed
from actors.journal_error import DiskFull as DiskFull
from actors.journal_error import Held as Held
from actors.journal_error import JournalError as JournalError
from actors.journal_error import NewerSchema as NewerSchema
from actors.journal_error import disk_failed as disk_failed
from actors.journal_error import unreadable

SYNC_SECONDS_MAX = 60.0
JOURNAL, LOCK, TORN = "journal.x1", "lock", "torn"


class Journal:
    """The one writer of a run; made by ``Journal.open``, which takes the lock."""

    def __init__(self, path: Path, fs: Fs, lock_fd: int) -> None:
        self.path = path
        self.fs = fs
        self.events: list[AnyEvent] = []
        """What was on disk when it was opened."""
        self.epoch = 0
        self.seq = 0
        self.dropped = 0
        self.synced = 0
        """The last frame known to be on the disk."""
        self.size = 0
        self._lock_fd = lock_fd
        self._fd = -1
        self._crc = 0
        self._power = True
        self._poison: DiskFailed | None = None

    @classmethod
    def open(cls, run_dir: Path, fs: Fs = REAL, *, cut_damage: bool = False) -> "Journal":
        """Take the lock, read what is there and cut a torn tail; raises JournalError.

        The directory must exist. The next append must be ``run.opened`` of epoch ``epoch + 1``.
        With ``cut_damage`` all from the first unsound byte on is cut, as a person has said.
        """
        lock_fd = take_lock(run_dir, fs)
        try:
            journal = cls(run_dir / JOURNAL, fs, lock_fd)
            journal._read(run_dir, cut_damage)
        except BaseException:
            os.close(lock_fd)
            raise
        return journal

    def _read(self, run_dir: Path, cut_damage: bool) -> None:
        try:
            self._fd = self.fs.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
            data = self.path.read_bytes()
            if not data:
                # Also where a process made the file and was killed before this.
                self.fs.sync_dir(run_dir)
                self.fs.sync_dir(run_dir.parent)
            scan, self.events = sound(data, self.path, cut_damage=cut_damage)
            if scan.end < len(data):
                self._cut(run_dir, data, scan.end)
        except OSError as error:
            raise disk_failed(self.path, error) from error
        if scan.frames:
            last = scan.frames[-1]
            self.seq, self.epoch, self._crc = last.seq, last.epoch, last.crc
        self.size = scan.end
        # What a process of the past left unsynced is synced by our first barrier.
        self.synced = 0

    def _cut(self, run_dir: Path, data: bytes, end: int) -> None:
        aside = run_dir / TORN
        self.fs.mkdir(aside)
        fd = self.fs.open(aside / f"{end}-{len(data)}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            self.fs.write(fd, data[end:])
        finally:
            os.close(fd)
        self.fs.truncate(self._fd, end)
        self.fs.sync(self._fd)
        self.dropped = len(data) - end

    def begin(self, opened: Opened) -> None:
        """Fix the epoch and the durability that hold from the coming ``run.opened`` on."""
        assert opened.epoch == self.epoch + 1, "epochs rise by one"
        self.epoch = opened.epoch
        self._power = opened.durability == "power"
        try:
            os.ftruncate(self._lock_fd, 0)
            os.pwrite(self._lock_fd, f"{opened.pid} {opened.host} {opened.epoch}\n".encode(), 0)
        except OSError:
            pass  # Only words for a second comer; that the disk is full, the append finds out.

    def write(self, *events: AnyEvent) -> None:
        """Append events in one write, all or nothing, without waiting for the disk.

        Raises DiskFailed, after which nothing more can be appended.
        """
        if self._poison:
            raise type(self._poison)(str(self._poison))
        chunks: list[bytes] = []
        crc, seq, synced = self._crc, self.seq, self.synced
        for event in events:
            flags = frame.SYNCED if self._power and synced == seq and seq else 0
            seq += 1
            chunk, crc = frame.encode(
                encoder.encode(event), seq=seq, epoch=self.epoch, flags=flags, previous=crc
            )
            chunks.append(chunk)
        data = b"".join(chunks)
        try:
            self.fs.write(self._fd, data)
        except OSError as error:
            self._fail(error)
        self._crc, self.seq = crc, seq
        self.size += len(data)

    async def append(self, *events: AnyEvent, barrier: bool = False) -> None:
        """Append events; with ``barrier`` return once they, and all before, are on the disk.

        Without power durability a barrier costs nothing. Raises DiskFailed.
        """
        self.write(*events)
        if barrier:
            await self.sync()

    async def sync(self) -> None:
        """Return once everything appended so far is on the disk; raises DiskFailed."""
        if not self._power or self.synced == self.seq:
            return
        seq = self.seq
        with trio.move_on_after(SYNC_SECONDS_MAX, shield=True) as scope:
            try:
                await trio.to_thread.run_sync(
                    self.fs.sync, self._fd, abandon_on_cancel=True, limiter=None
                )
            except OSError as error:
                self._fail(error, whole=False)
        if scope.cancelled_caught:
            words = f"{self.path}: the disk did not answer in {SYNC_SECONDS_MAX:.0f} s"
            self._poison = DiskFailed(words)
            raise self._poison
        self.synced = max(self.synced, seq)

    def _fail(self, error: OSError, *, whole: bool = True) -> None:
        failed = disk_failed(self.path, error)
        self._poison = failed
        if whole:
            # A torn frame at the end would be cut at the next open; cut it while we know where.
            try:
                self.fs.truncate(self._fd, self.size)
            except OSError:
                pass
        raise failed from error

    def close(self) -> None:
        """Give up the lock; the file stays as it is."""
        for fd in (self._fd, self._lock_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock_fd = -1


def read_events(run_dir: Path) -> list[AnyEvent]:
    """All events on disk, without the lock; a torn tail is left out. Raises JournalError."""
    return sound(read_data(run_dir), run_dir / JOURNAL)[1]


def read_data(run_dir: Path) -> bytes:
    """All bytes of a journal, without the lock. Raises DiskFailed."""
    path = run_dir / JOURNAL
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
            return file.read()
    except OSError as error:
        raise unreadable(path, error) from error


def sound(
    data: bytes, path: Path, *, cut_damage: bool = False
) -> tuple[frame.Scan, list[AnyEvent]]:
    """What is sound of a journal, and its events up to the first unsound byte.

    Raises JournalError; with ``cut_damage`` not for damage that sound frames stand before.
    """
    scan = frame.scan(data)
    events = [_decode(found.payload, path) for found in scan.frames]
    opened = [event for event in events if isinstance(event, Opened)]
    if opened and opened[-1].schema > SCHEMA:
        raise _newer(path, f"schema {opened[-1].schema}, this one knows {SCHEMA}")
    process = not opened or opened[-1].durability == "process"
    damaged = scan.later and (process or any(f.flags & frame.SYNCED for f in scan.later))
    if damaged and not cut_damage:
        repair = f", or see: exeunt journal repair {path.parent.name}" if scan.frames else ""
        raise Corrupt(
            f"{path} is damaged at byte {scan.end}: {len(scan.later)} sound frames follow it. "
            f"Nothing was changed; restore the file from a copy{repair}"
        )
    _check_tail(data[scan.end : scan.end + 4], scan.end, path)
    return scan, events


def _check_tail(start: bytes, offset: int, path: Path) -> None:
    """Refuse what no torn write leaves: a frame of a later version, or a file that is no journal.

    A torn frame begins as a frame does, or with the zeros of a block that never came.
    """
    magic = frame.MAGIC_BYTES
    if start.startswith(magic) and len(start) > len(magic) and start[len(magic)] > frame.VERSION:
        raise _newer(path, f"frame version {start[len(magic)]}, this one knows {frame.VERSION}")
    if offset == 0 and start and not start.startswith(b"\0") and not start.startswith(magic[:1]):
        raise Corrupt(
            f"{path} is no journal of Exeunt: it does not begin as one. "
            f"Nothing was changed; restore the file from a copy."
        )


def _decode(payload: bytes, path: Path) -> AnyEvent:
    try:
        return decoder.decode(payload)
    except msgspec.MsgspecError as error:
        raise _newer(path, str(error)) from error


def _newer(path: Path, detail: str) -> NewerSchema:
    return NewerSchema(
        f"{path} was written by another version of Exeunt ({detail}). "
        "Use the version that wrote it, or a later one."
    )


def take_lock(run_dir: Path, fs: Fs = REAL) -> int:
    """Hold a run until the descriptor that is returned is closed; raises Held, DiskFailed."""
    path = run_dir / LOCK
    try:
        fd = fs.open(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise disk_failed(path, error) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid, host, epoch = (os.pread(fd, 200, 0).decode("utf-8", "replace").split() + ["?"] * 3)[:3]
        os.close(fd)
        raise Held(
            f"run {run_dir.name} is held by process {pid} on {host} (epoch {epoch}). "
            f"Stop it with: exeunt stop {run_dir.name}"
        ) from None
    return fd


def hostname() -> str:
    """This machine's name, for the record."""
    return socket.gethostname()
