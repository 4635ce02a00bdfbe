"""The provider client against real sockets on loopback."""

import json
import ssl
import traceback
from contextlib import asynccontextmanager

import httpx
import pytest
import trio
import trio.testing

from actors import provider as provider_module
from actors.money import Usage
from actors.provider import Provider, open_client
from actors.provider_error import ProviderError
from actors.spec import ProviderSpec
from actors.warm import tls

KEY = "sk-do-not-show-me"
BODY = b'{"model":"m","messages":[]}'
OK = json.dumps(
    {
        "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    }
).encode()
WORD = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'
FINISH = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n'
DONE = b"data: [DONE]\n\n"


def http(body=b"", status="200 OK", **headers):
    headers = {"content_length": len(body), **headers}
    shown = [(name.replace("_", "-"), value) for name, value in headers.items()]
    lines = [f"{name}: {value}\r\n" for name, value in shown if value is not None]
    return f"HTTP/1.1 {status}\r\n{''.join(lines)}\r\n".encode() + body


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class Server:
    """Writes one script entry per request: bytes, or a list of bytes; None holds the line open."""

    def __init__(self, *script):
        self.script = list(script)
        self.requests = []
        self.connections = 0
        self.asked = trio.Event()
        self.gone = trio.Event()

    async def serve(self, stream):
        self.connections += 1
        try:
            async with stream:
                while self.script and await self._answer(stream):
                    pass
        except trio.BrokenResourceError:
            self.gone.set()

    async def _answer(self, stream):
        request = b""
        while b"\r\n\r\n" not in request or not request.endswith(BODY):
            data = await stream.receive_some()
            if not data:
                return False
            request += data
        self.requests.append(request)
        entry = self.script.pop(0)
        self.asked.set()
        for part in entry if isinstance(entry, list) else [entry]:
            if part is None:
                assert await stream.receive_some() == b""
                self.gone.set()
                return False
            await stream.send_all(part)
        return True


@asynccontextmanager
async def running(server, key: str | None = KEY, **spec):
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, server.serve, 0)
        port = listeners[0].socket.getsockname()[1]
        base_url = f"http://127.0.0.1:{port}/v1/"
        async with open_client(tls(base_url)) as client:
            yield Provider(client, base_url, ProviderSpec(model="m", **spec), key)
        nursery.cancel_scope.cancel()


async def failing(provider):
    with pytest.raises(ProviderError) as caught:
        await provider.ask(BODY, "k")
    shown = "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value))
    assert KEY not in shown
    assert caught.value.__context__ is None
    return caught.value


async def test_one_attempt_sends_the_body_and_the_key_once():
    """The body goes out untouched, with the key and the idempotency key in headers."""
    server = Server(http(OK))
    async with running(server) as provider:
        reply = await provider.ask(BODY, "run-1")
    assert (reply.assistant.text, reply.usage, reply.finish) == ("hi", Usage(3, 1), "stop")
    (request,) = server.requests
    head, _, body = request.partition(b"\r\n\r\n")
    assert body == BODY
    assert head.startswith(b"POST /v1/chat/completions HTTP/1.1")
    assert b"authorization: bearer " + KEY.encode() in head.lower()
    assert b"idempotency-key: run-1" in head.lower()


async def test_without_a_key_no_authorization_is_sent():
    """An open server gets no header that it did not ask for."""
    server = Server(http(OK))
    async with running(server, key=None) as provider:
        await provider.ask(BODY, "k")
    assert b"authorization" not in server.requests[0].lower()


async def test_a_stream_is_read_and_the_connection_kept():
    """Three streamed replies, in one piece and byte by byte, use one connection."""
    whole = STREAM + chunk(WORD + FINISH + USAGE + DONE) + chunk(b"")
    bytewise = [STREAM, *(chunk(WORD[i : i + 1]) for i in range(len(WORD)))]
    server = Server(whole, [*bytewise, chunk(FINISH + USAGE + DONE) + chunk(b"")], whole)
    async with running(server) as provider:
        for _ in range(3):
            reply = await provider.ask(BODY, "k")
            assert (reply.assistant.text, reply.usage, reply.notes) == ("hi", Usage(3, 1), ())
    assert server.connections == 1


@pytest.mark.parametrize(
    "script",
    [
        pytest.param([STREAM, chunk(WORD + FINISH)], id="cut after finish"),
        pytest.param([STREAM, chunk(WORD + DONE)], id="cut after done"),
        pytest.param(
            [http(content_length=None, connection="close"), WORD + FINISH], id="no length"
        ),
        pytest.param([http(OK, content_length=len(OK) + 9)], id="document shorter than promised"),
    ],
)
async def test_a_whole_reply_is_kept_when_the_connection_breaks_after_it(script):
    """It was paid for, so it is not thrown away."""
    async with running(Server(script)) as provider:
        assert (await provider.ask(BODY, "k")).assistant.text == "hi"


