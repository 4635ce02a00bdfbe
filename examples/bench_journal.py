"""The journal alone: four events a turn at 10 and at 5,000 turns, and loading it."""

import shutil
import time
from pathlib import Path

from bench_measure import ROUNDS, in_child, median, row

from actors.events import AnyEvent, Asked, Finished, Opened, Replied, Started
from actors.journal import JOURNAL
from actors.messages import Assistant, Nature, ResultKind, ToolCall
from actors.money import Usage
from actors.record import Record
from actors.spec import Limits

MESSAGE = Assistant(None, (ToolCall("call_1", "list_files", "{}"),))
USAGE = Usage(1000, 20)


def journal_section(folder: Path) -> None:
    """What an event costs early and late, and what it takes to open the whole again."""
    for turns in (10, 5000):
        runs = [in_child(lambda turns=turns: fill(folder, turns)) for _ in range(ROUNDS)]
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


def fill(folder: Path, turns: int) -> dict[str, float]:
    """Write a journal of so many turns, and load it: CPU seconds and bytes."""
    run_dir = folder / f"j{time.monotonic_ns()}"
    run_dir.mkdir()
    record = Record(run_dir)
    opened = opening(run_dir.name)
    record.journal.begin(opened)
    record.write(opened)
    marks = [time.process_time()]
    for turn in range(1, turns + 1):
        for event in events_of(turn):
            record.write(event)
        marks.append(time.process_time())
    record.close()
    size = (run_dir / JOURNAL).stat().st_size
    begun = time.process_time()
    again = Record(run_dir)
    loaded = time.process_time() - begun
    again.close()
    shutil.rmtree(run_dir)
    return {"last": marks[-1] - marks[-11], "bytes": size, "load": loaded}


def opening(name: str) -> Opened:
    """The first event of a run."""
    return Opened(
        schema=1,
        run_id=name,
        root=name,
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


def events_of(turn: int) -> tuple[AnyEvent, ...]:
    """The four events of a turn with one call."""
    ref = f"{turn}.0"
    return (
        Asked(turn=turn, input_estimate=1000, max_output=4096, cap_nusd=10**7),
        Replied(turn=turn, message=MESSAGE, usage=USAGE, cost_nusd=10**6, finish="stop"),
        Started(
            ref=ref,
            name="list_files",
            nature=Nature.WRITE,
            key="k" * 32,
            attempt=1,
            digest=b"d" * 16,
        ),
        Finished(ref=ref, outcome=ResultKind.OK, content="x" * 200),
    )
