"""A run as its supervisor sees it: real processes, killed, stopped, and started again."""

import json
import os
import resource
import shutil
import signal
import socket
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from run_tools import is_alive
from trio.testing import wait_all_tasks_blocked
from world import World

from actors.events import Opened, UserMessage
from actors.journal import Journal
from actors.outcome import Cancelled, Outcome, Status
from actors.spec import Limits, ToolsSpec
from actors.testing.scripts import Call, Say
from actors.wire import Ended, FromActor, Hello, Leaving, Refused, StartChild, encode
from supervisor import burial
from supervisor import child as child_module
from supervisor.child import STILLBORN_MAX, Child
from supervisor.spawned import Exit, SpawnError
from supervisor.spawner import open_spawner

HERE = Path(__file__).parent
SECONDS = 15.0
DONE = Say("done")


class Nest:
    """Children in real processes, and what is heard of them."""

    def __init__(self, spawner: Any, world: World) -> None:
        self.spawner = spawner
        self.world = world
        self.told: defaultdict[str, trio.Event] = defaultdict(trio.Event)
        self.lines: list[bytes] = []

    def child(self, why: str = "start", seconds: float = 2.0, key: str | None = None) -> Child:
        start = msgspec.structs.replace(
            self.world.start(why), shutdown_seconds=seconds, api_key=key
        )
        return Child(self, start)

    async def run_child(self, parent: Child, frame: StartChild) -> str:
        await trio.lowlevel.checkpoint()
        return "this run has no children"

    async def acked(self, child: Child) -> None:
        await trio.lowlevel.checkpoint()

    def heard(self, run_id: str, line: bytes, /) -> None:
        assert run_id == self.world.run_id
        self.lines.append(line)
        self.told[json.loads(line)["type"]].set()

    async def run(
        self, child: Child, meanwhile: Callable[[Child], Any] | None = None
    ) -> Outcome | None:
        """Run a child to its end, with something else once a tool has told its progress."""
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:

                async def act() -> None:
                    await self.told["tool_progress"].wait()
                    if meanwhile:
                        meanwhile(child)

                nursery.start_soon(act)
                await child.run()
                nursery.cancel_scope.cancel()
        return self.world.state.outcome

    async def run_till_pid(self, child: Child) -> Outcome | None:
        """Run a child, and stop it once a tool has written a pid into the workspace."""
        pid = self.world.workspace / "pid"
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(child.run)
                while not (pid.exists() and pid.read_text()):  # noqa: ASYNC110  # no other sign
                    await trio.sleep(0.005)
                child.stop("enough", "user")
        return self.world.state.outcome


def use(world: World, *names: str) -> None:
    """Give the run these tools of ``run_tools``; without prices no actor builds an encoder."""
    world.change(
        prices=None,
        tools=ToolsSpec(
            names=names,
            modules=("run_tools",),
            search_path=(str(HERE),),
            workspace=str(world.workspace),
        ),
    )


@asynccontextmanager
async def nest(world: World) -> AsyncGenerator[Nest, None]:
    async with open_spawner("zygote", preload=("actors.actor",)) as spawner:
        yield Nest(spawner, world)


@pytest.fixture(autouse=True)
def no_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "BACK_OFF_SECONDS", (0.0,))


def epochs(world: World) -> list[str]:
    return [event.why for event in world.events if isinstance(event, Opened)]


def kill(child: Child) -> None:
    assert child.pid
    os.kill(child.pid, signal.SIGKILL)


async def test_a_run_ends_and_its_process_is_gone(world: World) -> None:
    """The listener gets the lines of the trace; nothing is left of the process."""
    await world.provide("plan")
    world.change(prices=None)
    async with nest(world) as here:
        child = here.child()
        outcome = await here.run(child)
        assert outcome
        assert outcome.status is Status.COMPLETED
        assert child.pid is None
        assert here.lines == (world.run_dir / "trace.jsonl").read_bytes().splitlines()
        opened = next(event for event in world.events if isinstance(event, Opened))
        assert not is_alive(opened.pid)


async def test_a_killed_actor_goes_on_in_the_next_process(world: World) -> None:
    """What was saved is not asked again, and the call is run again as the same call."""
    await world.provide([Call("wait"), DONE])
    use(world, "wait")
    async with nest(world) as here:
        outcome = await here.run(here.child(), kill)
    assert outcome == Outcome(Status.COMPLETED, output="done")
    assert world.results() == ["attempt 2"]
    assert epochs(world) == ["start", "restart"]
    assert len(world.bills()) == 2
    assert len(world.state.head.restarts) == 1
    assert [line["epoch"] for line in world.lines("run_resumed")] == [2]


