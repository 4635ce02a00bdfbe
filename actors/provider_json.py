"""JSON as providers send it: strict and fast first, forgiving when a paid reply depends on it."""

import json
import re
from typing import Any

import msgspec

BOM = b"\xef\xbb\xbf"

_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # 1. a pair, which stays
    r"|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"  # 2. half a pair
    r"|\\.",  # 3. any other escape, consumed so that its second character starts none
    re.DOTALL,
)


def decode_json(data: bytes) -> Any:
    """Decode a body or chunk; raises ValueError with a few words when there is no JSON in it.

    Lone surrogates, raw control characters and invalid UTF-8 are let through (the last as U+FFFD):
    whoever takes a text out of the value mends it with ``mend``.
    """
    data = data.removeprefix(BOM)
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except msgspec.DecodeError:
        pass
    try:
        return json.loads(data.decode("utf-8", "replace"), strict=False)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:
        raise ValueError("it is not JSON") from None


def mend(text: str) -> tuple[str, bool]:
    """Join surrogate halves that were sent apart and replace lone ones; True if any was lone."""
    try:
        text.encode()
    except UnicodeEncodeError:
        pairs = text.encode("utf-16-le", "surrogatepass")
        mended = pairs.decode("utf-16-le", "replace")
        return mended, mended.encode("utf-16-le") != pairs
    return text, False


def mend_escapes(arguments: str) -> tuple[str, bool]:
    r"""Replace lone surrogates written as escapes inside a JSON text by ``\ufffd``."""
    if "\\ud" not in arguments and "\\uD" not in arguments:
        return arguments, False
    mended = _ESCAPE.sub(lambda m: "\\ufffd" if m["lone"] else m[0], arguments)
    return mended, mended != arguments
