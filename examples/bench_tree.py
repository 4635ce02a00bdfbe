"""Measures the tree of processes: fan-out, Stop, memory, and what the supervisor costs.

    python examples/bench_tree.py [SECTION ...]

Method: as in bench.py. Walls are from the program's call to what its listener hears or to the
report; "acked" is the last run's ending heard after a Stop, "reaped" the return of ``run``, by when
every process is gone. CPU of the supervisor is that of this process while the tree runs. Each
figure is the median of ``ROUNDS`` rounds, or of one where a round has a thousand processes.
"""

import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import trio
from bench import median, memory_kib, provider, row

from supervisor import Report, StateDir, Supervisor, load_config, open_supervisor
from supervisor.spawned import Process

ROUNDS = 3
SCRIPTS = """
from actors.testing import Call, Say, script

def ask(conversation, many):
    tool = conversation.tools[0]
    return [Call(tool, {"question": f"{n} of {many}"}) for n in range(1, many + 1)]

@script("bench_lead")
def lead(conversation):
    if conversation.turn:
        return Say("done")
    return ask(conversation, int(conversation.task.split()[0]))

@script("bench_six")
def six(conversation):
    return Call("look") if conversation.turn < 5 else Say("found")

@script("bench_middle")
def middle(conversation):
    many = int(conversation.system.split()[0])
    return Say("done") if conversation.turn else ask(conversation, many)

@script("bench_leaf")
def leaf(conversation):
    return Call(conversation.tools[0])
"""
TOOLS = '''
import httpx
import trio
from actors import tool, ToolContext

@tool(read_only=True)
async def look() -> str:
    """Look."""
    return "x" * 200

@tool(read_only=True, timeout_s=600)
async def hold(context: ToolContext) -> str:
    """Hold on."""
    context.progress("holding")
    await trio.sleep_forever()

@tool(read_only=True, timeout_s=600)
async def busy(context: ToolContext) -> str:
    """Hold a program and a streamed request."""
    async def stream() -> None:
        messages = [{"role": "user", "content": "x"}]
        body = {"model": "bench_leaf", "stream": True, "messages": messages}
        async with httpx.AsyncClient(trust_env=False, verify=False) as client:
            async with client.stream("POST", "URL/chat/completions", json=body, timeout=600) as got:
                async for _ in got.aiter_bytes():
                    pass

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream)
        nursery.start_soon(lambda: context.run_process(["sleep", "600"], timeout_s=600))
        await trio.sleep(0.05)
        context.progress("holding")
'''
CONFIG = """
[run]
agent = "lead"
task = "{many} questions"
[provider]
kind = "scripted"
scripts = ["bench_tree_scripts"]
latency_ms = {latency}
[agents.lead]
model = "bench_lead"
tools = ["research"]
[agents.lead.limits]
children_at_once = 1000
max_children = 1000
max_depth = 3
[agents.{child}]
model = "{model}"
system = "{system}"
tools = {tools}
[agents.{child}.limits]
children_at_once = 1000
max_children = 1000
[agents.leaf]
model = "bench_leaf"
tools = ["{hold}"]
[tools.research]
agent = "{child}"
description = "Research."
[tools.deeper]
agent = "leaf"
description = "Research deeper."
[tools.bench]
module = "bench_tree_tools"
[state]
durability = "process"
[supervision]
stop_grace_s = 20
"""


