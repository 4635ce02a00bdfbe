"""Replays runs through each window policy, prints what they cost, and draws why.

    python examples/window_policies.py [--svg FILE] [--draw WORKLOAD] [RUN_DIRECTORY ...]

Without directories six synthetic workloads are replayed, each 400 rounds of one tool call; with
them, the rounds that those runs' journals hold. The provider caches prefixes as the large ones do:
nothing below 1,024 tokens, then in steps of 128, at a tenth of the price. In one round of ten the
model needs an earlier result, a recent one more often than an old one; if it was cleared, the model
reads it again, which is one more round. A policy is charged for the rounds that it causes.

Columns: billed input in USD, the share of input tokens that came from the cache, requests that did
not begin like the one before, tokens of whole results in a request on average, results read again,
tokens sent in millions; then cost and whole text as a multiple of the reference's. ``off`` ends
where its request is refused. All numbers are our model of a provider, not a provider's bill.
"""

import argparse
import math
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from actors.calibration import Calibration
from actors.composition import Composition
from actors.estimate import counter_for
from actors.fit import Overflow, fit
from actors.journal import JournalError, read_events
from actors.ledger import ledger_cap
from actors.state import fold
from actors.window import Marks, Policy, Window

BUDGET = 100_000
USD_PER_MILLION = 2.0
CACHED_SHARE = 0.1
ROUNDS = 400
FIXED, HEAD, NOTE, LINE, NOTE_HEAD = 3000, 130, 24, 17, 30
"""Tokens of system prompt and tools, of a call with its words, of the notes, and a ledger line."""
NEEDED_SHARE, NEEDED_DECAY = 0.1, 0.857
"""How often an earlier result is needed, and how fast that falls with its age in rounds."""
POLICIES = ("off", "reference", "band")
COLOURS = {"off": "#999999", "reference": "#c0392b", "band": "#1f6f8b"}


class Round(msgspec.Struct, frozen=True):
    """Tokens of one round: its call, its results, and the ledger lines it would become."""

    head: int
    results: tuple[int, ...]
    line: int


class Workload(msgspec.Struct, frozen=True):
    """Rounds to replay after a fixed beginning."""

    name: str
    fixed: int
    rounds: tuple[Round, ...]


class Replay(msgspec.Struct):
    """What one policy made of one workload."""

    requests: int = 0
    sent: int = 0
    cached: int = 0
    whole: int = 0
    busts: int = 0
    rereads: int = 0
    refused_at: int = 0
    """The round at which a request was larger than the budget; 0: none was."""
    fill: list[int] = []
    fresh: list[int] = []

    @property
    def usd(self) -> float:
        """Billed input."""
        fresh = self.sent - self.cached
        return (fresh + CACHED_SHARE * self.cached) * USD_PER_MILLION / 1e6

    @property
    def whole_mean(self) -> float:
        """Tokens of whole results in a request, on average."""
        return self.whole / max(1, self.requests)


