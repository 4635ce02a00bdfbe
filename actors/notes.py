"""An agent's own notes: plain files in its run's directory, few and small, outside the window.

They stay when results are cleared, and a person can read them with any editor. A name is one plain
word, so no path leads out of the folder; each file is written whole under another name first, so
that a note is always either the old one or the new one.
"""

import errno
import os
import re
import threading
from pathlib import Path

from actors.fs import REAL, Fs
from actors.text import clean
from actors.tool_errors import ToolError
from actors.workspace import shown

NOTE_TOOLS = frozenset({"note_write", "note_read", "note_list"})
"""The shipped tools that work on notes; a run has them by naming them, and needs no workspace."""
FOLDER = "notes"
NOTE_MAX_BYTES = 64 * 1024
NOTES_MAX_BYTES = 1024 * 1024
NOTES_MAX = 100
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

_NAME = re.compile(NAME_PATTERN.removesuffix("$"))
_NEW = ".new"
"""What a note is called while it is written, again and again; no note's name begins with a dot."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Notes:
    """The notes of one run. Raises OSError when their folder cannot be made or opened."""

    def __init__(self, run_dir: Path, fs: Fs = REAL) -> None:
        self.folder = run_dir / FOLDER
        fs.mkdir(self.folder)
        self._fd = os.open(self.folder, _FOLDER)
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the folder; closing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def write(self, name: str, text: str) -> int:
        """Make the note be this text, on disk when it returns; returns its bytes.

        May be called from any thread. Raises ToolError for a name that is none, or for what is
        over a limit, and then nothing has changed.
        """
        _check_name(name)
        data = clean(text).encode()
        if len(data) > NOTE_MAX_BYTES:
            raise ToolError(
                f"A note may have {NOTE_MAX_BYTES} bytes, and this text has {len(data)}. Write "
                "less, or write several notes."
            )
        with self._lock:
            others = self.sizes()
            others.pop(name, None)
            if len(others) >= NOTES_MAX:
                raise ToolError(
                    f"There are {NOTES_MAX} notes already, and no more can be made. Write over one "
                    "of them. Call note_list to see them."
                )
            if (total := sum(others.values()) + len(data)) > NOTES_MAX_BYTES:
                raise ToolError(
                    f"All notes together may have {NOTES_MAX_BYTES} bytes, and would have {total}. "
                    "Write a shorter text over one of them. Call note_list to see them."
                )
            self._replace(name, data)
        return len(data)

    def read(self, name: str, offset: int = 0) -> str:
        """The text from a byte on; raises ToolError when there is no such note."""
        _check_name(name)
        try:
            fd = os.open(name, os.O_RDONLY | _FILE, dir_fd=self._fd)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ELOOP):
                raise
            raise ToolError(f"There is no note {name}. Call note_list to see them.") from error
        with os.fdopen(fd, "rb") as file:
            size = os.fstat(fd).st_size
            file.seek(offset)
            # Somebody may have put another file there.
            data = file.read(NOTE_MAX_BYTES)
        if not data:
            return f"({name} has {size} bytes, and nothing from byte {offset} on)"
        return data.decode("utf-8", "replace")

    def sizes(self) -> dict[str, int]:
        """The bytes of each note, sorted by name; at most ``NOTES_MAX`` are looked at."""
        found: dict[str, int] = {}
        with os.scandir(self._fd) as entries:
            for entry in entries:
                if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    found[entry.name] = entry.stat(follow_symlinks=False).st_size
                    if len(found) == NOTES_MAX:
                        break
        return dict(sorted(found.items()))

    def _replace(self, name: str, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _FILE
        fd = os.open(_NEW, flags, 0o600, dir_fd=self._fd)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.replace(_NEW, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        os.fsync(self._fd)


def _check_name(name: str) -> None:
    # The schema says the same; this holds for callers that have none.
    if not _NAME.fullmatch(name):
        raise ToolError(
            f"{shown(name)} is no name for a note: it has 1 to 64 letters, digits, dots, - and _, "
            "and begins with a letter or a digit."
        )
