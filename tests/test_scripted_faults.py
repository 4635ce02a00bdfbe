"""Faults at named turns, and the provider as a process of its own."""

import datetime
import email.utils
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import trio

from actors.testing.faults import Fault, FaultBook, FaultKind, check_faults
from actors.testing.provider import ProviderSettings, Ready, serve
from actors.testing.recent import Recent

pytestmark = pytest.mark.usefixtures("counting")

BODY: dict[str, Any] = {
    "model": "plan",
    "messages": [{"role": "user", "content": "Which file mentions a timeout?"}],
}
STREAM: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


class Lab:
    """One provider with faults at the first turn, and what it billed."""

    def __init__(self, client: httpx.AsyncClient, ledger: Path) -> None:
        self.client = client
        self._ledger = ledger

    async def post(self, key: str = "run:1", **more: Any) -> httpx.Response:
        headers = {"Idempotency-Key": key}
        return await self.client.post("/chat/completions", json=BODY | more, headers=headers)

    def bills(self) -> int:
        return len(self._ledger.read_bytes().splitlines())


Start = Callable[..., Awaitable[Lab]]


@pytest.fixture
async def lab(nursery: trio.Nursery, tmp_path: Path) -> AsyncIterator[Start]:
    """Start a provider with these faults."""
    labs: list[Lab] = []

    async def start(*faults: Fault) -> Lab:
        ledger = tmp_path / "bills"
        settings = ProviderSettings(faults=faults, ledger=str(ledger))
        url: str = await nursery.start(serve, settings)
        client = httpx.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=5)
        labs.append(Lab(client, ledger))
        return labs[-1]

    yield start
    for lab in labs:
        await lab.client.aclose()


def at_first(kind: str, **more: Any) -> Fault:
    return Fault(turn=1, kind=FaultKind(kind), **more)


@pytest.mark.parametrize(
    ("kind", "status", "words"),
    [
        ("429", 429, "rate_limit_exceeded"),
        ("insufficient_quota", 429, "insufficient_quota"),
        ("401", 401, "invalid_api_key"),
        ("503", 503, "<html>"),
        ("500", 500, "server_error"),
        ("html200", 200, "<html>"),
        ("stream_error", 200, '"code":503'),
        ("overflow", 400, "context_length_exceeded"),
        ("overflow_llama", 400, "exceed_context_size_error"),
    ],
)
async def test_refusal_fires_once_and_is_not_billed(
    lab: Start, kind: str, status: int, words: str
) -> None:
    """A fault that is a refusal costs nothing, and the next attempt is served."""
    here = await lab(at_first(kind))
    response = await here.post()
    assert response.status_code == status
    assert words in response.text
    assert here.bills() == 0
    assert (await here.post()).json()["usage"]["prompt_tokens"] > 0
    assert here.bills() == 1


@pytest.mark.parametrize("value", ["2", "0.5", "-1", "999999", "soon", ""])
async def test_retry_after_is_sent_word_for_word(lab: Start, value: str) -> None:
    """Every kind of Retry-After that servers send can be ordered."""
    here = await lab(at_first("429", retry_after=value))
    assert (await here.post()).headers["retry-after"] == value


async def test_retry_after_may_be_a_date_to_come(lab: Start) -> None:
    """``date+N`` is the HTTP date N seconds from the moment of the refusal."""
    here = await lab(at_first("503", retry_after="date+60"))
    value = (await here.post()).headers["retry-after"]
    left = email.utils.parsedate_to_datetime(value) - datetime.datetime.now(datetime.UTC)
    assert 50 < left.total_seconds() <= 60


@pytest.mark.parametrize("more", [{}, STREAM], ids=["whole", "stream"])
async def test_cut_closes_the_connection_in_the_body(lab: Start, more: dict[str, Any]) -> None:
    """The reply was made and is billed, but the client gets half of it."""
    here = await lab(at_first("cut"))
    with pytest.raises(httpx.RemoteProtocolError):
        await here.post(**more)
    assert here.bills() == 1
    assert (await here.post(**more)).status_code == 200


async def test_broken_stream_ends_without_a_finish_reason(lab: Start) -> None:
    """The body is well framed, so only the missing finish tells that the reply is not whole."""
    here = await lab(at_first("broken_stream"))
    text = (await here.post(**STREAM)).text
    assert text.startswith("data: {")
    assert "[DONE]" not in text
    assert '"finish_reason":"' not in text
    assert here.bills() == 1


@pytest.mark.parametrize("more", [{}, STREAM], ids=["whole", "stream"])
async def test_malformed_is_half_a_json(lab: Start, more: dict[str, Any]) -> None:
    """Status 200, billed, and no JSON."""
    here = await lab(at_first("malformed"))
    response = await here.post(**more)
    texts = response.text.split("data: ")[2:3] if more else [response.text]
    for text in texts:
        with pytest.raises(json.JSONDecodeError):
            json.loads(text)
    assert here.bills() == 1


@pytest.mark.parametrize("more", [{}, STREAM], ids=["whole", "stream"])
async def test_usage_can_be_missing_or_null(lab: Start, more: dict[str, Any]) -> None:
    """A whole reply that does not say what it cost is billed all the same."""
    here = await lab(at_first("no_usage"), at_first("null_usage"))
    assert '"usage"' not in (await here.post(**more)).text
    assert '"usage":null' in (await here.post(**more)).text
    assert '"prompt_tokens"' in (await here.post(**more)).text
    assert here.bills() == 3


