"""The scripted provider's server: what it refuses, what it survives, and when it lets go."""

import json
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from scripted_client import TASK, Provide, ask, body

from actors.testing import Conversation, Say, script, server
from actors.testing.provider import ProviderSettings, serve
from actors.testing.scripts import ScriptError

pytestmark = pytest.mark.usefixtures("counting")

CALL = {"id": "c1", "type": "function", "function": {"name": "list_files", "arguments": "{}"}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "x"}


@pytest.mark.parametrize(
    ("request_body", "words"),
    [
        (b"", "parse"),
        (b'{"model":"plan"', "parse"),
        (b"[" * 100_000, "parse"),
        (b'{"model":"plan","messages":"hello"}', "Expected `array`"),
        (b'{"model":"plan","messages":[]}', "empty"),
        (b'{"model":"plan","messages":[{"role":"robot"}]}', "no role"),
        (b'{"model":"plan","messages":[{"role":"user","content":7}]}', "parse"),
        (b'{"model":"plan","messages":[{"role":"user","content":"\\ud800"}]}', "parse"),
        (b'{"model":"plan","messages":[{"role":"user"}],"tools":[7]}', "parse"),
        (b'{"model":"plan","messages":[{"role":"user"}],"max_tokens":-1}', "at least 1"),
        (b'{"model":"plan","messages":[{"role":"tool","content":"x"}]}', "'tool_calls'"),
    ],
)
async def test_bad_request_is_refused_in_words(
    provide: Provide, request_body: bytes, words: str
) -> None:
    """A request that no provider would take is a 400, and the connection goes on."""
    client = await provide()
    response = await client.post("/chat/completions", content=request_body)
    assert response.status_code == 400
    assert words in response.json()["error"]["message"]
    await ask(client, body())


async def test_call_without_its_result_is_refused(provide: Provide) -> None:
    """An impossible transcript is caught here as it would be by a real provider."""
    client = await provide()
    for messages in ([CALLED], [CALLED, TASK, RESULT], [CALLED, RESULT, RESULT]):
        response = await client.post("/chat/completions", json=body(*messages))
        assert response.status_code == 400
        assert "tool_calls" in response.json()["error"]["message"]


async def test_content_may_be_a_list_of_parts(provide: Provide) -> None:
    """Text in parts counts and reads like text in one."""
    client = await provide()
    parts = [{"type": "text", "text": "Which file "}, {"type": "text", "text": "mentions"}]
    split = {"model": "plan", "messages": [{"role": "user", "content": parts}]}
    joined = {"model": "plan", "messages": [{"role": "user", "content": "Which file mentions"}]}
    assert (await ask(client, split))["usage"] == (await ask(client, joined))["usage"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/chat/completions", 405), ("POST", "/models", 405), ("GET", "/nothing", 404)],
)
async def test_other_paths_and_methods(
    provide: Provide, method: str, path: str, status: int
) -> None:
    """What is not served is said to be so."""
    client = await provide()
    assert (await client.request(method, path)).status_code == status


async def test_unknown_model_is_not_found(provide: Provide) -> None:
    """Without a default script, a model that is no script is the API's model_not_found."""
    client = await provide()
    response = await client.post("/chat/completions", json=body(model="gpt-9"))
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"


async def test_script_that_raises_is_a_server_error(provide: Provide) -> None:
    """A mistake in a script ends one request, not the provider."""

    @script("test-raises")
    def raises(conversation: Conversation) -> Say:
        return Say(conversation.results[0])

    client = await provide()
    response = await client.post("/chat/completions", json=body(model="test-raises"))
    assert response.status_code == 500
    assert "test-raises" in response.json()["error"]["message"]
    await ask(client, body())


