"""What a request costs: its tokens, and how many of them the prefix cache already holds."""

import hashlib

import msgspec

from actors.testing.chat import Chat, Message
from actors.testing.recent import Recent
from actors.tokens import REPLY_PRIMING, count_message, count_tools

CACHE_MIN_TOKENS = 1024
CACHE_STEP_TOKENS = 128

COUNTS_MAX = 50_000
PREFIXES_MAX = 50_000


class Measure(msgspec.Struct, frozen=True):
    """The size of one request: ``prefixes`` names each beginning of it and its tokens."""

    input_tokens: int
    prefixes: list[tuple[bytes, int]]


def _digest(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.digest()


class Meter:
    """Counts tokens once per content, and remembers the prefixes it has seen.

    Both memories are bounded and only in this process: a restarted provider is merely cold.
    """

    def __init__(self) -> None:
        self._counts: Recent[bytes, int] = Recent(COUNTS_MAX)
        self._seen: Recent[bytes, None] = Recent(PREFIXES_MAX)

    def measure(self, chat: Chat) -> Measure:
        """Count a request; only contents that are new cost time."""
        tools = _digest(b"tools", chat.tools_json)
        tokens = REPLY_PRIMING + self._count(tools, chat.tools_json)
        prefix = _digest(tools, chat.model.encode())
        prefixes: list[tuple[bytes, int]] = []
        for message in chat.messages:
            content = _digest(message.raw)
            tokens += self._count(content, message)
            prefix = _digest(prefix, content)
            prefixes.append((prefix, tokens))
        return Measure(tokens, prefixes)

    def _count(self, key: bytes, what: Message | bytes) -> int:
        count = self._counts.get(key, -1)
        if count < 0:
            if isinstance(what, bytes):
                count = count_tools(what)
            else:
                count = count_message(what.role, what.text, what.calls)
            self._counts.put(key, count)
        return count

    def cached(self, measure: Measure) -> int:
        """Tokens of the longest beginning seen before, as providers count them.

        Nothing below 1,024, and then in steps of 128.
        """
        for prefix, tokens in reversed(measure.prefixes):
            if prefix in self._seen:
                whole = tokens - tokens % CACHE_STEP_TOKENS
                return whole if tokens >= CACHE_MIN_TOKENS else 0
        return 0

    def remember(self, measure: Measure) -> None:
        """Put every beginning of a request into the prefix cache."""
        for prefix, _ in measure.prefixes:
            self._seen.put(prefix, None)