async def test_timeout_never_answers(lab: Start) -> None:
    """The client's own time-out must end it; nothing is billed."""
    here = await lab(at_first("timeout"))
    here.client.timeout = httpx.Timeout(5, read=0.05)
    with pytest.raises(httpx.ReadTimeout):
        await here.post()
    here.client.timeout = httpx.Timeout(5)
    assert (await here.post()).status_code == 200
    assert here.bills() == 1


async def test_fault_belongs_to_a_turn_and_a_run(lab: Start) -> None:
    """Each run meets the fault as often as ordered, at its turn, whatever other runs do."""
    fault = Fault(turn=1, kind=FaultKind.SERVER_ERROR, times=2)
    here = await lab(fault)
    keys = ["a:1", "b:1", "a:2", "a:1", "b:1"]
    statuses = [(await here.post(key)).status_code for key in keys]
    assert statuses == [500, 500, 500, 200, 500]
    said = [{"role": "assistant", "content": "hm"}, {"role": "user", "content": "go on"}]
    later = await here.post("c:2", messages=BODY["messages"] + said)
    assert later.status_code == 200, "the second turn has no fault"


async def test_run_without_a_key_is_known_by_its_task(lab: Start) -> None:
    """Faults work for clients that send no Idempotency-Key."""
    here = await lab(at_first("500"))
    other = {"messages": [{"role": "user", "content": "Something else"}]}
    statuses = [(await here.post("", **more)).status_code for more in ({}, other, {}, other)]
    assert statuses == [500, 500, 200, 200]


async def test_flaky_has_its_faults_built_in(lab: Start) -> None:
    """The script comes with a 429 at its first turn."""
    here = await lab()
    statuses = [(await here.post(model="flaky")).status_code for _ in range(2)]
    assert statuses == [429, 200]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"turn": 1, "kind": "earthquake"}, "unknown kind 'earthquake'; the kinds are 429"),
        ({"turn": 0, "kind": "429"}, "count from 1"),
        ({"turn": 1, "kind": "429", "times": 0}, "count from 1"),
        ({"turn": 1, "kind": "429", "retry_after": "1\r\nX: y"}, "printable"),
        ({"turn": 1, "kind": "429", "retry_after": "date+x"}, "whole seconds"),
    ],
)
def test_impossible_fault_is_refused(fault: dict[str, Any], words: str) -> None:
    """A mistake is told with the fault's number."""
    with pytest.raises(ValueError, match=f"fault 2: .*{words}"):
        check_faults([at_first("429"), Fault(**fault)])


def test_fault_book_and_its_memory_are_bounded() -> None:
    """What was used longest ago is forgotten first."""
    recent: Recent[str, int] = Recent(2)
    recent.put("a", 1)
    recent.put("b", 2)
    assert recent.get("a", 0) == 1
    recent.put("c", 3)
    assert (recent.get("a", 0), recent.get("b", 0), recent.get("c", 0)) == (1, 0, 3)
    assert len(recent) == 2
    book = FaultBook()
    assert book.take([at_first("429")], 2, "r") is None


class Process:
    """The provider in a process of its own, spoken to over its channel."""

    def __init__(self, settings: bytes) -> None:
        self.channel, theirs = socket.socketpair()
        self.channel.settimeout(20)
        code = (
            "import sys; from actors.testing.provider import main; sys.exit(main(int(sys.argv[1])))"
        )
        arguments = [sys.executable, "-P", "-c", code, str(theirs.fileno())]
        self.popen = subprocess.Popen(arguments, pass_fds=[theirs.fileno()])
        theirs.close()
        self.channel.sendall(struct.pack("<I", len(settings)) + settings)

    def ready(self) -> Ready:
        data = b""
        while len(data) < 4 or len(data) < 4 + struct.unpack_from("<I", data)[0]:
            part = self.channel.recv(1024)
            assert part, "the provider ended without a word"
            data += part
        return msgspec.msgpack.decode(data[4:], type=Ready)

    def close(self) -> int:
        self.channel.close()
        return self.popen.wait(20)


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    """The processes of a test; none outlives it."""
    started: list[Process] = []
    yield started
    for process in started:
        process.channel.close()
        process.popen.kill()
        process.popen.wait()


@pytest.mark.slow
def test_process_serves_until_its_channel_closes(processes: list[Process]) -> None:
    """Settings go in, the address comes out, and the end of the channel is the end of it."""
    process = Process(msgspec.msgpack.encode(ProviderSettings(script="plan")))
    processes.append(process)
    url = process.ready().base_url
    assert httpx.get(f"{url}/models", trust_env=False, verify=False).status_code == 200
    os.kill(process.popen.pid, 2)
    assert httpx.get(f"{url}/models", trust_env=False, verify=False).status_code == 200
    assert process.close() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (b"\xc1", "malformed"),
        (msgspec.msgpack.encode({"faults": [{"turn": 1, "kind": "earthquake"}]}), "earthquake"),
        (msgspec.msgpack.encode({"script": "absent"}), "there is no script absent"),
        (msgspec.msgpack.encode({"ledger": "/absent/bills"}), "/absent/bills"),
    ],
)
def test_process_says_why_it_cannot_serve(
    processes: list[Process], settings: bytes, words: str
) -> None:
    """A mistake comes back in words, and the process ends with status 2."""
    process = Process(settings)
    processes.append(process)
    assert words in process.ready().error
    assert process.popen.wait(20) == 2
