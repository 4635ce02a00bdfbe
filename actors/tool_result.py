"""What a tool returned, as the text that the model reads."""

import msgspec

from actors.text import clean, clean_json


def result_text(value: object) -> str:
    """What the model reads of a tool's result: never empty, always encodable.

    A text stays as it is, bytes are decoded, anything else becomes compact JSON, or its repr.
    """
    match value:
        case None:
            return "(no output)"
        case str():
            return clean(value) or "(empty)"
        case bytes() | bytearray():
            return bytes(value).decode("utf-8", "replace") or "(empty)"
        case _:
            pass
    try:
        plain = clean_json(msgspec.to_builtins(value, str_keys=True, enc_hook=repr))
        return msgspec.json.encode(plain).decode()
    except Exception:  # the value's own code may raise anything
        return _repr(value)


def _repr(value: object) -> str:
    try:
        return clean(repr(value)) or "(empty)"
    except Exception:  # as above
        return f"(a {type(value).__name__} that cannot be shown)"
