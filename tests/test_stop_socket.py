"""The socket of a running supervisor: whatever a client does, the tree can still be reached."""

import socket
from pathlib import Path

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from supervisor.stop_socket import REQUEST_MAX, SOCKET, StopRequest, ask, listen, listens

STOP = StopRequest("r1", "lunch")


class FakeTree:
    """A tree with one run, which remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def stop_run(self, run_id: str, reason: str, who: str) -> bool:
        self.asked.append(reason)
        return run_id == "r1"

    def tell(self, run_id: str, text: str, who: str) -> bool:
        self.asked.append(text)
        return True


async def reached(folder: Path, request: StopRequest = STOP) -> bool:
    return await trio.to_thread.run_sync(ask, folder, request)


async def connect(folder: Path) -> trio.SocketStream:
    return await trio.open_unix_socket(str(folder / SOCKET))


async def talk(folder: Path, data: bytes) -> bytes:
    """Say something and hang up the sending half; the answer."""
    async with await connect(folder) as client:
        await client.send_all(data)
        await client.send_eof()
        return await client.receive_some()


async def test_a_client_that_only_looks_ends_nothing(tmp_path: Path, nursery: trio.Nursery) -> None:
    """As ``ps`` does: it connects and closes, any number of times."""
    tree = FakeTree()
    await nursery.start(listen, tmp_path, tree)
    for _ in range(20):
        assert await trio.to_thread.run_sync(listens, tmp_path)
    assert await reached(tmp_path)
    assert tree.asked == ["lunch"]


async def test_a_client_that_leaves_before_its_answer_ends_nothing(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    """What it asked for is done, and the next one is answered."""
    tree = FakeTree()
    await nursery.start(listen, tmp_path, tree)
    # In one go, so that nobody has a turn meanwhile.
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / SOCKET))
        client.sendall(b'{"type":"tell","run_id":"r1","text":"hello"}\n')
    await wait_all_tasks_blocked()
    assert tree.asked == ["hello"]
    assert await reached(tmp_path)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\n",
        b"\xff\xfe\x00\n",
        b"[" * 16_000 + b"\n",
        b'{"type":"tell","run_id":"r1","text":"\\ud800"}\n',
        b'{"type":"fly","run_id":"r1"}\n',
        msgspec.json.encode(STOP),
        b"x" * (REQUEST_MAX + 10_000) + b"\n",
    ],
    ids="nothing half empty binary deep surrogate unknown cut long".split(),  # noqa: SIM905
)
async def test_what_cannot_be_understood_is_refused(
    tmp_path: Path, nursery: trio.Nursery, data: bytes
) -> None:
    """In a word, without an effect; the next client is heard."""
    tree = FakeTree()
    await nursery.start(listen, tmp_path, tree)
    try:
        assert await talk(tmp_path, data) in (b"refused\n", b"")
    except trio.BrokenResourceError:
        assert len(data) > REQUEST_MAX, "it was cut off in the middle of what is too long"
    assert tree.asked == []
    assert await reached(tmp_path)


async def test_a_run_that_is_not_there_is_said_so(tmp_path: Path, nursery: trio.Nursery) -> None:
    """No success is reported for what was not done."""
    await nursery.start(listen, tmp_path, FakeTree())
    assert not await reached(tmp_path, StopRequest("r9", "lunch"))


async def test_what_a_dead_supervisor_left_is_replaced(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    """A socket file behind which nobody listens."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / SOCKET))
    assert not listens(tmp_path)
    await nursery.start(listen, tmp_path, FakeTree())
    assert await reached(tmp_path)
