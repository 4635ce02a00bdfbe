"""Prints, for every table of the specification's sections 1 to 9, ours beside the reference.

Every figure of ours is measured while this runs, against the scripted provider over a real
socket, each run in an actor of its own. The figures need not be equal, since prompts and tool
descriptions differ; the relations must hold, and each is printed with whether it does.

    python examples/reference_tables.py
"""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import trio

from actors.events import Asked, Replied
from actors.verdict import Verdict, record_verdict
from supervisor import Report, StateDir, Supervisor, load_config, open_supervisor

FORBIDDEN = '''
from actors import tool

@tool(read_only=True)
def list_files() -> str:
    """List the files."""
    return "secret.txt"

@tool(read_only=True)
def read_file(path: str) -> str:
    """Read a file, which this process may not open."""
    raise PermissionError(13, "Permission denied", path)
'''
failures: list[str] = []


class Lab:
    """Runs scripts under one supervisor and keeps the trace lines of each run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # A copy, since some scripts delete files.
        self.workspace = folder / "workspace"
        shutil.copytree(Path(__file__).parent / "workspace", self.workspace)
        self.state = StateDir(folder / "state")
        self.lines: dict[str, list[dict[str, Any]]] = {}
        self.watch: Callable[[dict[str, Any]], None] = lambda line: None
        self.supervisor: Supervisor
        (folder / "guarded.py").write_text(FORBIDDEN)

    def hear(self, run_id: str, raw: bytes) -> None:
        """Keep a trace line."""
        line = msgspec.json.decode(raw)
        self.lines.setdefault(run_id, []).append(line)
        self.watch(line)

    def config(self, script: str, tools: str, **keys: Any) -> Path:
        """Write a configuration; keys with dots become ``section.key``."""
        limits = {k: v for k, v in keys.items() if k in ("max_turns", "max_budget_usd")}
        limits |= {k: v for k, v in keys.items() if k == "strict_budget"}
        guarded = '[tools.guarded]\nmodule = "guarded"' if script == "forbidden" else ""
        files = "" if guarded else f"[tools.files]\nroot = {json.dumps(str(self.workspace))}"
        text = f"""
