"""What can go wrong between us and a provider, mapped here once and nowhere else."""

import html
import os
import re
import socket
import ssl
from collections.abc import Iterator
from typing import Any, Literal, cast

import httpx

from actors.limit_name import refuses_name
from actors.overflow import find_overflow
from actors.provider_json import decode_json
from actors.text import excerpt

Kind = Literal[
    "invalid_request",
    "overflow",
    "limit_name",
    "auth",
    "not_found",
    "quota",
    "rate_limited",
    "server",
    "connection",
    "tls",
    "timeout",
    "redirect",
    "broken",
]

WORDS_MAX = 300
"""Characters of the words that leave the provider client."""
_RAW_MAX = 2000  # Longer than WORDS_MAX, so that a key is never cut before it is looked for.
_MARKUP_MAX = 4000

_QUOTA = re.compile(
    r"insufficient_quota|billing_hard_limit_reached|billing_not_active|insufficient balance"
    r"|credit balance is too low"
)
_REFUSED_BY_500 = re.compile(
    r"invalid_request|invalid.{0,3}(json|request)|malformed|parse_error|parse error"
    r"|failed to parse (tool call arguments|messages)"
)
_LABEL_STATUS = (
    # What an error object inside a 200 is worth when it carries no status of its own.
    (re.compile(r"insufficient_quota|billing"), 402),
    (re.compile(r"rate_limit|too_many_requests"), 429),
    (re.compile(r"invalid_request|context_length|exceed_context"), 400),
    (re.compile(r"authentication|invalid_api_key|permission"), 401),
    (re.compile(r"not_found"), 404),
)
_BY_STATUS: dict[int, tuple[Kind, bool]] = {
    401: ("auth", True),
    402: ("quota", True),
    403: ("auth", True),
    404: ("not_found", True),
    405: ("not_found", True),
    408: ("timeout", False),
    409: ("server", False),
    425: ("server", False),
    429: ("rate_limited", False),
}
_MARKUP = re.compile(r"<(script|style)\b.*?</\1\s*>|<!--.*?-->|<[^>]*>", re.DOTALL | re.IGNORECASE)


GATEWAY_TIMEOUTS = frozenset({408, 502, 504, *range(520, 525)})
"""Somebody in between gave up waiting; the model may have gone on, and its work is billed."""


class ProviderError(Exception):
    """One attempt brought no reply; the loop, not the model, decides what is next.

    ``permanent``: asking again cannot help, and the operator must act. ``billed``: the request may
    have been paid for. ``retry_after_seconds`` is what the provider asked for, already capped.
    ``limit_tokens`` and ``used_tokens`` belong to ``overflow``, where the provider gave them.
    """

    def __init__(
        self,
        kind: Kind,
        words: str,
        *,
        permanent: bool = False,
        billed: bool = False,
        retry_after_seconds: float | None = None,
        limit_tokens: int | None = None,
        used_tokens: int | None = None,
    ) -> None:
        super().__init__(words)
        self.kind: Kind = kind
        self.words = words
        self.permanent = permanent
        self.billed = billed
        self.retry_after_seconds = retry_after_seconds
        self.limit_tokens = limit_tokens
        self.used_tokens = used_tokens

    def sealed(self, secret: str | None, remedy: str = "") -> "ProviderError":
        """A copy whose words are short and free of the secret, and which has no traceback.

        They end with the ``remedy``, which is not cut.
        """
        words = self.words.replace(secret, "[key]") if secret else self.words
        words = excerpt(words, WORDS_MAX)
        if remedy:
            remedy = remedy.replace(secret, "[key]") if secret else remedy
            words = f"{words.rstrip('. ')}; {remedy}"
        return ProviderError(
            self.kind,
            words,
            permanent=self.permanent,
            billed=self.billed,
            retry_after_seconds=self.retry_after_seconds,
            limit_tokens=self.limit_tokens,
            used_tokens=self.used_tokens,
        )


def broken(words: str) -> ProviderError:
    """A success by its status whose body is of no use: it was probably paid for."""
    return ProviderError("broken", words, billed=True)


def map_status(
    status: int, body: bytes, retry_after: float | None = None, leads_to: str = ""
) -> ProviderError:
    """What a status other than 2xx means; maybe billed only behind a gateway's time-out.

    ``leads_to`` is where a redirect leads, as it may be shown.
    """
    if 300 <= status < 400:
        words = f"the provider answered HTTP {status}: redirects are not followed"
        words += f", and it leads to {leads_to}" if leads_to else ""
        return ProviderError("redirect", words, permanent=True)
    try:
        value = decode_json(body)
    except ValueError:
        value = None
    message, labels, fields = _facts(value, body)
    words = f"the provider answered HTTP {status}: {message or 'without a word'}"
    failure = _classify(status, words, message, labels, fields, retry_after)
    failure.billed = status in GATEWAY_TIMEOUTS
    return failure


def error_within(value: Any) -> ProviderError | None:
    """The error that a body or chunk with status 200 carries, or None; it may have been billed."""
    if not isinstance(value, dict):
        return None
    outer = cast(dict[str, Any], value)
    if not outer.get("error") and outer.get("object") != "error":
        return None
    message, labels, fields = _facts(outer, b"")
    words = f"the provider reported an error inside its answer: {message}"
    failure = _classify(_status_of(fields, labels), words, message, labels, fields, None)
    failure.billed = True
    return failure