async def test_client_that_hangs_up_within_the_latency_is_not_billed(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    """A request is billed when its reply is computed, and then only."""
    ledger = tmp_path / "bills"
    settings = ProviderSettings(latency_ms=60_000, ledger=str(ledger))
    url: str = await nursery.start(serve, settings)
    stream = await trio.open_tcp_stream("127.0.0.1", httpx.URL(url).port or 0)
    async with stream:
        await stream.send_all(raw(json.dumps(body()).encode()))
        await stream.send_eof()
        with trio.fail_after(5):
            assert await stream.receive_some() == b"", "it hangs up too, well before a minute"
    assert ledger.read_bytes() == b""


async def test_latency_comes_before_the_reply(provide: Provide) -> None:
    """Each reply is late by at least the latency."""
    client = await provide(latency_ms=20)
    started = trio.current_time()
    await ask(client, body())
    assert trio.current_time() - started >= 0.02


def raw(content: bytes, *headers: bytes) -> bytes:
    lines = [b"POST /v1/chat/completions HTTP/1.1", b"Host: x", *headers]
    lines.append(b"Content-Length: %d" % len(content))
    return b"\r\n".join(lines) + b"\r\n\r\n" + content


async def test_hostile_http_is_refused_or_dropped(nursery: trio.Nursery) -> None:
    """Garbage, endless headers and bodies over the limit end that connection and no other."""
    url: str = await nursery.start(serve, ProviderSettings())
    port = httpx.URL(url).port or 0

    async def answer_to(data: bytes) -> bytes:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            await stream.send_all(data)
            with trio.fail_after(5):
                return await stream.receive_some()

    content = json.dumps(body()).encode()
    assert b" 400 " in await answer_to(b"\x16\x03\x01 garbage\r\n\r\n")
    assert b" 431 " in await answer_to(b"GET / HTTP/1.1\r\nA: " + b"x" * 100_000)
    assert b" 100 " in await answer_to(raw(content, b"Expect: 100-continue").partition(b"{")[0])
    assert b" 200 " in await answer_to(raw(content))
    assert (await answer_to(raw(content) + raw(content))).count(b" 200 ") >= 1


async def test_connection_is_kept_alive(nursery: trio.Nursery) -> None:
    """Many requests go over one connection, also when they arrive together."""
    url: str = await nursery.start(serve, ProviderSettings())
    stream = await trio.open_tcp_stream("127.0.0.1", httpx.URL(url).port or 0)
    async with stream:
        await stream.send_all(raw(json.dumps(body()).encode()) * 5)
        received = b""
        with trio.fail_after(5):
            while received.count(b'"cached_tokens"') < 5:
                received += await stream.receive_some()
    assert received.count(b"HTTP/1.1 200") == 5


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"script": "absent"}, "no script absent; the scripts are"),
        ({"latency_ms": -1}, "negative"),
        ({"window_tokens": -1}, "negative"),
        ({"modules": ("absent_module",)}, "absent_module"),
    ],
)
async def test_impossible_settings_are_refused_at_the_start(
    settings: dict[str, Any], words: str
) -> None:
    """A mistake is told before the first request."""
    with pytest.raises((ValueError, ScriptError), match=words):
        await serve(ProviderSettings(**settings))


async def test_listeners_may_be_given() -> None:
    """Whoever owns a listening socket can hand it over."""
    bound = socket.create_server(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(bound))
    async with trio.open_nursery() as nursery:
        url: str = await nursery.start(serve, ProviderSettings(), [listener])
        assert url == f"http://127.0.0.1:{port}/v1"
        nursery.cancel_scope.cancel()


async def test_body_over_the_limit_is_refused(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal arrives although the rest of the body is never read as a request."""
    monkeypatch.setattr(server, "BODY_MAX", 1000)
    url: str = await nursery.start(serve, ProviderSettings())
    async with await trio.open_tcp_stream("127.0.0.1", httpx.URL(url).port or 0) as stream:
        await stream.send_all(raw(b"x" * 100_000))
        with trio.fail_after(5):
            assert b" 413 " in await stream.receive_some()


@pytest.mark.parametrize("sent", [b"", b"POST / HT", b"POST / HTTP/1.1\r\nHost: x\r\n"])
async def test_connection_that_sends_no_whole_request_is_closed(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """An idle client, or one that stops in the middle, does not hold its connection for ever."""
    monkeypatch.setattr(server, "IDLE_SECONDS", 0.02)
    url: str = await nursery.start(serve, ProviderSettings())
    async with await trio.open_tcp_stream("127.0.0.1", httpx.URL(url).port or 0) as stream:
        await stream.send_all(sent)
        with trio.fail_after(5):
            assert await stream.receive_some() == b""


async def test_ledger_that_cannot_be_written_ends_the_provider() -> None:
    """A reply that cannot be billed is not given, and nobody takes it for a lost client."""
    settings = ProviderSettings(script="plan", ledger="/dev/full")

    async def pay() -> None:
        async with trio.open_nursery() as nursery:
            url: str = await nursery.start(serve, settings)
            async with await trio.open_tcp_stream("127.0.0.1", httpx.URL(url).port or 0) as stream:
                await stream.send_all(raw(json.dumps(body()).encode()))
                with trio.fail_after(5):
                    assert await stream.receive_some() == b""

    with pytest.raises(ExceptionGroup) as caught:
        await pay()
    assert caught.group_contains(OSError, match="No space")