class Bench:
    """One folder, one supervisor, and what its listener hears."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.supervisor: Supervisor
        self.holding = 0
        self.stopped: list[float] = []
        self.enough = trio.Event()
        self.wanted = 0
        (folder / "bench_tree_scripts.py").write_text(SCRIPTS)

    def hear(self, run_id: str, line: bytes) -> None:
        """Count what is waited for."""
        if b'"tool_progress"' in line:
            self.holding += 1
            if self.holding == self.wanted:
                self.enough.set()
        elif b'"run_stopped"' in line:
            self.stopped.append(time.perf_counter())

    def config(self, **keys: Any) -> Path:
        """Write a configuration."""
        usual = {
            "latency": 0,
            "child": "leaf2",
            "model": "bench_leaf",
            "system": "",
            "tools": '["hold"]',
            "hold": "hold",
        }
        path = self.folder / "tree.toml"
        path.write_text(CONFIG.format(**(usual | keys)))
        return path

    async def run(self, **keys: Any) -> Report:
        """Run one tree."""
        return await self.supervisor.run(load_config(self.config(**keys)))

    async def stop_held(self, leaves: int, **keys: Any) -> dict[str, float]:
        """Start a tree, wait until every leaf holds, press Stop, and time it."""
        self.holding, self.wanted, self.enough = 0, leaves, trio.Event()
        self.stopped = []
        begun = time.perf_counter()
        pressed = 0.0
        runs = 0

        async def press() -> None:
            nonlocal pressed, runs
            with trio.fail_after(180):
                await self.enough.wait()
            spawned.append(time.perf_counter() - begun)
            await trio.sleep(0.5)
            runs = len(self.supervisor.children())
            pressed = time.perf_counter()
            for child in self.supervisor.children():
                if "." not in child.run_id:
                    self.supervisor.stop_run(child.run_id, "bench", "bench")

        spawned: list[float] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(press)
            await self.run(**keys)
            reaped = time.perf_counter() - pressed
        acked = max(self.stopped) - pressed
        assert len(self.stopped) == runs, f"{len(self.stopped)} of {runs} ended"
        return {"spawned": spawned[0], "acked": acked, "reaped": reaped}


def ms(values: list[float]) -> str:
    """The median in milliseconds."""
    return f"{1000 * median(values):.0f} ms"


async def fan_out(bench: Bench) -> None:
    """Children side by side at 200 ms a reply, beside the ideal: eight replies in a row."""
    for many, goal in ((8, 1.15), (64, 1.5)):
        walls: list[float] = []
        costs: list[float] = []
        for _ in range(ROUNDS):
            cpu, wall = time.process_time(), time.perf_counter()
            report = await bench.run(
                many=many, latency=200, child="six", model="bench_six", tools='["look"]'
            )
            walls.append(time.perf_counter() - wall)
            costs.append(1000 * (time.process_time() - cpu) / (6 * many))
            assert report.status == "completed", report
            assert report.tree.turns == 6 * many + 2, report.tree
        row(
            f"{many} children x 6 turns, 200 ms a reply: wall over ideal",
            f"x{median(walls) / 1.6:.2f} ({1000 * median(walls):.0f} of 1600 ms)",
            f"<= {goal}",
        )
        row(
            f"{many} children: supervisor CPU a child turn",
            f"{median(costs):.2f} ms",
            "<= 0.3 ms",
        )


async def stops(bench: Bench) -> None:
    """One Stop over trees of 1-10-100, with plain waits, and with a stream and a program each."""
    deep: dict[str, Any] = {
        "many": 10,
        "child": "middle",
        "model": "bench_middle",
        "tools": '["deeper"]',
        "system": "10",
    }
    for name, keys, goals in (
        ("1-10-100, waiting", deep, ("<= 100 ms", "<= 500 ms")),
        ("1-10-100, a stream and a program each", deep | {"hold": "busy"}, ("<= 300 ms", "")),
    ):
        found = [await bench.stop_held(100, **keys) for _ in range(ROUNDS)]
        row(f"{name}: all started", ms([f["spawned"] for f in found]))
        row(f"Stop over {name}: all acked", ms([f["acked"] for f in found]), goals[0])
        row(f"Stop over {name}: all reaped", ms([f["reaped"] for f in found]), goals[1])


async def thousand(bench: Bench) -> None:
    """A thousand idle actors, and one Stop over a thousand runs."""
    begun = time.perf_counter()
    processes: list[Process] = []
    async with trio.open_nursery() as nursery:

        async def one() -> None:
            processes.append(await bench.supervisor.spawner.spawn("actor", "idle", 2))

        for _ in range(1000):
            nursery.start_soon(one)
    spawned = time.perf_counter() - begun
    pss = sum(_pss_kib(process.pid) for process in processes)
    private = median([memory_kib(process.pid) for process in processes[:50]])
    for process in processes:
        process.kill()
        await trio.aclose_forcefully(process.channel)
    for process in processes:
        await process.wait()
    row("1,000 idle actors: spawned", f"{spawned:.1f} s", "<= 6 s")
    row("1,000 idle actors: PSS in all", f"{pss / 1024 / 1024:.2f} GiB", "<= 3.2 GB")
    row("an idle actor: private memory", f"{private / 1024:.1f} MiB", "<= 3.5 MiB")
    wide: dict[str, Any] = {
        "many": 10,
        "child": "middle",
        "model": "bench_middle",
        "tools": '["deeper"]',
        "system": "98",
    }
    found = await bench.stop_held(980, **wide)
    row("1-10-980: all started", f"{found['spawned']:.1f} s")
    row("Stop over 1-10-980: all acked", f"{1000 * found['acked']:.0f} ms", "<= 800 ms")
    row("Stop over 1-10-980: all reaped", f"{1000 * found['reaped']:.0f} ms")


def _pss_kib(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in text if line.startswith("Pss:"))


def killed(folder: Path) -> None:
    """SIGKILL of a supervisor with 111 actors: who is left, and for how long."""
    bench = Bench(folder)
    keys: dict[str, Any] = {
        "many": 10,
        "child": "middle",
        "model": "bench_middle",
        "tools": '["deeper"]',
        "system": "10",
    }
    path = bench.config(**keys)
    command = [sys.executable, "-P", "-m", "supervisor", "run", str(path), "--run-id", "doomed"]
    process = subprocess.Popen(
        [*command, "--state-dir", str(folder / "doomed")], stderr=subprocess.DEVNULL
    )
    journals = folder / "doomed" / "runs"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and _holding(journals) < 100:
        os.sched_yield()
    begun = time.perf_counter()
    process.send_signal(signal.SIGKILL)
    process.wait()
    while time.monotonic() < deadline + 60 and _alive(folder):
        os.sched_yield()
    gone = ms([time.perf_counter() - begun])
    row("SIGKILL of a supervisor with 111 actors: all gone", gone, "within 2 s of grace")
    row("of them left behind", str(len(_alive(folder))), "0")


def _holding(journals: Path) -> int:
    traces = journals.glob("doomed.*.*.*.*/trace.jsonl")
    return sum(b"tool_progress" in path.read_bytes() for path in traces)


def _alive(folder: Path) -> list[int]:
    """Processes that have a file of this folder open."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                links = [str(fd.readlink()) for fd in (entry / "fd").iterdir()]
            except OSError:
                continue
            if any(link.startswith(str(folder)) for link in links):
                found.append(int(entry.name))
    return found


async def trees(folder: Path, wanted: list[str]) -> None:
    """The sections that need a supervisor here."""
    bench = Bench(folder)
    async with open_supervisor(StateDir(folder / "state"), listener=bench.hear) as supervisor:
        bench.supervisor = supervisor
        if "fan-out" in wanted:
            await fan_out(bench)
        if "stop" in wanted:
            await stops(bench)
        if "thousand" in wanted:
            await thousand(bench)


def main() -> None:
    """Run the sections that were named, or all."""
    wanted = sys.argv[1:] or ["fan-out", "stop", "kill", "thousand"]
    print(f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as name, provider(latency_ms=600_000) as url:
        folder = Path(name)
        (folder / "bench_tree_tools.py").write_text(TOOLS.replace("URL", url))
        trio.run(trees, folder, wanted)
        if "kill" in wanted:
            killed(folder)


if __name__ == "__main__":
    main()
