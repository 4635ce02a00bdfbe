"""The provider client: one request, one attempt, one reply or one mapped error.

Attempts are repeated by the loop, which writes each of them down; nothing is retried in here.
"""

import ipaddress
import ssl
import time

import httpx
import trio

from actors.answer import Answer
from actors.backoff import parse_retry_after
from actors.provider_error import ProviderError, map_status, map_transport
from actors.remedy import remedy, shown_url
from actors.reply import Reply
from actors.spec import ProviderSpec

ATTEMPT_MAX_SECONDS = 900.0
"""The longest that one attempt may take, however steadily its bytes drip in."""
CONNECT_MAX_SECONDS = 10.0
USAGE_GRACE_SECONDS = 5.0
"""How long a finished stream is waited for to say its usage."""
DRAIN_SECONDS = 0.05
"""How long the end of the body is waited for after the end mark, to keep the connection."""
KEEPALIVE_SECONDS = 4.0
"""Just under the five seconds after which many servers close an idle connection."""
ERROR_BODY_MAX = 64 * 1024
"""Bytes that are read of a refusal."""
ERROR_BODY_SECONDS = 5.0

_HTTPX_ERRORS = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError)


def open_client(tls: ssl.SSLContext) -> httpx.AsyncClient:
    """Open the one connection of a run: HTTP/1.1, no proxies or .netrc, no redirects.

    ``tls`` is asked for also where http will do: httpx makes one of its own for want of it, which
    costs each process a megabyte.
    """
    return httpx.AsyncClient(
        verify=tls,
        trust_env=False,
        follow_redirects=False,
        limits=httpx.Limits(
            max_connections=1,
            max_keepalive_connections=1,
            keepalive_expiry=KEEPALIVE_SECONDS,
        ),
    )


class Provider:
    """A server of the chat completions shape; the key is sent to it and appears nowhere else."""

    def __init__(
        self, client: httpx.AsyncClient, base_url: str, spec: ProviderSpec, api_key: str | None
    ) -> None:
        self._client = client
        self._base_url = base_url
        self._spec = spec
        self._api_key = api_key or None
        self._url: httpx.URL | None = None
        self._refusal = _refusal(base_url, self._api_key)
        if self._refusal is None:
            url = httpx.URL(base_url)
            self._url = url.copy_with(path=url.path.rstrip("/") + "/chat/completions")
        connect = min(CONNECT_MAX_SECONDS, spec.timeout_seconds)
        self._timeout = httpx.Timeout(spec.timeout_seconds, connect=connect, pool=connect)

    async def ask(self, body: bytes, idempotency_key: str) -> Reply:
        """Make exactly one attempt; raises ProviderError, whose words do not hold the key.

        Ends within ``timeout_seconds`` of silence and ``ATTEMPT_MAX_SECONDS`` in all; when it is
        cancelled the connection is closed at once.
        """
        result = await self._attempt(body, idempotency_key)
        if isinstance(result, ProviderError):
            # Raised out here, where no exception with the key in it is being handled.
            has_key = self._api_key is not None
            step = remedy(result, self._spec, self._base_url, has_key=has_key)
            raise result.sealed(self._api_key, step)
        return result

    async def _attempt(self, body: bytes, idempotency_key: str) -> Reply | ProviderError:
        if self._url is None:
            return ProviderError("invalid_request", self._refusal or "", permanent=True)
        answer = Answer()
        failure: ProviderError | None = None
        scope = trio.CancelScope(deadline=trio.current_time() + ATTEMPT_MAX_SECONDS)
        try:
            with scope:
                await self._exchange(self._url, body, idempotency_key, answer, scope)
        except ProviderError as error:
            return error
        except _HTTPX_ERRORS as error:
            failure = map_transport(error)
        except BaseExceptionGroup as group:
            failure = _map_group(group)
        if scope.cancelled_caught:
            words = f"the attempt took longer than {ATTEMPT_MAX_SECONDS:.0f} seconds"
            failure = ProviderError("timeout", words, billed=True)
        try:
            # A reply that was whole before the connection broke is paid for, and kept.
            return answer.reply()
        except ProviderError as error:
            return error if answer.is_done else failure or error

    async def _exchange(
        self,
        url: httpx.URL,
        body: bytes,
        idempotency_key: str,
        answer: Answer,
        scope: trio.CancelScope,
    ) -> None:
        """Send the request and feed the answer; the scope ends early once the reply is whole."""
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream" if self._spec.stream else "application/json",
            "Accept-Encoding": "identity",
            "Idempotency-Key": idempotency_key,
            "User-Agent": "exeunt",
        }
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key}"
        sending = self._client.stream(
            "POST", url, content=body, headers=headers, timeout=self._timeout
        )
        async with sending as response:
            if not response.is_success:
                raise await self._refused(response)
            # The body is read to its end or cancelled, never left: an iterator that is left in
            # the middle would close the connection later, whenever it is collected.
            async for chunk in response.aiter_bytes():
                answer.feed(chunk)
                if answer.is_done:
                    _hasten(scope, DRAIN_SECONDS)
                elif answer.is_finished:
                    _hasten(scope, USAGE_GRACE_SECONDS)

    async def _refused(self, response: httpx.Response) -> ProviderError:
        """Map a status other than 2xx, with as much of its body as could be read."""
        body = bytearray()
        try:
            with trio.move_on_after(ERROR_BODY_SECONDS) as limit:
                async for chunk in response.aiter_bytes():
                    if len(body) < ERROR_BODY_MAX:
                        body += chunk
                    else:
                        limit.cancel()
        except _HTTPX_ERRORS:
            pass  # The status says enough.
        asked = response.headers.get("Retry-After")
        cap = self._spec.retry_after_max_seconds
        wait = parse_retry_after(asked, time.time(), cap) if asked else None
        elsewhere = response.next_request
        leads_to = shown_url(str(elsewhere.url)) if elsewhere else ""
        leads_to = leads_to.removesuffix("/chat/completions")
        return map_status(response.status_code, bytes(body), wait, leads_to)


def _hasten(scope: trio.CancelScope, seconds: float) -> None:
    scope.deadline = min(scope.deadline, trio.current_time() + seconds)


def _map_group(group: BaseExceptionGroup) -> ProviderError:
    """Map the transport's failure out of a group; whatever else is in it goes on its way."""
    ours, others = group.split(_HTTPX_ERRORS)
    if others is not None or ours is None:
        raise others or group
    error: BaseException = ours
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return map_transport(error)


def _refusal(base_url: str, api_key: str | None) -> str | None:
    """Why nothing may be sent to this address with this key, or None."""
    try:
        url = httpx.URL(base_url)
    except (httpx.InvalidURL, UnicodeError):
        return "the provider's base_url is not a URL"
    if url.scheme not in ("http", "https") or not url.host:
        return "the provider's base_url must begin with http:// or https:// and name a host"
    if url.userinfo:
        return "the provider's base_url must hold no user name or password"
    if api_key is None:
        return None
    if not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        return "the API key holds a character that no key has (a space, a line end, an accent)"
    if url.scheme == "http" and not _is_loopback(url.host):
        return f"the API key is not sent over plain http to {url.host}: use https"
    return None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
