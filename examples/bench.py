"""Measures what the harness itself costs, and prints one table.

    python examples/bench.py [SECTION ...]

Method: the scripted provider runs in a process of its own over a loopback socket, with no latency;
each measured run is performed in a freshly forked process, so that nothing is warm but the code.
CPU is that process's own user and system time, wall is what passed. Every figure is the median of
``ROUNDS`` rounds; where two things are compared, they take turns within a round and the ratio is
the median of the rounds' ratios. ``power`` waits for the disk twice a turn, so its wall is the
disk's.
"""

import gc
import json
import os
import platform
import resource
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import trio

from actors.catalogue import Catalogue
from actors.estimate import counter_for
from actors.events import Asked, Finished, Opened, Replied, Started
from actors.journal import JOURNAL, read_events
from actors.messages import Assistant, Nature, ResultKind, ToolCall
from actors.money import Prices, Usage
from actors.opening import open_run
from actors.record import Record
from actors.request import request_body
from actors.spec import Limits, ProviderSpec, RunSpec, ToolsSpec
from actors.state import fold
from actors.testing.provider import ProviderSettings, serve
from actors.tokens import encoding
from actors.transcript import Transcript
from actors.wire import Start
from supervisor import StateDir, load_config, open_supervisor

ROUNDS = 5
TOOLS = '''
import subprocess
import trio
from actors import tool, ToolContext

@tool
async def list_files() -> str:
    """List the files."""
    return "x" * 200

@tool(read_only=True, timeout_s=600)
async def scan_archive(context: ToolContext) -> str:
    """Wait in a process of its own."""
    context.progress("started")
    await context.run_process(["sleep", "600"], timeout_s=600)
    return ""
'''
rows: list[tuple[str, str, str]] = []


def row(what: str, figure: str, goal: str = "") -> None:
    """Print and keep one line of the table."""
    rows.append((what, figure, goal))
    print(f"{what:<62}  {figure:<34}  {goal}", flush=True)


def median(values: list[float]) -> float:
    """The median, by which every figure here is quoted."""
    return statistics.median(values)


