"""The ledger: one line for each call of a round that was folded, so that nothing is read twice.

What a person said in between stands in it as it was said.
"""

import collections
from collections.abc import Sequence

import msgspec

from actors.text import clean, excerpt
from actors.window_words import FOLDED_NOTE

ARGUMENT_MAX = 80
NAME_MAX = 24
SAID = "The user said: "
TOOLS_MAX = 8
"""So many tools are counted by name; the others together."""
COUNTED_TOKENS = 256
"""Room in the ledger for the counts of lines that were collapsed."""
LEDGER_SHARE = 0.05
"""The most that the ledger takes of a budget."""


class Line(msgspec.Struct, frozen=True):
    """A line of the ledger with its tokens; ``name`` is the tool's, for when it is collapsed."""

    name: str
    text: str
    tokens: int


def ledger_cap(budget: int) -> int:
    """Tokens that the lines of a ledger may have, in our own count and not by what is calibrated.

    The ledger must come out the same in every request, whatever has been learned in between.
    """
    return max(COUNTED_TOKENS, int(LEDGER_SHARE * budget))


def call_line(name: str, arguments: str, size: int, outcome: str) -> str:
    """The line of a call: tool, main argument, and the size of its result in characters."""
    told = f"{size} characters" if outcome == "ok" else outcome
    return f"- {excerpt(name, NAME_MAX)} {main_argument(arguments)}: {told}"


def main_argument(arguments: str) -> str:
    """The argument that tells a call from its like: the first text among them, else all of them."""
    try:
        value = msgspec.json.decode(clean(arguments), type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError):
        return excerpt(arguments, ARGUMENT_MAX)
    texts = [item for item in value.values() if isinstance(item, str)]
    return excerpt(texts[0] if texts else arguments, ARGUMENT_MAX)


def ledger_text(lines: Sequence[Line], cap: int, said: Sequence[str] = ()) -> str:
    """The whole message: the note, and as many of the newest lines as fit in ``cap`` tokens.

    Older ones are collapsed to a count for each tool. Without a cap there are none. ``said`` is
    what a person said, whole and in order.
    """
    listed = _listed(lines, cap) if cap > 0 and lines else ()
    return "\n".join((FOLDED_NOTE, *listed, *(SAID + text for text in said)))


def _listed(lines: Sequence[Line], cap: int) -> Sequence[str]:
    if sum(line.tokens for line in lines) <= cap:
        return [line.text for line in lines]
    room, first = max(0, cap - COUNTED_TOKENS), len(lines)
    while first and lines[first - 1].tokens <= room:
        first -= 1
        room -= lines[first].tokens
    counts = collections.Counter(line.name for line in lines[:first])
    common = counts.most_common(TOOLS_MAX)
    told = [f"{name} {count}" for name, count in common]
    if rest := counts.total() - sum(count for _, count in common):
        told.append(f"others {rest}")
    collapsed = f"- before these, calls by tool: {', '.join(told)}"
    return (collapsed, *(line.text for line in lines[first:]))
