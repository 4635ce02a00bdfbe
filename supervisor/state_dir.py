"""The state directory: where runs live, who may read them, and what they were configured with."""

import contextlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Generator, Iterator
from pathlib import Path

from actors.events import AnyEvent
from actors.journal import JOURNAL, LOCK, Corrupt, disk_failed, read_events
from actors.journal_error import unreadable
from actors.outcome import root_of
from actors.state import State, fold
from actors.trace import TRACE
from supervisor.config import Config
from supervisor.tree_lock import LOCK as TREE_LOCK

CONFIG = "config.json"
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}(\.[0-9]+\.[0-9]+)*")


class StateError(Exception):
    """The state directory or a run in it cannot be used; the words say what to do."""


class StateDir:
    """One state directory; made private on first use. Raises StateError."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).absolute()
        self.runs = self.path / "runs"

    def prepare(self) -> None:
        """Make the directories, or refuse ones that others could tamper with."""
        for folder in (self.path, self.runs):
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                facts = folder.lstat()
            except OSError as error:
                raise StateError(
                    f"the state directory {folder} cannot be made: {error.strerror}. "
                    "Name another with --state-dir"
                ) from None
            if not stat.S_ISDIR(facts.st_mode):
                raise StateError(f"{folder} is no directory. Name another with --state-dir")
            if facts.st_uid != os.geteuid():
                raise StateError(
                    f"the state directory {folder} belongs to another user (uid {facts.st_uid}). "
                    "Name one of your own with --state-dir"
                )
            if facts.st_mode & 0o022:
                raise StateError(
                    f"the state directory {folder} can be written by others. "
                    f"Take that away with: chmod go-w {folder}"
                )
            if not os.access(folder, os.W_OK | os.X_OK):
                raise StateError(
                    f"the state directory {folder} cannot be written. Name another with --state-dir"
                )

    def create(self, config: Config, run_id: str | None = None) -> str:
        """Make the directory of a new run and store its configuration; returns the run id."""
        self.prepare()
        run_id = new_run_id() if run_id is None else run_id
        folder = self.run_dir(run_id)
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            raise StateError(
                f"there is a run {run_id} already. Go on with it: exeunt resume {run_id}"
            ) from None
        except OSError as error:
            words = f"{folder} cannot be made: {error.strerror}; mend that and retry"
            raise StateError(words) from None
        try:
            _write_synced(folder / CONFIG, config.to_json())
        except StateError:
            # Nobody could go on with it, and its name shall be free for the next try.
            self.discard(run_id)
            raise
        return run_id

    def discard(self, run_id: str) -> None:
        """Remove the directory of a run that was never performed."""
        shutil.rmtree(self.run_dir(run_id), ignore_errors=True)

    def create_child(self, run_id: str) -> None:
        """Make the directory of a child, whose configuration is the root's; raises DiskFailed."""
        folder = self.run_dir(run_id)
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise disk_failed(folder, error) from None

    def exists(self, run_id: str) -> bool:
        """Whether there is a run of that name."""
        folder = self.run_dir(run_id)
        with self._readable():
            return folder.is_dir()

    def below(self, run_id: str) -> Iterator[str]:
        """The runs below this one, at any depth, parents before their children."""
        names = (entry.name for entry in self._entries() if entry.name.startswith(f"{run_id}."))
        yield from sorted(names, key=numbers)

    def run_dir(self, run_id: str) -> Path:
        """Where a run lives, whether or not there is one of that name; checks the name only."""
        if not _RUN_ID.fullmatch(run_id):
            raise StateError(
                f"{run_id!r} is no run id: letters, digits, - and _, at most 64 of them"
            )
        return self.runs / run_id

    def existing(self, run_id: str) -> Path:
        """The directory of a run that is there."""
        folder = self.run_dir(run_id)
        if not self.exists(run_id):
            known = ", ".join([name for name in self.run_ids() if "." not in name][-5:])
            hint = f"the latest are {known}" if known else "there are none"
            raise StateError(f"there is no run {run_id} in {self.path}; {hint}")
        return folder

    def config(self, run_id: str) -> Config:
        """The configuration that a run's tree was started with."""
        path = self.existing(root_of(run_id)) / CONFIG
        try:
            return Config.from_json(path.read_bytes())
        except FileNotFoundError:
            raise StateError(f"run {run_id} has lost its {CONFIG}; start it anew") from None
        except OSError as error:
            raise StateError(str(unreadable(path, error))) from None

    def events(self, run_id: str) -> list[AnyEvent]:
        """All events of a run; none when it was never opened. Raises JournalError."""
        folder = self.existing(run_id)
        try:
            found = read_events(folder) if (folder / JOURNAL).exists() else []
            told = (folder / TRACE).exists() and (folder / TRACE).stat().st_size
        except OSError as error:
            raise unreadable(folder, error) from None
        if not found and told:
            raise Corrupt(
                f"the journal of run {run_id} is gone or empty, and its trace tells of a run that "
                f"was under way. Nothing was changed; restore {folder / JOURNAL} from a copy"
            )
        return found

    def journal_size(self, run_id: str) -> int:
        """Bytes of a run's journal; 0 where there is none."""
        try:
            return (self.run_dir(run_id) / JOURNAL).stat().st_size
        except OSError:
            return 0

    def state(self, run_id: str) -> State:
        """The state of a run, from its journal. Raises JournalError."""
        return fold(self.events(run_id))

    def run_ids(self) -> Iterator[str]:
        """The runs that are there, oldest first."""
        found = self._entries()
        with self._readable():
            found.sort(key=lambda entry: (entry.stat().st_ctime, entry.name))
        yield from (entry.name for entry in found)

    def _entries(self) -> list[os.DirEntry[str]]:
        with self._readable():
            try:
                found = [e for e in os.scandir(self.runs) if e.is_dir(follow_symlinks=False)]
            except FileNotFoundError:
                return []
        return [entry for entry in found if _RUN_ID.fullmatch(entry.name)]

    @contextlib.contextmanager
    def _readable(self) -> Generator[None, None, None]:
        """Tell in words that what is here cannot be read, as that of another user cannot."""
        try:
            yield
        except OSError as error:
            raise StateError(
                f"the state directory {self.path} cannot be read: {error.strerror}. "
                "Name one of your own with --state-dir"
            ) from None

    def holder(self, run_id: str) -> int | None:
        """The pid of the process that holds a run's lock, asked of the kernel; None when free.

        The lock is not touched, since even trying it could get in an actor's way.
        """
        return _holder(self.run_dir(run_id) / LOCK)

    def supervisor_of(self, root: str) -> int | None:
        """The pid of the process that supervises the tree below a root; None when nobody does."""
        return _holder(self.run_dir(root) / TREE_LOCK)


