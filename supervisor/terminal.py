"""Text for a person's terminal: nothing that a model, a tool or a file wrote may steer it.

An escape sequence can recolour, retitle or overwrite what a person sees, and a bidi control can
turn a path around. So whatever is shown passes ``visible``, and colour is put on afterwards.
"""

import os
import unicodedata
from typing import TextIO

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str, *, multiline: bool = False) -> str:
    r"""Replace characters that a terminal acts on or does not show by escapes like ``\x1b``.

    That is whatever ``str.isprintable`` refuses: controls, format and bidi characters, lone
    surrogates, line and paragraph separators, private and unassigned ones; the spaces stay. With
    ``multiline`` newlines and tabs stay too.
    """
    if text.isprintable():
        return text
    return "".join(_shown(char, multiline) for char in text)


def _shown(char: str, multiline: bool) -> str:
    if char.isprintable() or unicodedata.category(char) == "Zs" or (multiline and char in "\n\t"):
        return char
    if char in _SHORT:
        return _SHORT[char]
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def one_line(text: str, width: int) -> str:
    """The text on one visible line of at most ``width`` columns; an ellipsis says it is cut."""
    line = visible(" ".join(text.split()))
    if line.isascii():  # By far the most frequent, and drawn again and again.
        return line if len(line) <= width else f"{line[: width - 1]}…"[:width]
    if sum(map(_cells, line)) <= width:
        return line
    room = width - 1
    for index, char in enumerate(line):
        room -= _cells(char)
        if room < 0:
            return line[:index] + "…" if width > 0 else ""
    return line


def _cells(char: str) -> int:
    """How many columns a terminal gives a visible character."""
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


class Style:
    """Colours for one stream; plain when it is no terminal, or NO_COLOR or TERM=dumb is set."""

    def __init__(self, stream: TextIO) -> None:
        self.coloured = (
            stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        )

    def dim(self, text: str) -> str:
        """Text that matters less."""
        return self._sgr("2", text)

    def bold(self, text: str) -> str:
        """Text that matters more."""
        return self._sgr("1", text)

    def red(self, text: str) -> str:
        """What failed."""
        return self._sgr("31", text)

    def green(self, text: str) -> str:
        """What went well."""
        return self._sgr("32", text)

    def _sgr(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.coloured else text
