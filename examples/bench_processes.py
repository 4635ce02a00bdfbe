"""Whole processes: spawn, memory, kill and resume, Stop."""

import os
import signal
import time
from pathlib import Path

import msgspec
import trio
from bench_measure import ROUNDS, median, memory_kib, row

from actors.events import Opened
from supervisor import StateDir, load_config, open_supervisor
from supervisor.config import Config
from supervisor.supervisor import Supervisor

CONFIG = """
[run]
agent = "lead"
task = "Wait."
[provider]
kind = "scripted"
script = "{script}"
latency_ms = {latency}
[agents.lead]
tools = ["{tool}"]
[tools.bench]
module = "bench_tools"
[state]
durability = "{durability}"
"""
HEARD_SECONDS_MAX = 30
PROGRESS, STOPPED = b'"tool_progress"', b'"run_stopped"'


class Ear:
    """Waits for a trace line with certain words in it."""

    def __init__(self) -> None:
        self._wanted = b""
        self._heard = trio.Event()

    def listen(self, run_id: str, line: bytes) -> None:
        """What a supervisor is given for its listener."""
        if self._wanted and self._wanted in line:
            self._heard.set()

    def expect(self, words: bytes) -> None:
        """Forget what was heard, and listen for these words from now on."""
        self._wanted, self._heard = words, trio.Event()

    async def heard(self) -> None:
        """Wait for them; raises trio.TooSlowError."""
        with trio.fail_after(HEARD_SECONDS_MAX):
            await self._heard.wait()


class Life(msgspec.Struct, frozen=True):
    """One run that was killed, and stopped: seconds, and memory in KiB."""

    opened: float
    hello: float
    idle_kib: int
    reopened: float
    resumed: float
    stop: float


async def process_section(folder: Path) -> None:
    """All of it under one supervisor."""
    ear = Ear()
    begun = time.perf_counter()
    async with open_supervisor(StateDir(folder / "state"), listener=ear.listen) as supervisor:
        row("supervisor and zygote ready", f"{1000 * (time.perf_counter() - begun):.0f} ms wall")
        spawns = [await spawn(supervisor) for _ in range(4 * ROUNDS)]
        row("spawn until the process is known", f"{1000 * median(spawns):.1f} ms")
        waiting = config(folder, "slow", "scan_archive")
        life_rows([await live(supervisor, waiting, ear) for _ in range(ROUNDS)])
        slow = config(folder, "runaway", "list_files", latency=5000)
        stops = [await stop_in_flight(supervisor, slow, ear) for _ in range(ROUNDS)]
        row("Stop with a request in flight, heard here", in_ms(stops), "<= 10 ms")


def config(
    folder: Path, script: str, tool: str, latency: int = 0, durability: str = "process"
) -> Config:
    """A run of one agent with one tool."""
    path = folder / "bench.toml"
    path.write_text(CONFIG.format(script=script, tool=tool, latency=latency, durability=durability))
    return load_config(path)


async def spawn(supervisor: Supervisor) -> float:
    """Seconds until a new process is known; it is killed again."""
    begun = time.perf_counter()
    process = await supervisor.spawner.spawn("actors.actor:main", "bench", 2)
    await process.channel.send_all(b"")
    spawned = time.perf_counter() - begun
    process.kill()
    await trio.aclose_forcefully(process.channel)
    await process.wait()
    return spawned


async def live(supervisor: Supervisor, waiting: Config, ear: Ear) -> Life:
    """Start a run that waits in a tool, kill its actor, and stop the next one."""
    ear.expect(PROGRESS)
    async with trio.open_nursery() as nursery:
        begun, called = time.perf_counter(), time.time()
        nursery.start_soon(supervisor.run, waiting)
        await ear.heard()
        hello = time.perf_counter() - begun
        (child,) = supervisor.children()
        assert child.pid
        await trio.sleep(0.3)
        idle_kib = memory_kib(child.pid)
        ear.expect(PROGRESS)
        begun, killed = time.perf_counter(), time.time()
        os.kill(child.pid, signal.SIGKILL)
        await ear.heard()
        resumed = time.perf_counter() - begun
        events = supervisor.state_dir.events(child.run_id)
        first, second = (event.at for event in events if isinstance(event, Opened))
        ear.expect(STOPPED)
        begun = time.perf_counter()
        child.stop("bench", "bench")
        await ear.heard()
        stop = time.perf_counter() - begun
    return Life(first - called, hello, idle_kib, second - killed, resumed, stop)


def life_rows(lives: list[Life]) -> None:
    """How long everything takes, and what an actor holds."""
    row("run() until its actor has opened it", in_ms([one.opened for one in lives]), "<= 10 ms")
    reopened = in_ms([one.reopened for one in lives])
    row("SIGKILL until the next actor has opened it", reopened, "<= 20 ms")
    row("run() to a tool's first word, one turn", in_ms([one.hello for one in lives]))
    idle = median([one.idle_kib for one in lives]) / 1024
    row("private memory, one turn done, in a tool", f"{idle:.1f} MiB", "<= 3.5")
    row("SIGKILL to the tool running again", in_ms([one.resumed for one in lives]))
    stop = in_ms([one.stop for one in lives])
    row("Stop to tool dead and record written, heard here", stop, "<= 10 ms")


async def stop_in_flight(supervisor: Supervisor, slow: Config, ear: Ear) -> float:
    """Seconds from a Stop to its record, while the model is asked."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.run, slow)
        await trio.sleep(0.4)
        (child,) = supervisor.children()
        ear.expect(STOPPED)
        begun = time.perf_counter()
        child.stop("bench", "bench")
        await ear.heard()
        return time.perf_counter() - begun


def in_ms(seconds: list[float]) -> str:
    """The median, for the table."""
    return f"{1000 * median(seconds):.1f} ms"
