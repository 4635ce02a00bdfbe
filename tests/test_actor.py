"""The actor's half of the channel: what it says, when it leaves, and what it does alone."""

import json
import os
import socket
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from world import World

from actors import actor, tool
from actors.actor import ALONE
from actors.journal import Journal
from actors.outcome import Cancelled, Status
from actors.testing.scripts import Call, Say
from actors.wire import (
    FRAME_MAX,
    Ended,
    FrameError,
    FromActor,
    Hello,
    Leaving,
    Refused,
    Start,
    Stop,
    Traced,
    encode,
    from_actor,
    to_actor,
)

SECONDS = 5.0


class Line:
    """The supervisor's end of a channel to an actor in this process."""

    def __init__(self, stream: trio.SocketStream, ended: trio.Event) -> None:
        self.stream = stream
        self.ended = ended
        self.heard: list[FromActor] = []
        self._decoder = from_actor()

    async def say(self, *frames: Start | Stop) -> None:
        await self.stream.send_all(b"".join(encode(frame) for frame in frames))

    async def hear(self, until: type[FromActor] | None = None) -> FromActor | None:
        """Listen until a frame of that kind, or to the end of the connection."""
        with trio.fail_after(SECONDS):
            while data := await self.stream.receive_some(65536):
                for frame in self._decoder.feed(data):
                    self.heard.append(frame)
                if until and isinstance(self.heard[-1], until):
                    return self.heard[-1]
        return None

    def traced(self) -> list[dict[str, Any]]:
        return [json.loads(frame.line) for frame in self.heard if isinstance(frame, Traced)]


@asynccontextmanager
async def actor_line() -> AsyncGenerator[Line, None]:
    """An actor's main in this loop, and our end of its channel."""
    ours, theirs = socket.socketpair()
    ended = trio.Event()

    async def main() -> None:
        assert await actor.act(theirs.detach()) == 0
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(main)
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        async with stream:
            yield Line(stream, ended)
        with trio.fail_after(SECONDS):
            await ended.wait()


async def test_an_actor_says_hello_its_trace_and_its_end(world: World) -> None:
    """In this order; the lines are those of the file, each once."""
    await world.provide("plan")
    async with actor_line() as line:
        await line.say(world.start())
        await line.hear(Ended)
        assert line.heard[0] == Hello(os.getpid(), 1)
        assert line.heard[-1] == Ended("completed")
        assert {type(frame) for frame in line.heard[1:-1]} == {Traced}
        assert line.traced() == world.lines()


async def test_the_end_is_on_disk_before_it_is_said(world: World) -> None:
    """Phase one: whoever hears Ended may rely on the record; the run is free when it leaves."""
    await world.provide([Say("hello")])
    async with actor_line() as line:
        await line.say(world.start())
        await line.hear(Ended)
        assert world.state.outcome
        await line.stream.aclose()
        with trio.fail_after(SECONDS):
            await line.ended.wait()
        Journal.open(world.run_dir).close()


async def test_an_actor_leaves_when_it_may(world: World) -> None:
    """Phase two: it waits for the end of the channel, so that all of a tree leave together."""
    await world.provide([Say("hello")])
    async with actor_line() as line:
        await line.say(world.start())
        await line.hear(Ended)
        await trio.testing.wait_all_tasks_blocked()
        assert not line.ended.is_set()
        await line.stream.aclose()
        with trio.fail_after(SECONDS):
            await line.ended.wait()


async def test_an_actor_waits_for_its_leave_no_longer_than_told(world: World) -> None:
    """A supervisor that hangs holds no process."""
    await world.provide([Say("hello")])
    start = world.start()
    async with actor_line() as line:
        await line.say(msgspec.structs.replace(start, shutdown_seconds=0.05))
        await line.hear(Ended)
        with trio.fail_after(SECONDS):
            await line.ended.wait()


def waiting(world: World) -> None:
    @tool(read_only=True)
    async def wait() -> str:
        """Wait."""
        await trio.sleep_forever()
        return ""

    world.offer(wait)


async def test_a_stop_ends_the_run_with_its_reason(world: World) -> None:
    await world.provide([Call("wait")])
    waiting(world)
    async with actor_line() as line:
        await line.say(world.start())
        await line.hear(Traced)
        await line.say(Stop("lunch", "boss"))
        assert await line.hear(Ended) == Ended("interrupted")
    assert world.state.outcome
    assert world.state.outcome.interruption == Cancelled("lunch", "boss")


async def test_a_stop_that_comes_with_the_start_is_kept(world: World) -> None:
    """Whatever is under way then: nothing is asked, and the run ends as cancelled."""
    await world.provide("plan", latency_ms=2000)
    async with actor_line() as line:
        await line.say(world.start(), Stop("never mind", "user"))
        assert await line.hear(Ended) == Ended("interrupted")
    assert world.bills() == []


