"""The ways in which providers say that a request is larger than the model's window."""

import re
from typing import Any

import msgspec

_LABELS = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_N = r"\d[\d,]*"
_NUMBERED = tuple(
    re.compile(pattern.replace("USED", f"(?P<used>{_N})").replace("LIMIT", f"(?P<limit>{_N})"))
    for pattern in (
        r"\(USED tokens\) exceeds the available context size \(LIMIT tokens\)",
        r"prompt is too long: USED tokens > LIMIT",
        r"prompt is too long: USED, model maximum context length: LIMIT",
        r"maximum context length is LIMIT tokens\D{0,200}USED",
        r"exceed context limit: USED \+ \d+ > LIMIT",
        r"input token count \(?USED\)? exceeds the maximum number of tokens allowed \(?LIMIT",
    )
)
# The last of these counts bytes, not tokens, which is why no number is taken from it.
_WORDED = re.compile(
    r"exceeds the available context size|context size has been exceeded|prompt is too long"
    r"|maximum context length|context_length_exceeded|exceeds the context window"
    r"|total message size \d+ exceeds limit"
)
_TEXT_MAX = 4000


class Overflow(msgspec.Struct, frozen=True):
    """A request that does not fit; both numbers are tokens, None where the provider did not say."""

    limit_tokens: int | None = None
    used_tokens: int | None = None


def find_overflow(labels: frozenset[str], message: str, fields: dict[str, Any]) -> Overflow | None:
    """Tell an overflow from other refusals by its code or type, or else by its words.

    ``labels`` are the error's code and type; ``fields`` is the error object for servers that put
    the numbers there.
    """
    text = message[:_TEXT_MAX].lower()
    for pattern in _NUMBERED:
        if found := pattern.search(text):
            return Overflow(_number(found["limit"]), _number(found["used"]))
    if labels & _LABELS or _WORDED.search(text):
        return Overflow(_field(fields, "n_ctx"), _field(fields, "n_prompt_tokens"))
    return None


def _number(digits: str) -> int | None:
    number = digits.replace(",", "")
    return int(number) if len(number) <= 12 else None


def _field(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
