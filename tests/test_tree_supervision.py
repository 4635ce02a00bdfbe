"""Supervision: crashes and silence of a child are told to its parent, and touch nobody else."""

import struct
from typing import Any

import pytest
import trio
from grove import Grove, cancelled, check_quiet, played

from actors.events import Opened
from actors.outcome import Cancelled
from actors.testing.scripts import Call, Conversation, Say
from actors.wire import FRAME_MAX, StartChild, Traced, encode
from supervisor import child as child_module
from supervisor.spawned import Process
from supervisor.stop_socket import StopRequest, TellRequest
from supervisor.stop_socket import ask as ask_socket


@pytest.fixture(autouse=True)
def no_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "BACK_OFF_SECONDS", (0.0,))


def first_crashes(heard: Conversation) -> Any:
    """Of all questions the first one kills its process, again and again."""
    if heard.task != "question 0":
        return Say("done")
    return Call("list_files") if heard.turn == 0 else Call("crash")


@played
async def test_a_child_that_crashes_fails_in_words_and_alone(grove: Grove) -> None:
    """It is restarted as often as it may be; then its parent reads which signal killed it."""
    grove.family(3, first_crashes, "list_files", "crash")
    supervision = "max_restarts = 2\nrestart_period_s = 60"
    report = await grove.run(supervision=supervision)
    assert report.status == "completed"
    crashed, *others = grove.results("r1")
    assert others == ["completed: done", "completed: done"]
    words = "failed: crash loop: restarted more than 2 times in 60 s; the last process killed by"
    assert crashed.startswith(f"{words} SIGSEGV; findings so far:\n")
    assert "errors.log" in crashed
    assert [one.why for one in grove.events("r1.1.0", Opened)] == ["start", *["restart"] * 3]
    assert [one.why for one in grove.events("r1.1.1", Opened)] == ["start"]
    assert [one.why for one in grove.events("r1", Opened)] == ["start"]


@played
async def test_restarts_are_counted_on_disk(grove: Grove) -> None:
    """Another supervisor does not begin to count anew."""

    def child(heard: Conversation) -> Any:
        return [Call("crash"), Call("pause"), Call("crash")][heard.turn]

    grove.family(1, child, "crash", "pause")
    supervision = "max_restarts = 3\nrestart_period_s = 60"

    async def act() -> None:
        await grove.heard("tool_progress")
        grove.supervisor.kill()

    await grove.beside(act, supervision=supervision)
    assert len(grove.state("r1.1.0").head.restarts) == 3
    grove.go()
    await grove.another().resume("r1")
    (crashed,) = grove.results("r1")
    assert "restarted more than 3 times" in crashed
    assert len(grove.state("r1.1.0").head.restarts) == 4


@played
async def test_a_silent_child_is_stopped(grove: Grove) -> None:
    """Its parent reads why, and what it had found; the parent itself may be silent for longer."""
    grove.family(2, silent, "list_files", "dawdle", idle_s=0.3)
    report = await grove.run()
    assert report.status == "completed"
    outcome = grove.state("r1.1.0").outcome
    assert outcome
    assert outcome.interruption == Cancelled("no progress for 0.3 s", "idle")
    told, other = grove.results("r1")
    assert told.startswith("interrupted after 2 turns (no progress for 0.3 s); findings so far:\n")
    assert "errors.log" in told
    assert other == "completed: done"


def silent(heard: Conversation) -> Any:
    if heard.task != "question 0":
        return Say("done")
    return Call("dawdle") if heard.turn else Call("list_files")


@played
async def test_a_run_whose_children_speak_is_not_silent(grove: Grove) -> None:
    """What is heard of the runs below counts as progress."""

    def child(heard: Conversation) -> Any:
        return Call("nap", {"seconds": 0.2}) if heard.turn < 3 else Say("done")

    grove.family(1, child, "nap", lead_idle_s=0.5)
    report = await grove.run()
    assert report.output == "completed: done"


class Meddler:
    """An actor's channel on which something else comes behind its first words."""

    def __init__(self, channel: trio.SocketStream, extra: bytes) -> None:
        self._channel = channel
        self._extra = extra

    async def send_all(self, data: bytes) -> None:
        await self._channel.send_all(data)

    async def receive_some(self, most: int) -> bytes:
        data = await self._channel.receive_some(most)
        extra, self._extra = (self._extra, b"") if b"tool_progress" in data else (b"", self._extra)
        return data + extra

    async def aclose(self) -> None:
        await self._channel.aclose()


class Meddling:
    """A spawner that puts words into the mouth of one run."""

    def __init__(self, spawner: Any, victim: str, extra: bytes) -> None:
        self._spawner, self._victim, self._extra = spawner, victim, extra

    async def spawn(self, role: str, name: str, log_fd: int, env: Any = None) -> Process:
        process = await self._spawner.spawn(role, name, log_fd, env)
        if name == self._victim:
            process.channel = Meddler(process.channel, self._extra)
        return process