async def test_an_actor_alone_stops_itself(world: World) -> None:
    """The end of the channel is a Stop, recorded as orphaned; its calls wait for a resume."""
    await world.provide([Call("wait")])
    waiting(world)
    async with actor_line() as line:
        await line.say(world.start())
        await line.hear(Traced)
        await line.stream.aclose()
    outcome = world.state.outcome
    assert outcome
    assert outcome.status is Status.INTERRUPTED
    assert outcome.interruption == Cancelled(ALONE, "orphaned")
    assert [call.ref for call in world.state.pending] == ["1.0"]


async def test_nothing_is_done_without_a_start(world: World) -> None:
    """A channel that is closed at once leaves no file."""
    async with actor_line() as line:
        await line.stream.aclose()
    assert list(world.run_dir.iterdir()) == []


async def test_a_stop_in_place_of_a_start_is_no_start(world: World) -> None:
    async with actor_line() as line:
        await line.say(Stop("what", "who"))
        assert await line.hear() is None
    assert line.heard == []


async def test_a_run_that_is_held_is_refused(world: World) -> None:
    """With the words of the journal; nothing is written."""
    await world.provide("plan")
    journal = Journal.open(world.run_dir)
    try:
        async with actor_line() as line:
            await line.say(world.start())
            last = await line.hear(Refused)
    finally:
        journal.close()
    assert isinstance(last, Refused)
    assert last.kind == "held"
    assert "run r1 is held by process" in last.words
    assert world.bills() == []


async def test_a_damaged_journal_is_refused(world: World) -> None:
    (world.run_dir / "journal.x1").write_bytes(b"not a journal")
    async with actor_line() as line:
        await line.say(world.start())
        last = await line.hear(Refused)
    assert isinstance(last, Refused)
    assert last.kind == "journal_corrupt"


async def test_tools_that_are_missing_fail_a_new_run(world: World) -> None:
    """A run that cannot be performed as configured has its ending on record."""
    await world.provide("plan")
    world.offer()
    tools = msgspec.structs.replace(world.spec.tools, names=("nothing",))
    world.change(tools=tools)
    async with actor_line() as line:
        await line.say(world.start())
        assert await line.hear(Ended) == Ended("failed")
    assert world.state.outcome
    assert "there is no tool nothing" in (world.state.outcome.error or "")


async def test_a_blocking_tool_that_overran_makes_the_actor_leave(world: World) -> None:
    """Only the end of its process stops it; the supervisor starts the next one."""
    release = threading.Event()

    @tool(read_only=True, timeout_s=0.02)
    def block() -> str:
        """Block."""
        release.wait(5)
        return ""

    await world.provide([Call("block"), Say("done")])
    world.offer(block)
    async with actor_line() as line:
        await line.say(world.start())
        last = await line.hear(Leaving)
        release.set()
    assert isinstance(last, Leaving)
    assert world.state.outcome is None
    assert world.state.leaving


async def test_a_supervisor_that_does_not_listen_holds_up_nothing(world: World) -> None:
    """Lines that find no room are dropped here and stand on disk; the run goes on to its end."""

    @tool(read_only=True)
    async def chatter(at: int) -> str:
        """Chatter."""
        return "x" * 1000

    calls = [[Call("chatter", {"at": n}) for n in range(500)] for _ in range(4)]
    await world.provide([*calls, Say("done")])
    world.change(prices=None)
    world.offer(chatter)
    async with actor_line() as line:
        line.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await line.say(world.start())
        with trio.fail_after(SECONDS):
            while world_ended(world.run_dir) is None:  # noqa: ASYNC110  # it tells nobody else
                await trio.sleep(0.01)
    assert world.lines()[-1]["type"] == "run_stopped"


def world_ended(run_dir: Path) -> bytes | None:
    path = run_dir / "trace.jsonl"
    data = path.read_bytes() if path.exists() else b""
    return data if b'"run_stopped"' in data else None


@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_frames_come_through_in_any_pieces(piece: int) -> None:
    """The channel may cut the bytes anywhere."""
    frames: list[FromActor] = [Hello(5, 1), Traced(b"{}" * 400), Ended("completed")]
    data = b"".join(encode(frame) for frame in frames)
    decoder = from_actor()
    got = [
        frame
        for start in range(0, len(data), piece)
        for frame in decoder.feed(data[start : start + piece])
    ]
    assert got == frames


@pytest.mark.parametrize(
    "data",
    [
        (FRAME_MAX + 1).to_bytes(4, "little"),
        b"\x01\x00\x00\x00\xc1",
        b"\x02\x00\x00\x00\x81\xa1",
        encode(Hello(1, 1)),
    ],
    ids=["huge", "garbage", "half", "wrong way"],
)
def test_what_is_no_frame_is_an_error(data: bytes) -> None:
    """Typed, and nothing is allocated for a length that lies."""
    with pytest.raises(FrameError):
        to_actor().feed(data)


def test_a_frame_over_the_limit_is_not_sent() -> None:
    with pytest.raises(FrameError, match="over the limit"):
        encode(Traced(bytes(FRAME_MAX + 1)))
