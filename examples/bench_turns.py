"""CPU and wall of a turn, beside a loop written by hand and beside bodies made beforehand."""

import shutil
import time
from pathlib import Path
from typing import Any

import trio
from bench_floors import raw_loop, ready_made
from bench_measure import ROUNDS, in_child, median, provider, row

from actors.catalogue import Catalogue
from actors.estimate import counter_for
from actors.journal import JOURNAL, read_events
from actors.money import Prices
from actors.opening import open_run
from actors.request import request_body
from actors.spec import Limits, ProviderSpec, RunSpec, ToolsSpec
from actors.state import fold
from actors.transcript import Transcript
from actors.wire import Start

NAMES = {
    "process": "exeunt, process",
    "power": "exeunt, power",
    "raw": "a loop by hand over httpx",
    "ready": "bodies made beforehand, httpx",
}
Measured = dict[str, Any]


def turns_section(folder: Path) -> None:
    """Runs of several lengths."""
    with provider() as url:
        for turns in (3, 20, 100, 400):
            runs = measure_turns(folder, url, turns)
            turn_rows(turns, runs)
            if turns == 400:
                late_rows(runs["process"], runs["raw"])


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


def perform(start: Start) -> Measured:
    """Perform a run here and measure it, from the open journal to the recorded ending."""

    async def main() -> Measured:
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


def measure_turns(folder: Path, url: str, turns: int) -> dict[str, list[Measured]]:
    """One length of run: ours in both durabilities, and the two floors, taking turns."""
    runs: dict[str, list[Measured]] = {kind: [] for kind in NAMES}
    for _ in range(ROUNDS):
        for durability in ("process", "power"):
            start = start_of(folder, url, turns, durability)
            runs[durability].append(in_child(lambda start=start: perform(start)))
            if durability == "process":
                bodies = bodies_of(start)
                runs["raw"].append(in_child(lambda bodies=bodies: raw_loop(url, bodies)))
                runs["ready"].append(in_child(lambda bodies=bodies: ready_made(url, bodies)))
            shutil.rmtree(start.run_dir)
    return runs


def turn_rows(turns: int, runs: dict[str, list[Measured]]) -> None:
    """What a turn costs, and what that is beside the floors."""
    for kind, name in NAMES.items():
        cpu, wall = (1000 * median([r[x] for r in runs[kind]]) / turns for x in ("cpu", "wall"))
        row(f"{turns} turns, {name}: CPU / wall a turn", f"{cpu:.2f} / {wall:.2f} ms")
    for floor, goal in (("raw", "<= 1.3 at 400"), ("ready", "")):
        ratio = [a["cpu"] / b["cpu"] for a, b in zip(runs["process"], runs[floor], strict=True)]
        row(f"{turns} turns, process: CPU over {NAMES[floor]}", f"x{median(ratio):.2f}", goal)
    over = [
        1000 * (a["wall"] - b["wall"]) for a, b in zip(runs["process"], runs["ready"], strict=True)
    ]
    goal = "plan: <= 10 ms" if turns == 3 else ""
    row(f"{turns} turns, process: wall beyond httpx itself, in all", f"{median(over):.1f} ms", goal)


def late_rows(ours: list[Measured], raw: list[Measured]) -> None:
    """What the last 50 turns of 400 cost beside the first 50, and the bytes written."""

    def per_turn(run: Measured, first: int, last: int) -> float:
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
