"""A small HTTP/1.1 server: h11 on trio sockets, keep-alive, and an end to every wait."""

import socket
from collections.abc import Callable, Sequence

import h11
import msgspec
import trio

from actors.testing.replies import Answer, error

IDLE_SECONDS = 300.0
"""Longest wait for a whole request, and for a client that does not read its answer."""
HANG_SECONDS = 300.0
LINGER_SECONDS = 1.0
BODY_MAX = 64 * 1024 * 1024
HEADERS_MAX = 64 * 1024
_READ_BYTES = 256 * 1024


class Request(msgspec.Struct, frozen=True):
    """One whole request; header names in lower case."""

    method: str
    path: str
    headers: dict[bytes, bytes]
    body: bytes


Handler = Callable[[Request], Answer | None]
"""Decides, without waiting, what is answered; None: nothing, ever."""


async def serve_http(
    handler: Handler, listeners: Sequence[trio.SocketListener], latency_seconds: float = 0.0
) -> None:
    """Serve until cancelled. Each POST waits ``latency_seconds`` before its handler is asked.

    A client that hangs up within the latency is not answered, and its request is not handled.
    """

    async def connection(stream: trio.SocketStream) -> None:
        async with stream:
            try:
                await _Connection(stream, handler, latency_seconds).run()
            except trio.BrokenResourceError:
                pass  # the client is gone, and nobody is left to tell
            except h11.LocalProtocolError:
                pass  # it asked with a method whose answer may have no body, such as HEAD

    await trio.serve_listeners(connection, list(listeners))


class _Connection:
    def __init__(self, stream: trio.SocketStream, handler: Handler, latency: float) -> None:
        self._stream = stream
        self._handler = handler
        self._latency = latency
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADERS_MAX)

    async def run(self) -> None:
        while await self._exchange():
            self._http.start_next_cycle()

    async def _exchange(self) -> bool:
        """Serve one request; say whether the connection can carry another."""
        received: Request | Answer | None = None
        with trio.move_on_after(IDLE_SECONDS):
            received = await self._receive()
        if received is None:
            return False
        if isinstance(received, Answer):
            if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                await self._send(received, closing=True)
                await self._linger()
            return False
        if received.method == "POST" and self._latency and not await self._wait(self._latency):
            return False
        answer = self._handler(received)
        if answer is None:
            await self._wait(HANG_SECONDS)
            return False
        await self._send(answer)
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _receive(self) -> Request | Answer | None:
        """The next request, or the answer to one that is not read to its end; None at the end."""
        head: h11.Request | None = None
        body = bytearray()
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as bad:
                return error(bad.error_status_hint, str(bad))
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    go_on = h11.InformationalResponse(status_code=100, headers=[])
                    await self._stream.send_all(self._http.send(go_on) or b"")
                self._http.receive_data(await self._stream.receive_some(_READ_BYTES))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > BODY_MAX:
                    return error(413, f"The request is over the limit of {BODY_MAX} bytes.")
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                path = head.target.decode("ascii").partition("?")[0]
                return Request(head.method.decode("ascii"), path, dict(head.headers), bytes(body))
            else:
                return None

    async def _send(self, answer: Answer, closing: bool = False) -> None:
        """Send an answer in one piece; one that is to be cut leaves the connection unusable."""
        headers = [("Content-Type", answer.content_type), *answer.headers]
        if not answer.chunked:
            headers.append(("Content-Length", str(len(answer.body))))
        if closing:
            headers.append(("Connection", "close"))
        http = self._http
        data = http.send(h11.Response(status_code=answer.status, headers=headers)) or b""
        data += http.send(h11.Data(data=answer.body[: answer.cut_at])) or b""
        if answer.cut_at is None:
            data += http.send(h11.EndOfMessage()) or b""
        with trio.move_on_after(IDLE_SECONDS) as scope:
            await self._stream.send_all(data)
        if scope.cancelled_caught:
            raise trio.BrokenResourceError("the client does not read its answer")

    async def _wait(self, seconds: float) -> bool:
        """Sleep, and say whether the client is still there; returns at once when it hangs up."""
        deadline = trio.current_time() + seconds
        with trio.move_on_at(deadline):
            try:
                waiting = await self._stream.socket.recv(1, socket.MSG_PEEK)
            except OSError:
                waiting = b""
            if not waiting:
                return False
            await trio.sleep_until(deadline)
        return True

    async def _linger(self) -> None:
        # Closing with unread bytes resets the connection, which may destroy the refusal on its way.
        with trio.move_on_after(LINGER_SECONDS):
            await self._stream.send_eof()
            while await self._stream.receive_some(_READ_BYTES):
                pass
