"""How many tokens a text has, for models whose tokenizer is known and for those whose is not.

Three ways of counting, each linear in the length of the text, and none of them raises for any:

1. ``o200k``: real counts, for the models that use these ranks and for the scripted provider.
2. ``bytes``: weights by class of byte. A text is encoded and translated once, then classes are
   counted, which takes microseconds. The provider's own usage corrects it (see calibration.py).
3. ``reference``: by script, 4 ASCII characters a token, 1 Chinese, Japanese or Korean, 2 others.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final, Literal

import msgspec

from actors.messages import ToolCall
from actors.tokens import CALL_FRAME, MESSAGE_FRAME, count_text

CounterName = Literal["auto", "o200k", "bytes", "reference"]

EXACT_CHARS_MAX = 200_000
"""A longer text is estimated even where the tokenizer is known; counting takes 0.3 s a million."""
BYTES_K0 = 1.3
"""What estimates are multiplied by until the provider has said what a request really had."""
_BYTES_PER_TOKEN_MAX = 16
"""Blanks weigh nothing, but a text of blanks alone is not free."""

_CLASSES: Final[tuple[tuple[int, bytes], ...]] = (
    # Hundredths of a token per byte. Bytes that stand in no class (blanks, and all but the first
    # byte of a character) weigh nothing.
    (25, bytes(range(0x61, 0x7B))),
    (105, bytes(range(0x41, 0x5B))),
    (95, bytes(range(0x30, 0x3A))),
    (220, b"\n"),
    (15, bytes(b for b in range(0x21, 0x7F) if not chr(b).isalnum())),
    (100, bytes(b for b in (*range(0x20), 0x7F) if b not in b"\t\n\r")),
    (160, bytes(range(0xC2, 0xC6))),  # accented Latin
    (50, bytes((*range(0xC6, 0xCE), 0xD4, 0xD5, *range(0xDC, 0xE0)))),
    (42, b"\xce\xcf"),  # Greek
    (37, bytes(range(0xD0, 0xD4))),  # Cyrillic
    (46, b"\xd6\xd7"),  # Hebrew
    (38, bytes(range(0xD8, 0xDC))),  # Arabic
    (43, b"\xe0"),  # Indic, Thai
    (62, b"\xe1"),
    (125, b"\xe2"),  # symbols, box drawing
    (76, b"\xe3"),  # kana
    (86, bytes(range(0xE4, 0xEA))),  # Han
    (78, bytes(range(0xEA, 0xEE))),  # Hangul, and lone surrogates
    (100, b"\xee\xef"),
    (400, bytes(range(0xF0, 0xF8))),  # emoji and rare scripts
)
_ASCII_CLASSES = 6
_WEIGHTLESS = 255


def _table() -> bytes:
    table = bytearray([_WEIGHTLESS]) * 256
    for number, (_, members) in enumerate(_CLASSES):
        for byte in members:
            table[byte] = number
    return bytes(table)


_TABLE: Final = _table()
_CJK = re.compile(
    "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef"
    "\U00020000-\U0003ffff]+"
)


def by_bytes(text: str) -> int:
    """Tokens by class of byte, before any calibration."""
    data = text.encode("utf-8", "surrogatepass").translate(_TABLE)
    classes = _CLASSES[:_ASCII_CLASSES] if text.isascii() else _CLASSES
    hundredths = sum(weight * data.count(number) for number, (weight, _) in enumerate(classes))
    return max(-(-hundredths // 100), -(-len(data) // _BYTES_PER_TOKEN_MAX))


def by_script(text: str) -> int:
    """Tokens by the reference's rule: ASCII 4 characters each, CJK 1, everything else 2."""
    if text.isascii():
        return -(-len(text) // 4)
    ascii_chars = len(text.encode("ascii", "ignore"))
    cjk = sum(len(run) for run in _CJK.findall(text))
    other = len(text) - ascii_chars - cjk
    return -(-(ascii_chars + 4 * cjk + 2 * other) // 4)


def _exact(text: str) -> int:
    if len(text) <= EXACT_CHARS_MAX:
        return count_text(text)
    return int(by_bytes(text) * BYTES_K0)


class Counter(msgspec.Struct, frozen=True):
    """One way of counting; ``k0`` times a count is what to expect before usage is known."""

    name: str
    text: Callable[[str], int]
    """Tokens of any text."""
    k0: float
    calibrated: bool
    """Whether the provider's usage corrects the counts."""

    def message(self, role: str, text: str | None, calls: Iterable[ToolCall] = ()) -> int:
        """Tokens of one message: its frame and role, its text, and its calls as JSON."""
        written = sum(
            self.text(call.name) + self.text(call.arguments) + CALL_FRAME for call in calls
        )
        return MESSAGE_FRAME + self.text(role) + self.text(text or "") + written


_COUNTERS: Final = {
    "o200k": Counter("o200k", _exact, k0=1.0, calibrated=True),
    "bytes": Counter("bytes", by_bytes, k0=BYTES_K0, calibrated=True),
    "reference": Counter("reference", by_script, k0=1.0, calibrated=False),
}
_O200K_MODEL = re.compile(r"(chatgpt-4o|gpt-4o|gpt-4\.[15]|gpt-5|gpt-oss|o[134])(?![a-z0-9])")


def counter_for(model: str, *, scripted: bool = False, choice: CounterName = "auto") -> Counter:
    """The counter of a model; ``auto`` takes real counts where the model's tokenizer is known.

    ``scripted``: the model is a script, whose provider bills by o200k.
    """
    if choice != "auto":
        return _COUNTERS[choice]
    known = scripted or _O200K_MODEL.match(model.lower().rpartition("/")[2])
    return _COUNTERS["o200k" if known else "bytes"]
