"""What servers call the most tokens of a reply, and how they say that they do not know the name."""

import re
from typing import Any, Literal

LimitName = Literal["max_tokens", "max_completion_tokens"]
OTHER_NAME: dict[LimitName, LimitName] = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}

_NAME = re.compile(r"\bmax_(completion_)?tokens\b")
# A value that is too large is worded otherwise, and another name would not make it smaller.
_REFUSED = re.compile(
    r"unsupported|not supported|does not support|unrecognized|unknown|unexpected|cannot find field"
    r"|extra_forbidden|(inputs|fields|properties|parameters?|arguments?) (are|is) not (permitted"
    r"|allowed)|not a (valid|known|recognized)|use .?max_completion_tokens"
)
_TEXT_MAX = 4000


def refuses_name(labels: frozenset[str], message: str, fields: dict[str, Any]) -> bool:
    """Whether a refusal is of the name of the output limit alone, so that the other may do.

    ``labels`` are the error's code and type, ``fields`` is the error object.
    """
    text = " ".join((*sorted(labels), message[:_TEXT_MAX])).lower()
    named = fields.get("param")
    return bool(
        _NAME.search(named if isinstance(named, str) and named else text) and _REFUSED.search(text)
    )