def framed(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (struct.pack("<I", FRAME_MAX + 1), "over the limit"),
        (framed(b"\xc1"), "cannot be read"),
        (framed(b"\x81\xa1t\xa4what"), "cannot be read"),
        (encode(Traced(b'{"run_id":"r1.1.1","type":"turn"}')), "another run's trace"),
        (encode(StartChild("1.0.1.0", "researcher", "x", None)), "a call '1.0.1.0'"),
        (encode(StartChild("../../x", "researcher", "x", None)), "a call '../../x'"),
    ],
    ids=["huge", "garbage", "unknown", "another run's", "grandchild's", "path"],
)
@played
async def test_a_child_that_talks_nonsense_fails_alone(
    grove: Grove, extra: bytes, words: str
) -> None:
    """Its parent reads so, with what it had found; siblings and supervisor live on."""
    spawner: Any = Meddling(grove.supervisor.spawner, "r1.1.0", extra)
    grove.supervisor.spawner = spawner
    grove.family(2, [Call("list_files"), Call("pause"), Say("done")], "list_files", "pause")

    async def act() -> None:
        await grove.heard("child_stopped", "r1")
        grove.go()

    report = await grove.beside(act)
    assert report.status == "completed"
    broken, other = grove.results("r1")
    assert other == "completed: done"
    assert broken.startswith("failed: the actor said what ")
    assert words in broken
    assert "errors.log" in broken
    assert grove.state("r1").head.children_nusd == sum(
        grove.state(run_id).spent_nusd for run_id in grove.runs()[1:]
    )
    assert grove.living() == set()


@played
async def test_a_child_starts_no_agent_that_is_not_its_own(grove: Grove) -> None:
    """Whatever an actor asks for, the supervisor goes by the configuration."""
    extra = encode(StartChild("9.0", "lead", "take over", None))
    spawner: Any = Meddling(grove.supervisor.spawner, "r1.1.0", extra)
    grove.supervisor.spawner = spawner
    grove.family(1, [Call("pause"), Say("done")], "pause")
    grove.go()
    report = await grove.run()
    assert report.output == "completed: done"
    assert grove.runs() == ["r1", "r1.1.0"]


@played
async def test_a_message_is_taken_at_the_next_turn(grove: Grove) -> None:
    """It goes to one run of the tree, and no other hears it."""

    def child(heard: Conversation) -> Any:
        return Call("pause") if heard.turn == 0 else Say(f"done after {heard.turn} turns")

    grove.family(2, child, "pause")

    async def act() -> None:
        await grove.heard("tool_progress", times=2)
        run_dir = grove.supervisor.state_dir.run_dir("r1")
        request = TellRequest("r1.1.0", "Mind the dates.")
        assert await trio.to_thread.run_sync(ask_socket, run_dir, request)
        while not grove.state("r1.1.0").told:  # noqa: ASYNC110  # no other sign
            await trio.sleep(0.005)
        grove.go()

    await grove.beside(act)
    assert grove.state("r1.1.0").told == [(1, "Mind the dates.")]
    assert grove.state("r1.1.1").told == []
    asked = {bill["key"]: bill["input_tokens"] for bill in grove.bills()}
    assert asked["r1.1.0:2"] > asked["r1.1.1:2"]


@played
async def test_a_message_that_comes_with_the_answer_is_answered_too(grove: Grove) -> None:
    """The run has just said its last word; it is asked again, so that nobody talks to a wall."""
    grove.agent("lead", lambda heard: Say(f"answer {heard.turn}"))

    async def act() -> None:
        while not grove.in_flight("r1"):  # noqa: ASYNC110  # no other sign
            await trio.sleep(0.005)
        run_dir = grove.supervisor.state_dir.run_dir("r1")
        request = TellRequest("r1", "And the dates?")
        assert await trio.to_thread.run_sync(ask_socket, run_dir, request)

    report = await grove.beside(act, latency_ms=300)
    assert (report.output, report.turns) == ("answer 1", 2)


@played
async def test_a_message_to_nobody_is_said_to_be_lost(grove: Grove) -> None:
    grove.family(1, [Call("pause"), Say("done")], "pause")

    async def act() -> None:
        await grove.heard("tool_progress")
        run_dir = grove.supervisor.state_dir.run_dir("r1")
        request = TellRequest("r1.7.0", "Are you there?")
        assert not await trio.to_thread.run_sync(ask_socket, run_dir, request)
        grove.go()

    await grove.beside(act)


@played
async def test_one_child_can_be_stopped_alone(grove: Grove) -> None:
    """Its parent reads what it had found, and its siblings go on."""

    def child(heard: Conversation) -> Say | Call:
        return [Call("list_files"), Call("pause"), Say("done")][heard.turn]

    grove.family(3, child, "list_files", "pause")

    async def act() -> None:
        await grove.heard("tool_progress", times=3)
        run_dir = grove.supervisor.state_dir.run_dir("r1")
        request = StopRequest("r1.1.1", "too dear")
        assert await trio.to_thread.run_sync(ask_socket, run_dir, request)
        await grove.heard("child_stopped", "r1")
        grove.go()

    report = await grove.beside(act)
    assert report.status == "completed"
    assert cancelled(grove, "r1.1.1") == Cancelled("too dear", "user")
    one, two, three = grove.results("r1")
    assert one == three == "completed: done"
    assert two.startswith("interrupted after 2 turns (too dear); findings so far:\n")
    assert "errors.log" in two
    check_quiet(grove)


@played
async def test_what_is_not_under_way_cannot_be_stopped(grove: Grove) -> None:
    """Neither a run that has ended, nor one that never was."""
    grove.family(2, [Call("pause"), Say("done")], "pause", lead_children_at_once=1)

    async def act() -> None:
        await grove.heard("tool_progress", times=1)
        run_dir = grove.supervisor.state_dir.run_dir("r1")
        for name in ("r1.1.1", "r1.9.9", "r2", "../r1"):
            assert not await trio.to_thread.run_sync(ask_socket, run_dir, StopRequest(name, "no"))
        grove.go()

    report = await grove.beside(act)
    assert report.status == "completed"