async def test_a_killed_write_is_not_run_again(world: World) -> None:
    """Started at most once; the model is told that the outcome is not known."""
    await world.provide([Call("wait_and_write"), DONE])
    use(world, "wait_and_write")
    async with nest(world) as here:
        await here.run(here.child(), kill)
    assert len((world.workspace / "written").read_text().split()) == 1
    assert "It was NOT run again" in world.results()[0]


async def test_stop_reaches_a_tool(world: World) -> None:
    """One process, one reason, at once."""
    await world.provide([Call("wait")])
    use(world, "wait")
    async with nest(world) as here:
        began = 0.0

        def press(child: Child) -> None:
            nonlocal began
            began = trio.current_time()
            child.stop("user pressed Stop", "user")

        outcome = await here.run(here.child(), press)
        assert trio.current_time() - began < 0.5
    assert outcome == Outcome(Status.INTERRUPTED, Cancelled("user pressed Stop", "user"))
    assert epochs(world) == ["start"]


async def test_stop_reaches_a_program_of_a_tool(world: World) -> None:
    """The program's whole group is gone when the run has ended."""
    await world.provide([Call("linger")])
    use(world, "linger")

    async with nest(world) as here:
        outcome = await here.run_till_pid(here.child())
        assert outcome
        assert outcome.reason == "enough"
        assert not is_alive(int((world.workspace / "pid").read_text()))


async def test_stop_in_a_blocking_tool_ends_its_process(world: World) -> None:
    """The Stop is on record, the process leaves, and the next one records the ending."""
    await world.provide([Call("block")])
    use(world, "block")
    async with nest(world) as here:
        outcome = await here.run(here.child(), lambda child: child.stop("enough", "user"))
    assert outcome == Outcome(Status.INTERRUPTED, Cancelled("enough", "user"))
    assert epochs(world) == ["start", "resume"]
    assert world.state.head.restarts == ()


async def test_a_stubborn_actor_is_killed_after_the_grace(world: World) -> None:
    """A process that hears nothing any more ends as cancelled all the same."""
    await world.provide([Call("hold")])
    use(world, "hold")
    async with nest(world) as here:
        outcome = await here.run_till_pid(here.child(seconds=0.2))
    assert outcome == Outcome(Status.INTERRUPTED, Cancelled("enough", "user"))
    assert "Whether it took effect is not known" in world.results()[0]
    assert epochs(world) == ["start", "restart"]


async def test_a_call_that_kills_its_process_is_given_up(world: World) -> None:
    """Three times, then the model is told and the run goes on."""
    await world.provide([Call("die"), DONE])
    use(world, "die")
    async with nest(world) as here:
        outcome = await here.run(here.child())
    assert outcome
    assert outcome.status is Status.COMPLETED
    (words,) = world.results()
    assert words.startswith("This call ended the process 3 times, the last one killed by SIGKILL")
    assert epochs(world) == ["start", "restart", "restart", "restart"]


async def test_a_crash_loop_ends_the_run(world: World) -> None:
    """More restarts than the intensity allows, counted in the journal."""
    await world.provide([Call("die"), DONE])
    use(world, "die")
    world.change(max_restarts=1)
    async with nest(world) as here:
        outcome = await here.run(here.child())
    assert outcome
    assert outcome.error == (
        "crash loop: restarted more than 1 times in 60 s; the last process killed by SIGKILL"
    )


async def test_an_actor_that_never_opens_its_run_is_given_up(world: World) -> None:
    """After three of them it is recorded as failed, in words that name the log."""
    await world.provide("plan")
    world.change(
        prices=None,
        tools=ToolsSpec(modules=("dying_module",), search_path=(str(HERE),)),
    )
    async with nest(world) as here:
        outcome = await here.run(here.child())
    assert outcome
    assert outcome.status is Status.FAILED
    log = world.run_dir / "actor.log"
    assert outcome.error == (
        f"the actor's process exited with status 9 before it had opened the run, 3 times; see {log}"
    )


async def test_a_run_that_is_held_is_refused(world: World) -> None:
    """By the words of the journal; a second actor is not tried."""
    await world.provide("plan")
    journal = Journal.open(world.run_dir)
    try:
        async with nest(world) as here:
            child = here.child()
            await here.run(child)
    finally:
        journal.close()
    assert child.refused
    assert child.refused.kind == "held"
    assert world.bills() == []