def synthetic(seed: int) -> Iterator[Workload]:
    """Six workloads, the same for a seed: from short listings to whole documents."""
    rng = random.Random(seed)

    def between(low: int, high: int, count: int = ROUNDS) -> list[int]:
        return [rng.randint(low, high) for _ in range(count)]

    sizes = {
        "short (289)": [289] * ROUNDS,
        "medium (1.8k)": [1800] * ROUNDS,
        "long (2-12k)": between(2000, 12000),
        "mixed": [rng.choice((289, 289, 1800, rng.randint(2000, 12000))) for _ in range(ROUNDS)],
        "shift": [289] * (ROUNDS // 2) + between(2000, 12000, ROUNDS // 2),
        "huge (15-40k)": between(15000, 40000),
    }
    for name, results in sizes.items():
        yield Workload(name, FIXED, tuple(Round(HEAD, (size,), LINE) for size in results))


def recorded(run_dir: Path) -> Workload:
    """The rounds of a run's journal, counted by o200k; raises JournalError."""
    state = fold(read_events(run_dir))
    composition = Composition(state.prompts, b"", counter_for("", scripted=True), None, Policy())
    for turn in state.turns:
        answers = [call.result for call in turn.calls if call.result]
        if len(answers) == len(turn.calls):
            refs = [call.ref for call in turn.calls]
            results = [(answer.outcome, answer.content) for answer in answers]
            composition.add(turn.message, refs, results)
    window = composition.window
    rounds = tuple(Round(*window.round_sizes(index)) for index in range(window.rounds))
    return Workload(run_dir.name, window.fixed, rounds)


class Simulation:
    """One policy over one workload: the window, and a provider that remembers the last request."""

    def __init__(self, workload: Workload, policy: Policy, seed: int) -> None:
        self.workload, self.policy = workload, policy
        self.rng = random.Random(seed)
        cap = ledger_cap(BUDGET) if policy.name == "band" else 0
        self.window = Window(workload.fixed, note=NOTE, ledger_head=NOTE_HEAD, ledger_cap=cap)
        self.marks = Marks()
        self.rounds: list[Round] = []
        self.replay = Replay()
        self.last: list[tuple[object, int]] = []

    def run(self) -> Replay:
        """Replay all rounds, or as many as fit."""
        for number, added in enumerate(self.workload.rounds):
            for one in (added, *self.needed_again()):
                if not self.request():
                    self.replay.refused_at = number
                    return self.replay
                self.take(one)
        self.request()
        return self.replay

    def take(self, added: Round) -> None:
        """Add a round to the history."""
        self.rounds.append(added)
        self.window.add(added.head, added.results, added.line)

    def needed_again(self) -> Sequence[Round]:
        """The earlier round that the model has to read again, if there is one."""
        if self.rng.random() >= NEEDED_SHARE:
            return ()
        age = 1 + int(math.log(1 - self.rng.random()) / math.log(NEEDED_DECAY))
        index = len(self.rounds) - 1 - age
        if index < 0 or self.window.results_before(index + 1) > self.marks.cleared_upto:
            return ()
        self.replay.rereads += 1
        return (self.rounds[index],)

    def request(self) -> bool:
        """Send one request; False when it is larger than the budget."""
        fitted = fit(self.window, self.marks, BUDGET, self.policy, Calibration(), k0=1.0)
        if isinstance(fitted, Overflow) or fitted.after > BUDGET:
            return False
        self.marks = fitted.marks
        pieces = list(self.pieces())
        common = 0
        for now, before in zip(pieces, self.last, strict=False):
            if now != before:
                break
            common += now[1]
        cached = common // 128 * 128 if common >= 1024 else 0
        replay = self.replay
        replay.busts += pieces[: len(self.last)] != self.last
        replay.requests += 1
        replay.sent += fitted.after
        replay.cached += cached
        replay.whole += self.window.whole_tokens(self.marks)
        replay.fill.append(fitted.after)
        replay.fresh.append(fitted.after - cached)
        self.last = pieces
        return True

    def pieces(self) -> Iterator[tuple[object, int]]:
        """The request as a list of what it is made of, with sizes."""
        yield "fixed", self.workload.fixed
        folded, index = self.marks.folded_upto, self.window.results_before(self.marks.folded_upto)
        if folded:
            lines = folded if self.policy.name == "band" else -1
            yield ("ledger", lines), self.window.ledger(folded)
        for number, added in enumerate(self.rounds[folded:], folded):
            yield ("call", number), added.head
            for size in added.results:
                cleared = index < self.marks.cleared_upto and self.window.is_clearable(size)
                yield ("note" if cleared else "result", index), NOTE if cleared else size
                index += 1


def row(name: str, replay: Replay, reference: Replay) -> str:
    """One line of the table."""
    hit = replay.cached / max(1, replay.sent)
    line = (
        f"{name:<10} ${replay.usd:6.2f} {hit:5.0%} {replay.busts:5d} {replay.whole_mean:7.0f} "
        f"{replay.rereads:5d} {replay.sent / 1e6:6.1f}"
    )
    if replay.refused_at:
        return f"{line}   refused at round {replay.refused_at}"
    cost, whole = ratios(replay, reference)
    return f"{line}   {cost:5.2f}x {whole:5.2f}x"


def ratios(replay: Replay, reference: Replay) -> tuple[float, float]:
    """Cost and whole text, as multiples of the reference's."""
    return replay.usd / reference.usd, replay.whole_mean / max(1.0, reference.whole_mean)


def picture(title: str, replays: dict[str, Replay]) -> str:
    """An SVG of two curves over the turns: the size of the request, and what of it was not cached.

    The first shows when a policy rewrites and how far; the second what each rewrite costs.
    """
    width, height, left, top, gap = 900, 240, 70, 50, 70
    turns = max(len(replay.fill) for replay in replays.values())
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 30} '
        f'{top + 2 * height + gap + 50}" font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left}" y="24" font-size="16">{title}</text>',
    ]
    panels = (("tokens in the request", "fill"), ("of these at full price", "fresh"))
    for panel, (label, field) in enumerate(panels):
        base = top + height + panel * (height + gap)
        out.append(f'<text x="{left}" y="{base - height - 8}">{label}</text>')
        for step in range(5):
            y = base - height * step / 4
            out.append(
                f'<path d="M{left} {y}h{width}" stroke="#dddddd"/><text x="{left - 8}" y="{y + 4}" '
                f'text-anchor="end">{BUDGET * step // 4000}k</text>'
            )
        for name, replay in replays.items():
            values: list[int] = getattr(replay, field)
            points = " ".join(
                f"{left + width * turn / turns:.1f},{base - height * value / BUDGET:.1f}"
                for turn, value in enumerate(values)
            )
            out.append(
                f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}" '
                'stroke-width="1.5"/>'
            )
    x, y = left, top + 2 * height + gap + 32
    for name, replay in replays.items():
        end = f"refused at round {replay.refused_at}" if replay.refused_at else f"${replay.usd:.2f}"
        out.append(f'<text x="{x}" y="{y}" fill="{COLOURS[name]}">{name}: {end}</text>')
        x += 300
    return "\n".join((*out, "</svg>", ""))


