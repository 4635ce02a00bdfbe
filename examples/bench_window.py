"""Measures long runs: what fitting costs a turn, what is refused, and what the policies bill.

    python examples/bench_window.py [SECTION ...]

Method: CPU is this process's own time; a turn of fitting is the shaping of the request and the
joining of its messages, and "counting" the taking in of a new round. Each CPU figure is the median
of ``ROUNDS`` rounds. The bill and the languages are simulations of a provider: see
window_policies.py and window_languages.py.
"""

import platform
import statistics
import sys
import time

from bench import median, row
from window_languages import LANGUAGES, REQUESTS, SCALES, refusals
from window_policies import Simulation, ratios, synthetic

from actors.calibration import Calibration
from actors.composition import Composition
from actors.estimate import CounterName, counter_for
from actors.fit import Fitted
from actors.messages import Assistant, Prompt, ResultKind, ToolCall, ref_of
from actors.testing.chapters import chapter_text
from actors.tokens import encoding
from actors.window import Marks, Policy

ROUNDS = 5
TURNS = 1000
CHARS = 7000
"""Of a result: about 1,800 tokens, as medium ones have in the simulation."""
SEED = 7


def fitting(budget: int, counter: CounterName) -> tuple[list[float], list[float], int]:
    """CPU seconds of each turn's fitting and of its counting, and how many fittings changed it."""
    prompts = (Prompt("system", "You read books."), Prompt("user", "Read."))
    composition = Composition(prompts, b"[]", counter_for("m", choice=counter), budget, Policy())
    text = chapter_text(1, CHARS)
    marks, changed = Marks(), 0
    spent: list[float] = []
    counted: list[float] = []
    for turn in range(1, TURNS + 1):
        call = ToolCall("x", "read_file", f'{{"path":"chapter-{turn}.txt"}}')
        begun = time.process_time()
        composition.add(Assistant(None, (call,)), [ref_of(turn, 0)], [(ResultKind.OK, text)])
        counted.append(time.process_time() - begun)
        begun = time.process_time()
        result = composition.fit(marks, Calibration(), cold=False)
        assert isinstance(result, Fitted)
        marks = result.marks
        composition.messages(marks)
        spent.append(time.process_time() - begun)
        changed += result.changed
    return spent, counted, changed


def fitting_section() -> None:
    """CPU a turn with a budget that is reached again and again, and with one that never is."""
    encoding()
    for counter in ("o200k", "bytes"):
        runs = [fitting(100_000, counter) for _ in range(ROUNDS)]
        last = [1000 * statistics.mean(spent[-100:]) for spent, _, _ in runs]
        counting = [1000 * statistics.mean(counted[-100:]) for _, counted, _ in runs]
        row(
            f"fitting at 1,000 turns, {counter}, {runs[0][2]} fittings: CPU a turn",
            f"{median(last):.3f} ms",
            "<= 1 ms",
        )
        row(f"counting a result of {CHARS} characters, {counter}", f"{median(counting):.3f} ms")
    runs = [fitting(10**9, "bytes") for _ in range(ROUNDS)]
    early = median([1000 * statistics.median(spent[:100]) for spent, _, _ in runs])
    late = median([1000 * statistics.median(spent[-100:]) for spent, _, _ in runs])
    row(
        "nothing cleared: CPU of turns 901-1,000 / 1-100",
        f"{late:.3f} / {early:.3f} ms, x{late / early:.2f}",
        "flat",
    )


def bill_section() -> None:
    """Billed input of ``band`` beside ``reference``, and how often the prefix changed."""
    costs: list[float] = []
    wholes: list[float] = []
    for workload in synthetic(SEED):
        band, reference = (
            Simulation(workload, Policy(name=name), SEED).run() for name in ("band", "reference")
        )
        cost, whole = ratios(band, reference)
        costs.append(cost)
        wholes.append(whole)
        hits = f"{band.cached / band.sent:.0%} / {reference.cached / reference.sent:.0%}"
        row(
            f"{workload.name}: band over reference, cost / whole text",
            f"x{cost:.2f} / x{whole:.2f}, cache hits {hits}",
        )
    row("billed input, geometric mean", f"x{statistics.geometric_mean(costs):.3f}", "<= 0.62")
    row("whole text, geometric mean", f"x{statistics.geometric_mean(wholes):.2f}", ">= 1.3")


def languages_section() -> None:
    """Requests that a provider with another tokenizer refuses."""
    for language in LANGUAGES:
        found = [refusals([language], scale) for scale in SCALES]
        scales = ", ".join(f"x{scale}" for scale in SCALES)
        row(
            f"{language}: refused of {REQUESTS}, tokenizers {scales}",
            " / ".join(map(str, found)),
            "0",
        )


def main() -> None:
    """Run the sections that were named, or all."""
    wanted = sys.argv[1:] or ["fitting", "bill", "languages"]
    print(f"{platform.platform()}, Python {platform.python_version()}")
    if "fitting" in wanted:
        fitting_section()
    if "bill" in wanted:
        bill_section()
    if "languages" in wanted:
        languages_section()


if __name__ == "__main__":
    main()