async def test_kill_leaves_a_run_that_can_be_resumed(world: World) -> None:
    """No record of an ending; what was saved is there."""
    await world.provide([Call("wait"), DONE])
    use(world, "wait")
    async with nest(world) as here:
        assert await here.run(here.child(), Child.kill) is None
        assert epochs(world) == ["start"]
        outcome = await here.run(here.child("resume"))
    assert outcome
    assert outcome.status is Status.COMPLETED
    assert len(world.bills()) == 2


async def test_a_cancelled_program_stops_its_runs(world: World) -> None:
    """A cancel from outside is a Stop: recorded, its processes gone, and passed on."""
    await world.provide([Call("wait")])
    use(world, "wait")
    async with nest(world) as here:
        with trio.CancelScope() as scope:
            await here.run(here.child(), lambda child: scope.cancel())
        assert scope.cancelled_caught
        outcome = world.state.outcome
        assert outcome
        assert outcome.interruption == Cancelled("cancelled by the program", "program")
        opened = next(event for event in world.events if isinstance(event, Opened))
        assert not is_alive(opened.pid)


async def test_a_run_survives_its_zygote(world: World) -> None:
    """The actor dies with it; the run goes on in a process of the next zygote."""
    await world.provide([Call("wait"), DONE])
    use(world, "wait")
    async with nest(world) as here:
        zygote = here.spawner._way._life.pid
        outcome = await here.run(here.child(), lambda child: os.kill(zygote, signal.SIGKILL))
        assert here.spawner._way._life.pid != zygote
    assert outcome == Outcome(Status.COMPLETED, output="done")
    assert epochs(world) == ["start", "restart"]


async def test_a_supervisor_that_dies_orphans_no_run_for_good(world: World) -> None:
    """An actor whose channel ends records that, and a resume goes on."""
    await world.provide([Call("wait"), DONE])
    use(world, "wait")
    async with nest(world) as here:

        def leave(child: Child) -> None:
            assert child._talk
            nursery.start_soon(trio.aclose_forcefully, child._talk.process.channel)

        async with trio.open_nursery() as nursery:
            child = here.child()
            with pytest.raises(BaseExceptionGroup):
                await here.run(child, leave)
        outcome = world.state.outcome
        assert outcome
        assert outcome.interruption == Cancelled("the supervisor is gone", "orphaned")
        outcome = await here.run(here.child("resume"))
    assert outcome == Outcome(Status.COMPLETED, output="done")


KEY = "sk-do-not-tell-anybody"