[run]
agent = "lead"
task = "Which file mentions a timeout?"
[provider]
kind = "scripted"
script = "{script}"
latency_ms = {keys.get("latency_ms", 0)}
[pricing]
input = 2.00
cached_input = 2.00
output = 12.00
[agents.lead]
tools = {json.dumps(tools.split())}
[agents.lead.limits]
{chr(10).join(f"{k} = {json.dumps(v)}" for k, v in limits.items())}
[agents.lead.errors]
tool_errors = "{keys.get("tool_errors", "tell")}"
{files}
{guarded}
[state]
durability = "process"
"""
        path = self.folder / f"{script}.toml"
        path.write_text(text)
        return path

    async def play(self, script: str, tools: str = "list_files read_file", **keys: Any) -> Report:
        """Run a script to its end."""
        return await self.supervisor.run(load_config(self.config(script, tools, **keys)))

    def inputs(self, report: Report) -> list[int]:
        """The prompt tokens of each turn."""
        return [x["input_tokens"] for x in self.lines[report.run_id] if x["type"] == "turn"]

    async def answer(self, report: Report, verdict: str, reason: str = "") -> Report:
        """Give a verdict on the call that a run waits for, and go on."""
        given = Verdict(
            ref=report.interruption["call"],
            yes=verdict == "approve",
            who="reference",
            reason=reason,
        )
        await record_verdict(self.state.run_dir(report.run_id), given)
        return await self.supervisor.resume(report.run_id)


def table(title: str, *rows: tuple[object, ...]) -> None:
    """Print a table; the first row is its head."""
    print(f"\n{title}")
    shown = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in shown) for i in range(len(shown[0]))]
    for row in shown:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))


def relation(words: str, holds: bool) -> None:
    """Print whether a relation holds, and remember one that does not."""
    print(f"  {'holds ' if holds else 'BROKEN'}  {words}")
    if not holds:
        failures.append(words)


def short(report: Report) -> tuple[object, ...]:
    """The figures that the reference gives of a run."""
    return (
        report.turns,
        report.tool_runs,
        report.input_tokens,
        report.output_tokens,
        f"${report.cost_usd:.6f}",
        report.status,
    )


async def section_1(lab: Lab) -> None:
    """The scripted provider."""
    plan = await lab.play("plan")
    head = ("plan", "turns", "tools", "in", "out", "cost", "status", "prompt tokens per turn")
    table(
        "1. plan",
        head,
        ("reference", 3, 2, 815, 70, "$0.002470", "completed", "204, 269, 342"),
        ("ours", *short(plan), ", ".join(map(str, lab.inputs(plan)))),
    )
    relation("three turns, two tools, completed", short(plan)[:2] == (3, 2) and plan.exit_code == 0)
    relation("the prompt grows every turn", lab.inputs(plan) == sorted(set(lab.inputs(plan))))


async def section_2(lab: Lab) -> None:
    """Turn cap and money cap."""
    runs = {n: await lab.play("runaway", max_turns=n) for n in (8, 20, 50, 100)}
    reference = {8: (3431, ""), 20: ("", "$0.038"), 50: (88649, ""), 100: (337299, "")}
    rows = [
        (n, *reference[n], r.input_tokens, f"${r.cost_usd:.6f}", r.status) for n, r in runs.items()
    ]
    head = ("turns", "reference in", "reference cost", "our in", "our cost", "status")
    table("2. runaway, stopped by the turn cap", head, *rows)
    tokens = runs[100].input_tokens / runs[50].input_tokens
    money = runs[100].cost_usd / runs[50].cost_usd
    print(f"  doubling 50 to 100: tokens x{tokens:.2f} (reference 3.8), cost x{money:.2f} (3.7)")
    relation("the total is quadratic in turns", 3.4 < tokens < 4.1 and 3.3 < money < 4.1)
    relation(
        "every one ends max_turns_exceeded at its cap",
        all(r.status == "max_turns_exceeded" and r.turns == n for n, r in runs.items()),
    )
    loose = await lab.play("runaway", max_turns="none", max_budget_usd=0.010, strict_budget=False)
    strict = await lab.play("runaway", max_turns="none", max_budget_usd=0.010)
    table(
        "2. runaway, $0.010 and no turn cap",
        ("budget", "spent", "status"),
        ("reference", "$0.010780", "budget_exceeded"),
        ("ours, strict_budget = false", f"${loose.cost_usd:.6f}", loose.status),
        ("ours, strict", f"${strict.cost_usd:.6f}", strict.status),
    )
    last = [x for x in lab.lines[loose.run_id] if x["type"] == "turn"][-1]["cost_usd"]
    relation("loose: over by less than one turn", 0.010 <= loose.cost_usd < 0.010 + last)
    relation("strict: never over", strict.cost_usd <= 0.010 and strict.exit_code == 4)


async def section_3(lab: Lab) -> None:
    """Tool errors are context."""
    runs = {
        policy: await lab.play("recover", tool_errors=policy)
        for policy in ("tell", "hide", "fatal")
    }
    rows = [(p, *short(r), (r.output or r.error or "")[:60]) for p, r in runs.items()]
    head = ("recover", "turns", "tools", "in", "out", "cost", "status", "last words")
    table("3. tool errors", head, *rows)
    times = runs["tell"].cost_usd / runs["fatal"].cost_usd
    print(f"  tell costs {times:.1f} times fatal (reference 4.7)")
    answers = {p: "worker 7" in (r.output or "") for p, r in runs.items()}
    relation("only tell answers", answers == {"tell": True, "hide": False, "fatal": False})
    relation("hide gives up politely", runs["hide"].status == "completed")
    stopped = await lab.play("forbidden")
    ratio = stopped.cost_usd / runs["tell"].cost_usd
    table(
        "3. forbidden",
        ("", "turns", "tool runs", "cost", "beside recovered", "status"),
        ("reference, no rule", 12, 11, "$0.018622", "x5.2", "no answer"),
        (
            "ours",
            stopped.turns,
            stopped.tool_runs,
            f"${stopped.cost_usd:.6f}",
            f"x{ratio:.1f}",
            stopped.status,
        ),
    )
    relation("stops after the first", stopped.turns == 1 and stopped.status == "failed")


async def section_4(lab: Lab) -> None:
    """Models repeat themselves."""
    duplicate = await lab.play("duplicate")
    once = lab.inputs(duplicate)
    turns = [x for x in lab.lines[duplicate.run_id] if x["type"] == "turn"]
    without = sum(x["cost_usd"] for x in (turns[0], turns[-1]))
    more = duplicate.cost_usd / without - 1
    first = await lab.play("double_delete", "list_files delete_file")
    second = await lab.answer(first, "approve")
    while second.exit_code == 5:
        second = await lab.answer(second, "approve")
    table(
        "4. repetition",
        ("", "turns", "tool runs", "costs more by"),
        ("duplicate, reference", "", "", "75 %"),
        ("duplicate, ours", duplicate.turns, duplicate.tool_runs, f"{more:.0%} {once}"),
        ("double_delete, naive cache", "", 1, ""),
        ("double_delete, ours", second.turns, second.tool_runs, ""),
    )
    relation("the repeated read does not run again, its turn is paid", duplicate.tool_runs == 1)
    relation("two calls are two calls", second.tool_runs == 2)


async def section_5(lab: Lab) -> None:
    """Approval is a return."""
    target = lab.workspace / "access.log"
    kept = b"kept\n"
    target.write_bytes(kept)
    asked = await lab.play("destructive", "list_files read_file delete_file")
    approved = await lab.answer(asked, "approve")
    gone = not target.exists()
    target.write_bytes(kept)
    again = await lab.play("destructive", "list_files read_file delete_file")
    rejected = await lab.answer(again, "reject", "keep the access log")
    still = target.exists()
    table(
        "5. destructive",
        ("verdict", "reference says", "ours says", "file"),
        ("approve", "Deleted access.log to free space.", approved.output, "gone" if gone else "?"),
        (
            "reject",
            "I did not delete anything: you declined the deletion.",
            rejected.output,
            "there" if still else "?",
        ),
    )
    relation("it waits, resumably", asked.exit_code == 5 and asked.interruption["call"] == "2.0")
    relation("approved means deleted, and the report says so", gone and "Deleted" in str(approved))
    relation("rejected means kept, and the report says so", still and "declined" in str(rejected))


async def section_6(lab: Lab) -> None:
    """The run is data: killed after turn 2, resumed by another process."""
    # Slow enough that the third turn is still to come when the second is heard of.
    whole = await lab.play("plan", latency_ms=300)

    def kill_after_turn_two(line: dict[str, Any]) -> None:
        if line["type"] == "tool_result" and line["call"] == "2.0":
            lab.supervisor.kill()

    lab.watch = kill_after_turn_two
    cut = await lab.play("plan", latency_ms=300)
    lab.watch = lambda line: None
    state = lab.state.state(cut.run_id)
    messages = len(state.prompts) + sum(1 + len(turn.calls) for turn in state.turns)
    resumed = await lab.supervisor.resume(cut.run_id)
    table(
        "6. plan, killed after turn 2",
        ("", "restored turns", "cost", "messages", "resumed turns", "cost", "tool runs"),
        ("reference", 2, "$0.001570", 6, 3, "$0.002470", 2),
        (
            "ours",
            cut.turns,
            f"${cut.cost_usd:.6f}",
            messages,
            resumed.turns,
            f"${resumed.cost_usd:.6f}",
            resumed.tool_runs,
        ),
    )
    print(f"  possibly spent beside it: ${resumed.possibly_spent_usd:.6f}")
    relation(
        "no recorded ending before, completed after", cut.status is None and resumed.turns == 3
    )
    relation("same cost as the run that never crashed", resumed.cost_usd == whole.cost_usd)
    relation("two tool runs over both processes", resumed.tool_runs == 2)


async def section_7(lab: Lab) -> None:
    """Stop reaches the bottom."""
    started = time.perf_counter()
    await lab.play("slow", "scan_archive")
    whole = time.perf_counter() - started
    asked = 0.0

    async def press() -> None:
        nonlocal asked
        await trio.sleep(1.2)
        asked = time.perf_counter()
        for child in lab.supervisor.children():
            child.stop("user pressed Stop", "user")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(press)
        stopped = await lab.play("slow", "scan_archive")
        late = time.perf_counter() - asked
    progress = [x for x in lab.lines[stopped.run_id] if x["type"] == "tool_progress"]
    begun = next(x for x in lab.lines[stopped.run_id] if x["type"] == "tool_start")["at"]
    table(
        "7. slow",
        ("", "whole", "from Stop to reported", "status", "reason", "first progress"),
        ("reference", "3015 ms", "2 ms", "interrupted", "user pressed Stop", "506 ms"),
        (
            "ours",
            f"{whole * 1000:.0f} ms",
            f"{late * 1000:.0f} ms",
            stopped.status,
            stopped.interruption["reason"],
            f"{(progress[0]['at'] - begun) * 1000:.0f} ms, {progress[0]['label']!r}",
        ),
    )
    relation("Stop ends it in mid-scan", late < 0.5 and stopped.exit_code == 6)


async def section_8(lab: Lab) -> None:
    """The trace."""
    lines = [line for run in lab.lines.values() for line in run]
    kinds = sorted({line["type"] for line in lines})
    table("8. trace", ("event types seen in this whole program",), (", ".join(kinds),))
    relation("every line names its run", all(line["run_id"] for line in lines))


async def section_9(lab: Lab) -> None:
    """Latency is turns times a number you don't control."""
    rows: list[tuple[object, ...]] = []
    added: list[float] = []
    for latency in (0, 200, 1000, 3000):
        run = await lab.play("plan", latency_ms=latency)
        events = lab.state.events(run.run_id)
        whole = events[-1].at - events[0].at
        asked = [e.at for e in events if isinstance(e, Asked)]
        replied = [e.at for e in events if isinstance(e, Replied)]
        waited = sum(b - a for a, b in zip(asked, replied, strict=True))
        added.append(1000 * (whole - waited))
        rows.append((latency, f"{1000 * whole:.1f}", f"{1000 * waited:.1f}", f"{added[-1]:.1f}"))
    head = ("latency, ms", "the run", "waiting for replies", "the harness itself")
    table("9. plan over latency, ms (reference: the harness adds 15 ms)", head, *rows)
    relation("the harness adds less than the reference", max(added) < 15)


async def main() -> None:
    """Run all sections."""
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder))
        async with open_supervisor(lab.state, listener=lab.hear) as lab.supervisor:
            sections = (section_1, section_2, section_3, section_4, section_5)
            for section in (*sections, section_6, section_7, section_8, section_9):
                await section(lab)
    print(f"\n{len(failures)} relations broken" if failures else "\nall relations hold")
    sys.exit(bool(failures))


if __name__ == "__main__":
    trio.run(main)
