"""Text at the border: what comes from a model, a tool or a file name is cleaned once, here.

A lone surrogate cannot be encoded, so one in a tool's result would make a run that can never be
saved again; an integer beyond 64 bits has no place in msgpack. Both are mended where they enter.
"""

import re
from typing import Any

MAX_DEPTH = 64
_SURROGATE = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """Replace lone surrogates by U+FFFD; every other character, NUL included, stays."""
    if text.isascii():
        return text
    return _SURROGATE.sub("\ufffd", text)


def clean_json(value: Any, depth: int = 0) -> Any:
    """Make a JSON-like value encodable: clean texts, huge integers as text, the rest as words.

    Mappings and lists are copied; nesting beyond ``MAX_DEPTH`` becomes text.
    """
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)
    if isinstance(value, str):
        return clean(value)
    if depth >= MAX_DEPTH:
        return clean(repr(value)[:200])
    if isinstance(value, dict):
        pairs: list[tuple[Any, Any]] = list(value.items())  # pyright: ignore[reportUnknownArgumentType]
        return {clean(str(key)): clean_json(item, depth + 1) for key, item in pairs}
    if isinstance(value, list | tuple | set | frozenset):
        items: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        return [clean_json(item, depth + 1) for item in items]
    return clean(str(value))


def cut(text: str, limit: int, keep_tail: float = 0.25) -> str:
    """Keep head and tail of a text longer than ``limit`` characters, and say what is missing."""
    if len(text) <= limit:
        return text
    tail = int(limit * keep_tail)
    head = limit - tail
    missing = len(text) - head - tail
    return f"{text[:head]}\n[... {missing} characters left out ...]\n{text[len(text) - tail :]}"


def excerpt(text: str, limit: int = 200) -> str:
    """One line of at most ``limit`` characters, for error messages."""
    line = " ".join(clean(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
