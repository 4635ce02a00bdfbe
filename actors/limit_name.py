"""What servers call the most tokens of a reply, and how they say that they do not know the name."""

import re
from typing import Any, Literal

LimitName = Literal["max_tokens", "max_completion_tokens"]
OTHER_NAME: dict[LimitName, LimitName] = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}

_N = r"\bmax_(?:completion_)?tokens\b"
_NAME = re.compile(_N)
# Another name would not make a value smaller. A server that passes over a name it does not know
# would even write without a limit, for money that nobody has set aside.
_OF_VALUE = re.compile(
    r"\bvalues?\b|_value\b|\btoo (?:large|small|high|low|big|long)\b|\bat (?:most|least)\b"
    r"|\bmust be\b|\b(?:less|greater|more|larger|smaller|higher|lower) than\b|\bexceed"
    rf"|\b(?:maximum|minimum|range)\b|\bnot support \d|{_N}\s*(?:=|:|>|of|\()?\s*\d"
)
_IS_REFUSED = (
    r"unsupported|unrecognized|unknown|unexpected|not supported|no longer supported"
    r"|not (?:permitted|allowed)|not a (?:valid|known|recognized)|cannot find field"
    r"|extra (?:inputs|fields)(?: are)? not permitted"
)
_REFUSED = re.compile(rf"{_IS_REFUSED}|not support|extra_forbidden")
# Where no field says which parameter is meant, its name stands right beside the refusal, with no
# more between them than quotes and the words for a parameter.
_NOUNS = (
    r"(?:[\s:'\"`{\[]|\b(?:the|request|keyword|json|input|body\.?|parameters?|params?|arguments?"
    r"|fields?|property|properties|name|key|option|supplied|is|was|are)\b){0,20}"
)
_REFUSED_BY_NAME = re.compile(
    rf"\b(?:unsupported|unrecognized|unknown|unexpected|not support){_NOUNS}{_N}"
    rf"|{_N}{_NOUNS}(?:{_IS_REFUSED})"
    rf"|extra_forbidden\W{{1,8}}loc\W{{1,8}}body\W{{1,8}}{_N}"
    rf"|{_N}\W{{1,8}}msg\W{{1,8}}extra (?:inputs|fields)(?: are)? not permitted"
    rf"|\buse (?:the )?['\"`]?{_N}.{{0,20}}\binstead\b"
)
_TEXT_MAX = 4000


def refuses_name(labels: frozenset[str], message: str, fields: dict[str, Any]) -> bool:
    """Whether a refusal is of the name of the output limit alone, so that the other may do.

    ``labels`` are the error's code and type, ``fields`` is the error object.
    """
    text = " ".join((*sorted(labels), message[:_TEXT_MAX])).lower()
    if _OF_VALUE.search(text):
        return False
    named = fields.get("param")
    if isinstance(named, str) and named:
        return bool(_NAME.search(named) and _REFUSED.search(text))
    return bool(_REFUSED_BY_NAME.search(text))
