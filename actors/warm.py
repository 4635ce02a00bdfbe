"""What costs an actor most and is the same in all of them, done once before they are forked."""

import functools
import ssl

import httpx
import trio

_REQUEST_SECONDS = 5.0
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


@functools.cache
def ssl_context() -> ssl.SSLContext:
    """The TLS context of this process: httpx's own default, 30 ms of CPU to make, safe to share."""
    return httpx.create_ssl_context()


def request() -> None:
    """Make one HTTP request over loopback: what httpx imports only then takes 20 ms of CPU.

    Returns after at most ``_REQUEST_SECONDS``. Leaves no thread and no socket behind.
    """
    trio.run(_request)


async def _request() -> None:
    with trio.move_on_after(_REQUEST_SECONDS):
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(
                functools.partial(trio.serve_tcp, _answer, 0, host="127.0.0.1")
            )
            port = listeners[0].socket.getsockname()[1]
            try:
                async with httpx.AsyncClient(verify=False, trust_env=False) as client:
                    await client.post(f"http://127.0.0.1:{port}/", content=b"{}")
            except httpx.TransportError:
                # A machine without loopback may still reach its provider; its actors start cold.
                pass
            nursery.cancel_scope.cancel()


async def _answer(stream: trio.SocketStream) -> None:
    await stream.receive_some()
    await stream.send_all(_ANSWER)