def in_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do something in a forked process and return what it measured."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reader)
            # As in an actor, whose zygote has frozen what they share.
            gc.freeze()
            os.write(writer, json.dumps(work()).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(data)


@contextmanager
def provider(**settings: Any) -> Generator[str]:
    """A scripted provider in a process of its own; yields its base URL."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                url: str = await nursery.start(serve, ProviderSettings(**settings))
                os.write(writer, url.encode())

        os.close(reader)
        trio.run(main)
    os.close(writer)
    url = os.read(reader, 1000).decode()
    os.close(reader)
    try:
        yield url
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def start_of(folder: Path, url: str, turns: int, durability: str) -> Start:
    """A run of so many turns, each with one call of a write tool that returns 200 bytes."""
    run_dir = folder / f"r{time.monotonic_ns()}"
    run_dir.mkdir()
    spec = RunSpec(
        agent="lead",
        task="List the files.",
        system="You are measured.",
        provider=ProviderSpec(model="runaway"),
        prices=Prices(2_000_000, 200_000, 12_000_000),
        tools=ToolsSpec(
            names=("list_files",), modules=("bench_tools",), search_path=(str(folder),)
        ),
        limits=Limits(max_turns=turns),
        durability=durability,
    )
    return Start(
        run_id=run_dir.name, root_id=run_dir.name, run_dir=str(run_dir), spec=spec, base_url=url
    )


def perform(start: Start) -> dict[str, Any]:
    """Perform a run here and measure it, from the open journal to the recorded ending."""

    async def main() -> dict[str, Any]:
        marks: list[tuple[float, float]] = []

        def mark(line: bytes) -> None:
            if b'"type":"turn"' in line:
                marks.append((time.process_time(), time.perf_counter()))

        async with open_run(start, follow=mark) as run:
            cpu, wall = time.process_time(), time.perf_counter()
            await run.perform()
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        size = (Path(start.run_dir) / JOURNAL).stat().st_size
        return {"cpu": cpu, "wall": wall, "bytes": size, "marks": [m[0] for m in marks]}

    return trio.run(main)


def ready_made(url: str, bodies: list[bytes]) -> dict[str, Any]:
    """The floor under any harness: bodies made beforehand, and answers that nobody reads."""

    async def main() -> dict[str, Any]:
        async with httpx.AsyncClient(verify=False, trust_env=False) as client:
            headers = {"content-type": "application/json"}
            cpu, wall = time.process_time(), time.perf_counter()
            marks: list[float] = []
            for body in bodies:
                answer = await client.post(f"{url}/chat/completions", content=body, headers=headers)
                assert answer.status_code == 200, answer.text
                marks.append(time.process_time())
            return {
                "cpu": time.process_time() - cpu,
                "wall": time.perf_counter() - wall,
                "marks": marks,
            }

    return trio.run(main)


def raw_loop(url: str, bodies: list[bytes]) -> dict[str, Any]:
    """A loop as one writes it by hand over httpx: no journal, no limits, no trace.

    It keeps a list of messages, sends it with ``json=``, reads the streamed answer line by line,
    and calls the tool, for the same requests as ``bodies``.
    """
    first = json.loads(bodies[0])

    async def main() -> dict[str, Any]:
        messages: list[dict[str, Any]] = list(first["messages"])
        marks: list[float] = []
        async with httpx.AsyncClient(verify=False, trust_env=False) as client:
            cpu, wall = time.process_time(), time.perf_counter()
            for _ in bodies:
                request = first | {"messages": messages}
                text, calls = "", dict[int, dict[str, Any]]()
                async with client.stream(
                    "POST", f"{url}/chat/completions", json=request
                ) as response:
                    response.raise_for_status()
                    async for line in response.aiter_lines():
                        if not line.startswith("data: ") or line == "data: [DONE]":
                            continue
                        for choice in json.loads(line[6:])["choices"]:
                            delta = choice["delta"]
                            text += delta.get("content") or ""
                            for part in delta.get("tool_calls") or ():
                                call = calls.setdefault(part["index"], {"arguments": ""})
                                call["id"] = part.get("id") or call.get("id")
                                function = part["function"]
                                call["name"] = function.get("name") or call.get("name")
                                call["arguments"] += function.get("arguments") or ""
                made = [
                    {
                        "id": f"call-{len(messages)}-{index}",
                        "type": "function",
                        "function": {"name": call["name"], "arguments": call["arguments"]},
                    }
                    for index, call in calls.items()
                ]
                messages.append({"role": "assistant", "content": text or None, "tool_calls": made})
                for call in made:
                    result = {"role": "tool", "tool_call_id": call["id"], "content": "x" * 200}
                    messages.append(result)
                marks.append(time.process_time())
            return {
                "cpu": time.process_time() - cpu,
                "wall": time.perf_counter() - wall,
                "marks": marks,
            }

    return trio.run(main)


def bodies_of(start: Start) -> list[bytes]:
    """The requests of a run, as its transcript makes them."""
    state = fold(read_events(Path(start.run_dir)))
    tools = Catalogue.load(start.spec.tools).tools_json()
    transcript = Transcript(state, tools, counter_for("runaway", scripted=True))
    transcript.follow()
    bodies: list[bytes] = []
    for turn in range(len(state.turns)):
        sent = transcript.messages[: 2 + 2 * turn]
        bodies.append(request_body("runaway", tools, sent, 4096, stream=True))
    return bodies


def turns_section(folder: Path) -> None:
    """CPU and wall per turn beside a hand-written httpx loop, and beside bodies made beforehand."""
    with provider() as url:
        for turns in (3, 20, 100, 400):
            measure_turns(folder, url, turns)


def measure_turns(folder: Path, url: str, turns: int) -> None:
    """One length of run: ours in both durabilities, and the two floors, taking turns."""
    kinds = ("process", "power", "raw", "ready")
    runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    for _ in range(ROUNDS):
        for durability in ("process", "power"):
            start = start_of(folder, url, turns, durability)
            runs[durability].append(in_child(lambda start=start: perform(start)))
            if durability == "process":
                bodies = bodies_of(start)
                runs["raw"].append(in_child(lambda bodies=bodies: raw_loop(url, bodies)))
                runs["ready"].append(in_child(lambda bodies=bodies: ready_made(url, bodies)))
            shutil.rmtree(start.run_dir)
    names = {
        "process": "exeunt, process",
        "power": "exeunt, power",
        "raw": "a loop by hand over httpx",
        "ready": "bodies made beforehand, httpx",
    }
    for kind, name in names.items():
        cpu, wall = (1000 * median([r[x] for r in runs[kind]]) / turns for x in ("cpu", "wall"))
        row(f"{turns} turns, {name}: CPU / wall a turn", f"{cpu:.2f} / {wall:.2f} ms")
    for floor, goal in (("raw", "<= 1.3 at 400"), ("ready", "")):
        ratio = [a["cpu"] / b["cpu"] for a, b in zip(runs["process"], runs[floor], strict=True)]
        row(f"{turns} turns, process: CPU over {names[floor]}", f"x{median(ratio):.2f}", goal)
    over = [
        1000 * (a["wall"] - b["wall"]) for a, b in zip(runs["process"], runs["ready"], strict=True)
    ]
    goal = "plan: <= 10 ms" if turns == 3 else ""
    row(f"{turns} turns, process: wall beyond httpx itself, in all", f"{median(over):.1f} ms", goal)
    if turns == 400:
        late_rows(runs["process"], runs["raw"])


def late_rows(ours: list[dict[str, Any]], raw: list[dict[str, Any]]) -> None:
    """What the last 50 turns of 400 cost beside the first 50, and the bytes written."""

    def per_turn(run: dict[str, Any], first: int, last: int) -> float:
        return 1000 * (run["marks"][last - 1] - run["marks"][first - 1]) / (last - first)

    for name, runs in (("ours", ours), ("a loop by hand", raw)):
        early = median([per_turn(r, 1, 50) for r in runs])
        late = median([per_turn(r, 350, 400) for r in runs])
        row(
            f"400 turns, {name}: CPU of turns 350-400 / 1-50",
            f"{late:.2f} / {early:.2f} ms, x{late / early:.1f}",
            "<= 9 ms" if name == "ours" else "",
        )
    row("400 turns: journal bytes a turn", f"{ours[0]['bytes'] / 400:.0f} B", "<= 1.2 KB")


def journal_section(folder: Path) -> None:
    """The journal alone: four events a turn at 10 and at 5,000 turns, and loading it."""

    def fill(turns: int) -> dict[str, Any]:
        run_dir = folder / f"j{time.monotonic_ns()}"
        run_dir.mkdir()
        record = Record(run_dir)
        opened = Opened(
            schema=1,
            run_id=run_dir.name,
            root=run_dir.name,
            agent="lead",
            epoch=1,
            pid=1,
            host="bench",
            boot_id="",
            durability="process",
            code_version="",
            config_digest="",
            why="start",
            limits=Limits(),
            tools={},
        )
        record.journal.begin(opened)
        record.write(opened)
        message = Assistant(None, (ToolCall("call_1", "list_files", "{}"),))
        usage = Usage(1000, 20)
        marks = [time.process_time()]
        for turn in range(1, turns + 1):
            ref = f"{turn}.0"
            record.write(Asked(turn=turn, input_estimate=1000, max_output=4096, cap_nusd=10**7))
            record.write(
                Replied(turn=turn, message=message, usage=usage, cost_nusd=10**6, finish="stop")
            )
            record.write(
                Started(
                    ref=ref,
                    name="list_files",
                    nature=Nature.WRITE,
                    key="k" * 32,
                    attempt=1,
                    digest=b"d" * 16,
                )
            )
            record.write(Finished(ref=ref, outcome=ResultKind.OK, content="x" * 200))
            marks.append(time.process_time())
        record.close()
        size = (run_dir / JOURNAL).stat().st_size
        begun = time.process_time()
        again = Record(run_dir)
        loaded = time.process_time() - begun
        again.close()
        shutil.rmtree(run_dir)
        last = marks[-1] - marks[-11]
        return {"all": marks[-1] - marks[0], "last": last, "bytes": size, "load": loaded}

    for turns in (10, 5000):
        runs = [in_child(lambda turns=turns: fill(turns)) for _ in range(ROUNDS)]
        row(
            f"journal, state and trace, {turns} turns: CPU a turn, last ten",
            f"{1e6 * median([r['last'] for r in runs]) / 10:.0f} us",
            "<= 60 us (journal alone)",
        )
        row(
            f"journal, {turns} turns: bytes a turn",
            f"{median([r['bytes'] for r in runs]) / turns:.0f} B",
            "<= 1.2 KB",
        )
        if turns == 5000:
            row(
                "opening a journal of 5,000 turns: CPU",
                f"{1000 * median([r['load'] for r in runs]):.0f} ms",
            )


def memory_kib(pid: int) -> int:
    """Private memory of a process, in KiB."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(x.split()[1]) for x in text if x.startswith(("Private_Clean", "Private_Dirty")))


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


async def process_section(folder: Path) -> None:
    """Whole processes: spawn, memory, kill and resume, Stop."""

    def config(script: str, tool: str, latency: int = 0, durability: str = "process") -> Path:
        path = folder / "bench.toml"
        path.write_text(
            CONFIG.format(script=script, tool=tool, latency=latency, durability=durability)
        )
        return path

    seen = trio.Event()
    wanted = b""

    def listen(run_id: str, line: bytes) -> None:
        if wanted and wanted in line:
            seen.set()

    begun = time.perf_counter()
    async with open_supervisor(StateDir(folder / "state"), listener=listen) as supervisor:
        row("supervisor and zygote ready", f"{1000 * (time.perf_counter() - begun):.0f} ms wall")
        spawns: list[float] = []
        for _ in range(4 * ROUNDS):
            begun = time.perf_counter()
            process = await supervisor.spawner.spawn("actors.actor:main", "bench", 2)
            await process.channel.send_all(b"")
            spawns.append(time.perf_counter() - begun)
            process.kill()
            await trio.aclose_forcefully(process.channel)
            await process.wait()
        row("spawn until the process is known", f"{1000 * median(spawns):.1f} ms")

        waiting = load_config(config("slow", "scan_archive"))
        hellos: list[float] = []
        idle: list[float] = []
        stops: list[float] = []
        resumed: list[float] = []
        opened: list[float] = []
        reopened: list[float] = []
        for _ in range(ROUNDS):
            seen, wanted = trio.Event(), b'"tool_progress"'
            async with trio.open_nursery() as nursery:
                begun, called = time.perf_counter(), time.time()
                nursery.start_soon(supervisor.run, waiting)
                with trio.fail_after(30):
                    await seen.wait()
                hellos.append(time.perf_counter() - begun)
                (child,) = supervisor.children()
                assert child.pid
                await trio.sleep(0.3)
                idle.append(memory_kib(child.pid))
                seen = trio.Event()
                begun, killed = time.perf_counter(), time.time()
                os.kill(child.pid, signal.SIGKILL)
                with trio.fail_after(30):
                    await seen.wait()
                resumed.append(time.perf_counter() - begun)
                opens = [
                    event.at
                    for event in supervisor.state_dir.events(child.run_id)
                    if isinstance(event, Opened)
                ]
                opened.append(opens[0] - called)
                reopened.append(opens[1] - killed)
                wanted = b'"run_stopped"'
                seen = trio.Event()
                begun = time.perf_counter()
                child.stop("bench", "bench")
                with trio.fail_after(30):
                    await seen.wait()
                stops.append(time.perf_counter() - begun)
        row("run() until its actor has opened it", f"{1000 * median(opened):.1f} ms", "<= 10 ms")
        row(
            "SIGKILL until the next actor has opened it",
            f"{1000 * median(reopened):.1f} ms",
            "<= 20 ms",
        )
        row("run() to a tool's first word, one turn", f"{1000 * median(hellos):.1f} ms")
        row("private memory, one turn done, in a tool", f"{median(idle) / 1024:.1f} MiB", "<= 3.5")
        row(
            "SIGKILL to the tool running again",
            f"{1000 * median(resumed):.1f} ms",
        )
        row(
            "Stop to tool dead and record written, heard here",
            f"{1000 * median(stops):.1f} ms",
            "<= 10 ms",
        )

        slow = load_config(config("runaway", "list_files", latency=5000))
        stops = []
        for _ in range(ROUNDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(supervisor.run, slow)
                await trio.sleep(0.4)
                (child,) = supervisor.children()
                wanted, seen = b'"run_stopped"', trio.Event()
                begun = time.perf_counter()
                child.stop("bench", "bench")
                with trio.fail_after(30):
                    await seen.wait()
                stops.append(time.perf_counter() - begun)
        row(
            "Stop with a request in flight, heard here",
            f"{1000 * median(stops):.1f} ms",
            "<= 10 ms",
        )


def main() -> None:
    """Run the sections that were named, or all."""
    wanted = sys.argv[1:] or ["journal", "turns", "processes"]
    print(f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    encoding()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bench_tools.py").write_text(TOOLS)
        if "journal" in wanted:
            journal_section(folder)
        if "turns" in wanted:
            turns_section(folder)
        if "processes" in wanted:
            trio.run(process_section, folder)
    print(f"peak memory here: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")


if __name__ == "__main__":
    main()