def map_transport(error: BaseException) -> ProviderError:
    """What a failure below HTTP means; billed unless the request cannot have arrived whole."""
    words = _cause(error)
    match error:
        case httpx.ConnectError() if _is_tls(error):
            return ProviderError("tls", f"no trusted connection: {words}", permanent=True)
        case httpx.UnsupportedProtocol() | httpx.LocalProtocolError() | httpx.InvalidURL():
            return ProviderError("invalid_request", f"nothing was sent: {words}", permanent=True)
        case httpx.ConnectError() | httpx.ConnectTimeout() | httpx.PoolTimeout():
            return ProviderError("connection", f"no connection: {words}")
        case httpx.WriteError() | httpx.WriteTimeout():
            return ProviderError("connection", f"the request was not sent whole: {words}")
        case httpx.TimeoutException():
            words = "the provider fell silent for longer than timeout_s"
            return ProviderError("timeout", words, billed=True)
        case _:
            return broken(f"the answer was cut: {words}")


def _classify(
    status: int,
    words: str,
    message: str,
    labels: frozenset[str],
    fields: dict[str, Any],
    retry_after: float | None,
) -> ProviderError:
    evidence = " ".join((*sorted(labels), message)).lower()
    if status in (400, 413, 422, 500) and (over := find_overflow(labels, message, fields)):
        return ProviderError(
            "overflow",
            words,
            permanent=True,
            limit_tokens=over.limit_tokens,
            used_tokens=over.used_tokens,
        )
    if status in (400, 422) and refuses_name(labels, message, fields):
        return ProviderError("limit_name", words, permanent=True)
    if status == 429 and _QUOTA.search(evidence):
        # The code tells: "exceeded your current quota" is also said of a busy minute.
        return ProviderError("quota", words, permanent=True)
    if status == 500 and _REFUSED_BY_500.search(evidence):
        return ProviderError("invalid_request", words, permanent=True)
    default: tuple[Kind, bool] = ("server", False) if status >= 500 else ("invalid_request", True)
    kind, permanent = _BY_STATUS.get(status, default)
    wait = None if permanent else retry_after
    return ProviderError(kind, words, permanent=permanent, retry_after_seconds=wait)


def _facts(value: Any, body: bytes) -> tuple[str, frozenset[str], dict[str, Any]]:
    """The message, the labels (code and type) and the error object, whatever shape it has."""
    if isinstance(value, list) and value:
        value = cast(list[Any], value)[0]
    outer: dict[str, Any] = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    error = outer.get("error") or outer
    if not isinstance(error, dict):
        return _plain(str(error)), frozenset(), outer
    fields = cast(dict[str, Any], error)
    message = fields.get("message") or outer.get("message") or outer.get("detail")
    labels = frozenset(
        label.lower() for name in ("code", "type") if isinstance(label := fields.get(name), str)
    )
    if message:
        return _plain(str(message)), labels, fields
    return _plain(str(fields)) if fields else plain_body(body), labels, fields


def _status_of(fields: dict[str, Any], labels: frozenset[str]) -> int:
    for name in ("code", "status"):
        code = fields.get(name)
        if isinstance(code, str) and code.isascii() and code.isdigit() and len(code) == 3:
            code = int(code)
        if isinstance(code, int) and 400 <= code < 600:
            return code
    evidence = " ".join(labels)
    return next((status for label, status in _LABEL_STATUS if label.search(evidence)), 503)


def plain_body(body: bytes) -> str:
    """The beginning of a body that cannot be read otherwise, as one line of plain text."""
    return _plain(body[: 2 * _MARKUP_MAX].decode("utf-8", "replace"))


def _plain(text: str) -> str:
    """One line of printable text: markup taken out, control and direction characters blanked."""
    if text.lstrip()[:1] == "<":
        if len(text) > _MARKUP_MAX:
            # Cut before a tag, so that the cut leaves no half of a key that the page shows.
            text = text[:_MARKUP_MAX].rpartition("<")[0]
        text = html.unescape(_MARKUP.sub(" ", text))
    return excerpt("".join(c if c.isprintable() else " " for c in text), _RAW_MAX)


def _is_tls(error: BaseException) -> bool:
    """Whether the handshake was refused; one that was merely cut off may be tried again."""
    found = next((one for one in _chain(error) if isinstance(one, ssl.SSLError)), None)
    return bool(found) and not isinstance(found, ssl.SSLEOFError | ssl.SSLZeroReturnError)


def _cause(error: BaseException) -> str:
    """Why a connection failed, in the words of the system where it has some."""
    for one in _chain(error):
        match one:
            case ssl.SSLCertVerificationError():
                return f"the server's certificate is not good: {_plain(one.verify_message)}"
            case ssl.SSLError() if one.reason == "WRONG_VERSION_NUMBER":
                return "the server does not speak TLS there"
            case ssl.SSLError() if one.reason:
                return f"TLS failed: {one.reason.replace('_', ' ').lower()}"
            case socket.gaierror():
                return f"the host's name cannot be resolved ({one.strerror})"
            case OSError() if one.errno and not isinstance(one, ssl.SSLError):
                return os.strerror(one.errno).lower()
            case _:
                pass
    if isinstance(error, httpx.ConnectTimeout):
        return "nothing answered in time"
    return f"{type(error).__name__}: {_plain(str(error)) or 'no further word'}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and what it came from, the first of a group standing for all of it."""
    seen: BaseException | None = error
    for _ in range(10):
        if seen is None:
            return
        yield seen
        if isinstance(seen, BaseExceptionGroup):
            seen = cast(BaseException, seen.exceptions[0])
        else:
            seen = seen.__cause__ or seen.__context__