@pytest.mark.parametrize("last", [DONE, FINISH])
async def test_a_server_that_holds_the_line_is_left(last, autojump_clock):
    """After the end mark, or some seconds after the finish reason, nothing more is waited for."""
    server = Server([STREAM, chunk(WORD + last), None])
    async with running(server) as provider:
        start = trio.current_time()
        assert (await provider.ask(BODY, "k")).assistant.text == "hi"
        assert trio.current_time() - start < 6
        await server.gone.wait()


@pytest.mark.parametrize(
    "script",
    [
        pytest.param([STREAM, chunk(WORD)], id="chunked stream cut"),
        pytest.param([http(content_length=None, connection="close"), WORD], id="stream ends early"),
        pytest.param([http(OK)[:-9]], id="document cut"),
        pytest.param([b"HTTP/1.1 200 OK\r\n"], id="head cut"),
        pytest.param([b"what?\r\n\r\n"], id="no HTTP"),
        pytest.param([b""], id="closed without a word"),
        pytest.param([http(b"<html>hello</html>")], id="HTML"),
        pytest.param([http()], id="empty"),
        pytest.param([http(b"x", content_encoding="gzip")], id="no gzip"),
        pytest.param([b"HTTP/1.1 200 OK\r\nx: " + b"y" * 300_000], id="endless head"),
    ],
)
async def test_a_broken_answer_may_have_been_billed(script):
    """Whatever breaks after the request went out is one kind of error, and may be asked again."""
    async with running(Server(script)) as provider:
        error = await failing(provider)
    assert (error.kind, error.billed, error.permanent) == ("broken", True, False)


async def test_a_refused_connection_was_not_billed():
    """Nothing was sent, so nothing is owed."""
    with trio.socket.socket() as unused:
        await unused.bind(("127.0.0.1", 0))
        base_url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        async with open_client(tls(base_url)) as client:
            error = await failing(Provider(client, base_url, ProviderSpec(model="m"), KEY))
    assert (error.kind, error.billed, error.permanent) == ("connection", False, False)


@pytest.mark.parametrize(
    ("answer", "kind", "wait"),
    [
        (http(b'{"error":{"message":"m"}}', "429 X", retry_after="0.5"), "rate_limited", 0.5),
        (http(b"<html>", "503 X", retry_after="999999"), "server", 60.0),
        (http(b"", "503 X", retry_after="soon"), "server", None),
        (http(b"", "400 X", retry_after="5"), "invalid_request", None),
        (http(b"", "302 X", location="http://127.0.0.1:1/"), "redirect", None),
        (http(KEY.encode(), "401 X"), "auth", None),
        (http(b"cut", "503 X", content_length="99"), "server", None),
        (http(b"x" * 300_000, "400 X"), "invalid_request", None),
    ],
)
async def test_a_refusal_is_mapped(answer, kind, wait):
    """Status first, then the body; redirects are not followed, and the key is not repeated."""
    server = Server(answer)
    async with running(server) as provider:
        error = await failing(provider)
    assert (error.kind, error.retry_after_seconds, error.billed) == (kind, wait, False)
    assert len(server.requests) == 1


async def test_a_refusal_that_drips_is_not_waited_for(autojump_clock):
    """The status says enough; its body has some seconds."""
    async with running(Server([http(b"abc", "503 X", content_length="99"), None])) as provider:
        start = trio.current_time()
        error = await failing(provider)
        assert trio.current_time() - start < 6
    assert error.kind == "server"
    assert "abc" in error.words


async def test_silence_is_a_time_out(autojump_clock):
    """The time between bytes is bounded, and the attempt may have been billed."""
    async with running(Server([STREAM, chunk(WORD), None]), timeout_seconds=7.0) as provider:
        start = trio.current_time()
        error = await failing(provider)
        assert trio.current_time() - start == pytest.approx(7, abs=1)
    assert (error.kind, error.billed, error.permanent) == ("timeout", True, False)


async def test_a_drip_is_bounded_in_all(monkeypatch):
    """A server that is never silent for long cannot hold an attempt for ever."""
    monkeypatch.setattr(provider_module, "ATTEMPT_MAX_SECONDS", 0.05)

    class Drip(Server):
        async def _answer(self, stream):
            await stream.receive_some()
            await stream.send_all(STREAM)
            while True:
                await stream.send_all(chunk(b": ping\n\n"))
                await trio.sleep(0.005)

    async with running(Drip("x")) as provider:
        error = await failing(provider)
    assert (error.kind, error.billed) == ("timeout", True)


