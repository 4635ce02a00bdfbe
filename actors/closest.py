"""The known name that somebody may have meant who wrote another one."""

import difflib
from collections.abc import Iterable

_WORD_MAX = 100


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is nearest to another; None when none is near."""
    near = difflib.get_close_matches(word[:_WORD_MAX], sorted(known), n=1, cutoff=0.6)
    return near[0] if near else None


def guess(word: str, known: Iterable[str]) -> str:
    """``did you mean X? `` to stand before a list of what is known; empty when none is near."""
    near = closest(word, known)
    return f"did you mean {near}? " if near else ""
