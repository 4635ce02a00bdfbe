"""What the command line prints: its product on standard output, all else on standard error.

Nothing here lets a control character through, and a reader that has gone away is no error: a
run's exit code tells of the run, not of the pipe behind it.
"""

import os
import sys
from typing import Any, TextIO

import msgspec

from actors.text import clean_json
from supervisor.commands import UsageError
from supervisor.terminal import visible


def text(words: str) -> bool:
    """Print a product, which the caller has made visible; False when nobody reads any more."""
    return _write(f"{words}\n".encode("utf-8", "backslashreplace"))


def document(value: Any) -> bool:
    """Print the one JSON document of ``--json``; texts may hold anything."""
    try:
        data = msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError):
        data = msgspec.json.encode(clean_json(msgspec.to_builtins(value)))
    return _write(json_text(data).encode() + b"\n")


def note(words: str) -> None:
    """Tell people something on standard error; newlines and tabs in it stay."""
    write_note(sys.stderr, visible(words, multiline=True))


def write_note(stream: TextIO, words: str, end: str = "\n") -> None:
    """Write what is visible already; a stream that is gone or full is left alone."""
    try:
        stream.write(words + end)
        stream.flush()
    except BlockingIOError:
        pass
    except OSError:
        _silence(stream)


def json_text(data: bytes) -> str:
    r"""The same JSON without a character that a terminal acts on: they become ``\uXXXX``.

    Inside of strings JSON has escaped the ASCII controls already; between tokens they are blanks.
    """
    line = data.decode("utf-8", "replace")
    return line if line.isprintable() else "".join(map(_escaped, line))


def _escaped(char: str) -> str:
    if char.isprintable():
        return char
    if char < " ":
        return " "
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _write(data: bytes) -> bool:
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    except OSError as error:
        _silence(sys.stdout)
        if isinstance(error, BrokenPipeError):
            return False
        raise UsageError(f"standard output cannot be written: {error.strerror}") from None
    return True


def _silence(stream: TextIO) -> None:
    """Let what is still in the buffer go nowhere, or the interpreter's exit would fail on it."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