@pytest.mark.parametrize("parts", [[None], [STREAM, None], [STREAM, chunk(WORD), None]])
async def test_a_cancel_closes_the_socket_at_once(parts):
    """Before the head, after it, in mid-stream: the server sees the end within milliseconds."""
    server = Server(parts)
    async with running(server) as provider, trio.open_nursery() as nursery:
        nursery.start_soon(provider.ask, BODY, "k")
        await server.asked.wait()
        await trio.testing.wait_all_tasks_blocked(0.002)
        start = trio.current_time()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True), trio.fail_after(1):
            await server.gone.wait()
        assert trio.current_time() - start < 0.1


async def test_twenty_cancels_leave_the_client_usable():
    """No cancelled request keeps the one connection for itself."""
    parts = [[None], [STREAM, None], [STREAM, chunk(WORD), None]]
    server = Server(*(parts[i % 3] for i in range(20)), http(OK))
    async with running(server) as provider:
        for i in range(20):
            server.asked = trio.Event()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(provider.ask, BODY, "k")
                await server.asked.wait()
                if i % 2:
                    await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
        assert (await provider.ask(BODY, "k")).assistant.text == "hi"


@pytest.mark.parametrize(
    ("base_url", "key", "words"),
    [
        ("http://models.example/v1", KEY, "not sent over plain http to models.example"),
        ("http://127.1/v1", KEY, "not sent over plain http"),
        ("http://localhost.example/v1", KEY, "not sent over plain http"),
        ("http://u:p@127.0.0.1/v1", None, "no user name"),
        ("ftp://127.0.0.1/", None, "http:// or https://"),
        ("127.0.0.1:80", None, "http:// or https://"),
        ("http://x:port/", None, "not a URL"),
        ("https://127.0.0.1/", "sk a", "the API key holds"),
        ("https://127.0.0.1/", "ské", "the API key holds"),
        ("https://127.0.0.1/", "sk\n", "the API key holds"),
    ],
)
async def test_an_address_or_key_that_is_unsafe_is_refused_before_anything_is_sent(
    base_url, key, words
):
    """No key in plain text over a network, and no address that means something else."""
    sent = httpx.MockTransport(lambda request: pytest.fail("something was sent"))
    async with httpx.AsyncClient(transport=sent) as client:
        provider = Provider(client, base_url, ProviderSpec(model="m"), key)
        error = await failing(provider)
    assert words in error.words
    assert (error.permanent, error.billed) == (True, False)
    assert "p@" not in error.words


async def test_a_query_in_the_address_is_kept():
    """Some servers want an api-version there."""
    seen = []

    def answer(request):
        seen.append(str(request.url))
        return httpx.Response(200, content=OK)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        base_url = "https://models.example/a/?v=1"
        await Provider(client, base_url, ProviderSpec(model="m"), KEY).ask(BODY, "k")
    assert seen == ["https://models.example/a/chat/completions?v=1"]


async def test_a_tls_failure_is_permanent():
    """A server that speaks no TLS will not learn it; nothing was sent to it."""

    async def plain(stream):
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, plain, 0)
        base_url = f"https://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        async with open_client(context) as client:
            error = await failing(Provider(client, base_url, ProviderSpec(model="m"), KEY))
        nursery.cancel_scope.cancel()
    assert (error.kind, error.permanent, error.billed) == ("tls", True, False)


class Failing(httpx.AsyncBaseTransport):
    """A transport that fails as it is told to."""

    def __init__(self, error):
        self.error = error

    async def handle_async_request(self, request):
        raise self.error


async def test_a_failure_inside_a_group_is_mapped():
    """Nurseries wrap what fails in them; the transport's failure is found in there."""
    inner = ExceptionGroup("b", [httpx.ReadError("cut"), httpx.ReadError("cut")])
    async with httpx.AsyncClient(transport=Failing(ExceptionGroup("a", [inner]))) as client:
        provider = Provider(client, "http://127.0.0.1", ProviderSpec(model="m"), KEY)
        assert (await failing(provider)).kind == "broken"


async def test_what_is_not_the_transports_goes_on_its_way():
    """A surprise inside a group is not mistaken for a provider's failure."""
    group = ExceptionGroup("a", [httpx.ReadError("cut"), KeyError("bug")])
    async with httpx.AsyncClient(transport=Failing(group)) as client:
        provider = Provider(client, "http://127.0.0.1", ProviderSpec(model="m"), KEY)
        with pytest.RaisesGroup(KeyError):
            await provider.ask(BODY, "k")


async def test_proxies_of_the_environment_are_ignored(monkeypatch):
    """No variable can lead the key elsewhere."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with running(Server(http(OK))) as provider:
        assert (await provider.ask(BODY, "k")).assistant.text == "hi"
