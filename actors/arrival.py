"""Results that are too large for the window alone: cut when they arrive, in the request only.

The whole text stays in the journal. How far a result is cut depends only on the round, the budget
and the counter, never on what was learned since, so a request comes out the same after a restart.
"""

from collections.abc import Sequence

import msgspec

from actors.estimate import Counter
from actors.messages import ToolCall
from actors.text import clean

CUT_SHARE = 0.5
"""Of the room for one round: what its results may have once they had to be cut."""
TAIL_SHARE = 0.25
_READ_BY_OFFSET = ("read_file", "note_read")
TRIES_MAX = 12
"""A text that grows denser towards its ends is cut so many times, each time by a tenth more."""


def arrival_limit(sizes: Sequence[int], room: int) -> int | None:
    """The most tokens that each result of a round may keep, or None when all may stay whole.

    ``room`` is what one round may have when everything before it is gone. Small results stay
    whole, and the large ones share what those leave.
    """
    if sum(sizes) <= room:
        return None
    left = int(room * CUT_SHARE)
    for index, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - index)
        if size > share:
            return max(1, share)
        left -= size
    return None


def cut_result(call: ToolCall, text: str, limit: int, counter: Counter) -> str:
    """Head and tail of a result, at most ``limit`` tokens, and how to read what is missing.

    A limit too small for the words in the middle gives those words alone.
    """
    text = clean(text)
    tokens = counter.text(text)
    if tokens <= limit:
        return text
    chars = len(text) * limit // max(1, tokens)
    for _ in range(TRIES_MAX):
        shown = _head_and_tail(call, text, chars)
        if counter.text(shown) <= limit:
            return shown
        chars = chars * 9 // 10 - 8
        if chars <= 0:
            break
    return _head_and_tail(call, text, 0)


def _head_and_tail(call: ToolCall, text: str, chars: int) -> str:
    chars = max(0, chars)
    tail = int(chars * TAIL_SHARE)
    head = chars - tail
    missing = len(text) - head - tail
    words = f"[{missing} characters were left out here to fit the context window; "
    words += _how_to_read(call, text[:head])
    return f"{text[:head]}\n{words}]\n{text[len(text) - tail :]}"


class _ReadArguments(msgspec.Struct):
    offset: int = 0


def _how_to_read(call: ToolCall, head: str) -> str:
    if call.name not in _READ_BY_OFFSET:
        return "ask for less at a time to see them"
    try:
        start = msgspec.json.decode(clean(call.arguments), type=_ReadArguments).offset
    except (msgspec.MsgspecError, RecursionError):
        start = 0
    offset = start + len(head.encode("utf-8"))
    smaller = " and a smaller limit" if call.name == "read_file" else ""
    return f"call {call.name} with offset={offset}{smaller} to go on from there"