def main() -> int:
    """Replay, print, draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run_directory", nargs="*", type=Path)
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the picture into FILE")
    parser.add_argument("--draw", default="medium", metavar="WORKLOAD", help="which one to draw")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    try:
        directories: list[Path] = options.run_directory
        workloads = [recorded(path) for path in directories] or list(synthetic(options.seed))
    except JournalError as error:
        print(error, file=sys.stderr)
        return 2
    costs: list[float] = []
    wholes: list[float] = []
    drawn = next((w for w in workloads if w.name.startswith(options.draw)), workloads[0])
    columns = ("input", "hit", "busts", "whole", "again", "M sent", "cost", "whole")
    print("{:<10} {:>7} {:>5} {:>5} {:>7} {:>5} {:>6}   {:>6} {:>6}".format("", *columns))
    for workload in workloads:
        print(f"\n{workload.name}, {len(workload.rounds)} rounds, budget {BUDGET}")
        replays = {
            name: Simulation(workload, Policy(name=name), options.seed).run() for name in POLICIES
        }
        for name, replay in replays.items():
            print(row(name, replay, replays["reference"]))
        cost, whole = ratios(replays["band"], replays["reference"])
        costs.append(cost)
        wholes.append(whole)
        if options.svg and workload is drawn:
            title = f"{workload.name}: what each policy sends, turn by turn"
            options.svg.write_text(picture(title, replays), encoding="utf-8")
    print(
        f"\nband over reference, geometric mean: cost {statistics.geometric_mean(costs):.3f}x, "
        f"whole text {statistics.geometric_mean(wholes):.2f}x"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