def _holder(lock: Path) -> int | None:
    try:
        facts = lock.stat()
        words = lock.read_bytes()[:200].split()
        table = Path("/proc/locks").read_text()
    except OSError:
        return None
    device = f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}"
    written = words[0].decode("ascii", "replace") if words else ""
    return holder_in(table, device, facts.st_ino, written)


def holder_in(table: str, device: str, inode: int, written: str) -> int | None:
    """The pid that holds a lock on a file, by the text of ``/proc/locks``; None when free.

    Some file systems, as btrfs and overlayfs, show another device than the table has. There the
    holder is known by the pid that is ``written`` in the file.
    """
    for line in table.splitlines():
        fields = line.split()
        if len(fields) < 6 or fields[1] != "FLOCK":
            continue
        pid, place = fields[4:6]
        if place.endswith(f":{inode}") and (place == f"{device}:{inode}" or pid == written):
            return int(pid)
    return None


def numbers(run_id: str) -> list[int]:
    """The numbers in a child's name, which sort ``r.2.0`` before ``r.10.0``."""
    return [int(part) for part in run_id.split(".")[1:]]


def new_run_id() -> str:
    """A new name: short enough to type."""
    return f"r{secrets.token_hex(3)}"


def _write_synced(path: Path, data: bytes) -> None:
    """Write a file that is either whole or not there, whenever the power goes."""
    new = path.with_suffix(".new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(new, flags, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        for folder in (path.parent, path.parent.parent):
            directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
    except OSError as error:
        raise StateError(f"cannot write {path}: {error.strerror}; make room and retry") from None
