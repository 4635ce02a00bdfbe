"""A stream for people: lines that stay, and on a terminal a block below them that is overwritten.

It never waits. What the reader has no room for is left out, as a terminal that has stopped reading
must not stop the runs that it shows.
"""

import os
import select
from collections.abc import Sequence
from typing import TextIO

from supervisor import output

WIDTH = 100
"""Columns where nobody says how many there are."""
WIDTH_MIN = 40
HEIGHT = 24
_ERASE_LINE, _ERASE_BELOW = "\x1b[K", "\x1b[J"


class Screen:
    """One stream; what is shown on it has been made visible already."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.overwrites = stream.isatty() and os.environ.get("TERM") != "dumb"
        """Whether there can be a block at all."""
        self._terminal = _never_waiting(stream) if self.overwrites else -1
        self._rest = b""
        """What the terminal had no room for, in the middle of a write."""
        self._rows = 0
        """Lines of the block that stand there, the cursor at the end of the last one."""

    @property
    def width(self) -> int:
        """Columns of a line."""
        columns, _ = self._size()
        # Terminals that do not know their width say 0.
        return max(WIDTH_MIN, columns) if columns else WIDTH

    @property
    def height(self) -> int:
        """Lines that are seen at once."""
        return self._size()[1] or HEIGHT

    def _size(self) -> tuple[int, int]:
        try:
            return os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            return 0, 0

    def say(self, lines: Sequence[str], block: Sequence[str] = ()) -> None:
        """Print lines that stay, and put this block in the place of the one that stood there."""
        words = "".join(f"{line}{_ERASE_LINE if self._rows else ''}\n" for line in lines)
        words += "\n".join(f"{line}{_ERASE_LINE}" for line in block)
        if self._rows:
            up = f"\x1b[{self._rows - 1}A" if self._rows > 1 else ""
            words = f"\r{up}{words}{_ERASE_BELOW}"
        if words and self._write(words):
            self._rows = len(block)

    def close(self) -> None:
        """Take the block away; nothing runs any more, so this may wait."""
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1
        rest, self._rest = self._rest.decode("utf-8", "replace"), b""
        up = f"\x1b[{self._rows - 1}A" if self._rows > 1 else ""
        if self._rows or rest:
            output.write_note(self._stream, f"{rest}\r{up}{_ERASE_BELOW}", end="")
        self._rows = 0

    def _write(self, words: str) -> bool:
        """Write, and whether it will be seen, now or when the reader goes on."""
        if self._terminal < 0:
            if self._has_room():
                output.write_note(self._stream, words, end="")
                return True
            return False
        self._rest = self._pour(self._rest)
        if self._rest:
            return False
        self._rest = self._pour(words.encode(self._stream.encoding, "backslashreplace"))
        return True

    def _pour(self, data: bytes) -> bytes:
        """Write as much as there is room for; returns what is left."""
        try:
            return data[os.write(self._terminal, data) :] if data else data
        except BlockingIOError:
            return data
        except OSError:
            return b""  # The terminal is gone, and with it whoever could have read this.

    def _has_room(self) -> bool:
        try:
            poll = select.poll()
            poll.register(self._stream.fileno(), select.POLLOUT)
            return bool(poll.poll(0))
        except (OSError, ValueError):
            return True  # It is no file but a buffer in memory.


def _never_waiting(stream: TextIO) -> int:
    """A descriptor of the stream's terminal that refuses what would wait, or -1.

    It is opened anew, because a flag set on the stream's own would be shared with the shell.
    """
    try:
        path = os.ttyname(stream.fileno())
        return os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return -1