async def test_the_key_is_nowhere_but_on_its_way(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in a file, an environment, a command line, nor within reach of a tool."""
    monkeypatch.setenv("A_KEY", KEY)
    monkeypatch.setenv("A_TOKEN", KEY)
    await world.provide([Call("spy"), Call("wait")])
    use(world, "spy", "wait")
    seen: list[bytes] = []

    def look_around(child: Child) -> None:
        zygote = here.spawner._way._life.pid
        paths = [f"/proc/{pid}/{n}" for pid in (child.pid, zygote) for n in ("environ", "cmdline")]
        seen.extend(Path(path).read_bytes() for path in paths)
        child.stop("seen", "user")

    async with open_spawner(
        "zygote", preload=("actors.actor",), drop_env=("A_KEY", "A_TOKEN")
    ) as spawner:
        here = Nest(spawner, world)
        await here.run(here.child(key=KEY), look_around)
    assert len(seen) == 4
    assert all(seen)
    files = [path.read_bytes() for path in world.run_dir.rglob("*") if path.is_file()]
    assert len(files) >= 4
    assert not [data for data in (*seen, *files) if KEY.encode() in data]
    assert "PATH=" in world.results()[0]


class FakeProcess:
    """A process that says what a test wants, over a real channel, and leaves."""

    def __init__(self, said: bytes = b"") -> None:
        ours, theirs = socket.socketpair()
        theirs.sendall(said)
        self._theirs = theirs
        self.channel = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        self.pid = 1
        self.kills = 0
        self.begin()

    def begin(self) -> None:
        self._theirs.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._theirs.close()
        self.channel.socket.close()

    def kill(self) -> None:
        self.kills += 1

    async def wait(self) -> Exit:
        await trio.lowlevel.checkpoint()
        self._theirs.close()
        return Exit(status=0)


class Frozen(FakeProcess):
    """A process that reads nothing and says no more, until it is killed."""

    def begin(self) -> None:
        self._dead = trio.Event()

    def kill(self) -> None:
        super().kill()
        self._theirs.close()
        self._dead.set()

    async def wait(self) -> Exit:
        await self._dead.wait()
        return Exit(signal=signal.SIGKILL)


class Immortal(FakeProcess):
    """A process that hangs in the kernel, where not even SIGKILL reaches it."""

    async def wait(self) -> Exit:
        await trio.sleep_forever()
        raise AssertionError


class FakeSpawner:
    """Makes the processes that it was given, then none."""

    def __init__(self, *processes: FakeProcess) -> None:
        self.processes = list(processes)

    async def spawn(
        self, role: str, name: str, log_fd: int, env: Mapping[str, str] | None = None
    ) -> Any:
        await trio.lowlevel.checkpoint()
        if not self.processes:
            raise SpawnError("no process could be made")
        return self.processes.pop(0)


def hello() -> FromActor:
    return Hello(1, 1)


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (b"\xff\xff\xff\xff", "crashed", "the actor said what cannot be understood"),
        (encode(hello()) + b"\x01\x00\x00\x00\xc1", "crashed", "cannot be understood"),
        (b"", "spawn", "no process could be made"),
    ],
    ids=["huge", "garbage", "silent"],
)
async def test_what_cannot_be_understood_ends_the_run_in_words(
    world: World, said: bytes, kind: str, words: str
) -> None:
    """No exception, no endless restart."""
    process = FakeProcess(said)
    child = Nest(FakeSpawner(process), world).child()
    with trio.fail_after(SECONDS):
        await child.run()
    assert child.refused
    assert child.refused.kind == kind
    assert words in child.refused.words


ENDED = encode(hello()) + encode(Ended("completed"))
HELD = encode(Refused("held", "run r1 is held by process 5"))


async def run_fakes(world: World, *processes: FakeProcess, why: str = "start") -> Child:
    """A child that these processes perform, one after the other."""
    child = Nest(FakeSpawner(*processes), world).child(why, seconds=0.05)
    try:
        with trio.fail_after(SECONDS):
            await child.run()
    finally:
        for process in processes:
            process.close()
    return child


async def test_what_is_held_for_a_moment_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was ours is gone on with; one that was never ours is refused at once."""
    monkeypatch.setattr(child_module, "HELD_PAUSE_SECONDS", 0.0)
    crashed = FakeProcess(encode(hello()))
    child = await run_fakes(
        world, crashed, FakeProcess(HELD), FakeProcess(HELD), FakeProcess(ENDED)
    )
    assert child.refused is None
    left = FakeProcess(encode(hello()) + encode(Leaving("a tool blocks")))
    child = await run_fakes(world, left, FakeProcess(HELD), FakeProcess(ENDED))
    assert child.refused is None
    child = await run_fakes(world, FakeProcess(HELD), FakeProcess(ENDED), why="resume")
    assert child.refused
    assert child.refused.kind == "held"


async def test_no_room_for_the_record_of_a_failure_is_told_as_no_room(world: World) -> None:
    """A tree pauses for that, and would go on without this child for anything else."""
    full = FakeProcess(encode(Refused("disk_full", "disk full; make room")))
    child = await run_fakes(world, *(FakeProcess(b"") for _ in range(STILLBORN_MAX)), full)
    assert child.refused == Refused("disk_full", "disk full; make room")
    other = FakeProcess(encode(Refused("disk", "an I/O error")))
    child = await run_fakes(world, *(FakeProcess(b"") for _ in range(STILLBORN_MAX)), other)
    assert child.refused
    assert child.refused.kind == "crashed"
    assert "before it had opened the run" in child.refused.words


async def test_what_is_held_for_long_is_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tries have an end, which those of an earlier time do not bring nearer."""
    monkeypatch.setattr(child_module, "HELD_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(child_module, "HELD_SECONDS_MAX", 0.0)
    said = [encode(hello()), HELD, encode(hello()), HELD, HELD]
    child = await run_fakes(world, *map(FakeProcess, said), FakeProcess(ENDED))
    assert child.refused
    assert child.refused.kind == "held"


@pytest.mark.parametrize("how", ["missing", "folder", "descriptors"])
async def test_a_log_that_cannot_be_opened_is_told_in_words(world: World, how: str) -> None:
    """The run is refused as one for which there is no process; nothing else of the tree ends."""
    if how == "missing":
        shutil.rmtree(world.run_dir)
    if how == "folder":
        (world.run_dir / "actor.log").mkdir()
    process = FakeProcess(ENDED)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if how == "descriptors":
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        child = await run_fakes(world, process)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert child.refused
    assert child.refused.kind == "spawn"
    assert f"cannot open {world.run_dir / 'actor.log'}: " in child.refused.words


async def test_a_stop_to_an_actor_that_reads_nothing_kills_it(world: World) -> None:
    """After the grace, though the channel is full and the Stop never leaves."""
    process = Frozen(encode(hello()))
    child = Nest(FakeSpawner(process), world).child(seconds=0.05)

    async def fill_and_stop() -> None:
        while child.tell("x" * 16_000, "somebody"):
            await wait_all_tasks_blocked()
        child.stop("enough", "user")

    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child.run)
            await wait_all_tasks_blocked()
            nursery.start_soon(fill_and_stop)
    assert process.kills


async def test_a_stop_comes_before_a_start_that_nobody_reads(world: World) -> None:
    """The process is killed after the grace, and not after the time that a start has."""
    world.change(system="x" * 4_000_000)
    process = Frozen()
    child = Nest(FakeSpawner(process), world).child(seconds=0.05)
    child.stop("enough", "user")
    with trio.fail_after(SECONDS):
        await child.run()
    assert process.kills


async def test_a_process_that_reads_no_start_is_killed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that died before it had opened the run; three of them are enough."""
    monkeypatch.setattr(child_module, "START_SECONDS_MAX", 0.01)
    world.change(system="x" * 4_000_000)
    processes = [Frozen() for _ in range(3)]
    child = await run_fakes(world, *processes)
    assert all(process.kills for process in processes)
    assert child.refused
    assert child.refused.kind == "crashed"


async def test_a_process_that_nothing_ends_is_left_to_its_spawner(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The run has its ending, the tree goes on, and the log says what is left."""
    monkeypatch.setattr(burial, "EXIT_SECONDS_MAX", 0.01)
    monkeypatch.setattr(burial, "KILLED_SECONDS_MAX", 0.01)
    process = Immortal(ENDED)
    child = await run_fakes(world, process)
    assert child.refused is None
    assert process.kills == 1
    assert "was killed, and is not gone after 0.01 s" in caplog.text


@pytest.mark.slow
async def test_a_deadline_holds_for_a_tool_that_lets_nothing_else_run(world: World) -> None:
    """Neither its own time nor the actor's Stop reaches it: the supervisor ends it within grace."""
    await world.provide([Call("spin")])
    use(world, "spin")
    world.limit(deadline_seconds=0.5)
    async with nest(world) as here:
        began = trio.current_time()
        outcome = await here.run(here.child(seconds=0.3))
        took = trio.current_time() - began
    reason = "the deadline of 0.5 s is reached"
    assert outcome == Outcome(Status.INTERRUPTED, Cancelled(reason, "deadline"))
    assert took < 0.5 + 0.3 + 1.0, "the last process, which records the ending, has to start too"
    assert epochs(world) == ["start", "restart"]


@pytest.mark.parametrize(("worked", "ended"), [(59.99, True), (30.0, False)])
async def test_a_deadline_counts_what_was_worked_before(
    world: World, monkeypatch: pytest.MonkeyPatch, worked: float, ended: bool
) -> None:
    """A process that says nothing more has what the journal leaves it of the limit."""
    world.limit(deadline_seconds=0.01)  # It was raised since, which only the journal knows.
    opened = Opened(
        schema=1, run_id="r1", root="r1", agent="lead", epoch=1, pid=1, host="", boot_id="",
        durability="process", code_version="", config_digest="", why="start", tools={},
        limits=Limits(deadline_seconds=60.0), at=1000.0,
    )  # fmt: skip
    journal = Journal.open(world.run_dir)
    journal.begin(opened)
    journal.write(opened, UserMessage(text="hurry", who="boss", at=1000.0 + worked))
    journal.close()
    process = Frozen(encode(hello()))
    monkeypatch.setattr(burial, "EXIT_SECONDS_MAX", 0.01)
    with trio.move_on_after(0.1) as limit:
        await run_fakes(world, process, why="resume")
    assert limit.cancelled_caught is not ended
