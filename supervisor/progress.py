"""The live view of a tree on standard error: its trace lines as they come, in words.

On a terminal what the root does and how its children end stays, and below it stands a block with
a line for each child under way. Elsewhere each event is a line. It runs in the supervisor, so it
never waits.
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TextIO

import msgspec
import trio

from actors.outcome import NOT_RUN, Status
from actors.state import State
from supervisor.live_tree import DOING_MAX, NAME_MAX, UNDER_WAY, Line, LiveRun, LiveTree
from supervisor.screen import Screen
from supervisor.terminal import Style, one_line, visible
from supervisor.words import age, colour, count, duration, money, short

REDRAW_SECONDS = 0.1
"""Between two drawings of the block."""
PROGRESS_SECONDS_MIN = 1.0
"""Between two lines of a tool's progress where they cannot overwrite each other."""
LINES_MAX = 100
"""Lines that wait for the next drawing."""
LIVE_MAX = 12
"""Children that have a line in the block."""
ALIKE_MAX = 3
"""Endings alike, other than completed, that are told one by one on a terminal."""


class Progress:
    """Shows the trace lines of a root run and its children on one stream."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` is in seconds."""
        self.style = Style(stream)
        self._screen = Screen(stream)
        self._clock = clock
        self._tree = LiveTree()
        self._drawn = self._last_progress = -float("inf")
        self._dirty = False
        self._waiting: list[str] = []
        """Lines for the next drawing."""
        self._arguments: dict[tuple[str, str], Any] = {}
        """Those of the calls that run now."""
        self._alike: Counter[str] = Counter()
        """How many ended in the same way for the same reason."""
        self._lost: dict[str, str] = {}
        """What the parents of children without an ending of their own were told."""
        self._began = clock()

    def header(self, run_id: str, agent: str, model: str) -> None:
        """Say which run this is."""
        style = self.style
        self._tree.run(run_id, self._clock())
        self._say(f"{style.bold('run')} {run_id}  {style.dim(visible(f'agent {agent}  {model}'))}")
        self.draw()

    def know(self, state: State) -> None:
        """Take in a run that has a past, so that the totals are those of the tree."""
        self._tree.know(state, self._clock())

    def note(self, words: str) -> None:
        """Say something else."""
        self._say(visible(words))
        self.draw()

    def take(self, run_id: str, line: bytes) -> None:
        """Show one trace line; what cannot be understood is left out."""
        try:
            found = msgspec.json.decode(line, type=dict[str, Any])
            run = self._tree.take(run_id, found, self._clock())
            self._tell(run, found)
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError, AttributeError):
            return  # The trace on disk has it.
        self._dirty = True
        if self._clock() - self._drawn >= REDRAW_SECONDS or len(self._waiting) >= LINES_MAX:
            self.draw()

    async def animate(self) -> None:
        """Keep the block up to date until cancelled; elsewhere than on a terminal, do nothing."""
        while self._screen.overwrites:
            await trio.sleep(REDRAW_SECONDS)
            # Ages are told in seconds.
            if self._dirty or self._clock() - self._drawn >= 1.0:
                self.draw()

    def draw(self) -> None:
        """Print the lines that wait, and the block as it is now."""
        lines, self._waiting = self._waiting, []
        self._drawn, self._dirty = self._clock(), False
        self._screen.say(lines, self._block() if self._screen.overwrites else ())

    def close(self) -> None:
        """Take away the block, after the last lines; nothing runs any more, so this may wait."""
        for words, number in self._alike.items():
            if number > ALIKE_MAX:
                self._say(f"  {number - ALIKE_MAX} more {words}")
        lines, self._waiting = self._waiting, []
        self._screen.say(lines)
        self._screen.close()

    # What stays.

    def _say(self, words: str) -> None:
        if self._screen.overwrites:
            self._waiting.append(words)
        else:
            self._screen.say([words])

    def _tell(self, run: LiveRun, line: Line) -> None:
        """Say what stays of a line."""
        child, quiet = bool(run.name), self._screen.overwrites
        head = f"{run.name}  " if child else ""
        match line["type"]:
            case "tool_start":
                self._arguments[run.run_id, line["call"]] = line["args"]
            case "tool_result":
                self._tell_result(run, line)
            case "tool_progress":
                self._tell_progress(run, line)
            case "run_stopped":
                self._arguments = {k: v for k, v in self._arguments.items() if k[0] != run.run_id}
                if child:
                    self._tell_ending(run, line["reason"])
            case "child_stopped":
                # Of one whose journal has no ending only its parent says how it ended.
                if (lost := self._lost.pop(line["child_id"], None)) is not None:
                    self._tell_ending(self._tree.runs[line["child_id"]], lost)
            case "child_started" if not quiet:
                started = self._tree.run(line["child_id"], self._clock())
                words = f"{started.name}  started: {started.agent}  {started.task}"
                self._say(one_line(words, self._screen.width))
            # On a terminal the block shows what a child does.
            case _ if child and quiet:
                pass
            case "turn":
                self._say(head + self._turn(line))
            case "turn_failed":
                self._say(head + self._turn_failed(line))
            case "approval_required":
                words = one_line(f"{line['tool_name']} waits for approval", self._screen.width)
                self._say(f"{head}  {self.style.bold(words)}")
            case "context_fitted":
                self._say(head + self.style.dim(_fitted(line)))
            case "told":
                words = f"{line['who']} says: {line['text']}"
                self._say(head + one_line(words, self._screen.width))
            case "run_resumed":
                self._say(head + self.style.dim(f"resumed, epoch {int(line['epoch'])}"))
            case _:
                pass  # A type of a later version: the trace on disk has it.

    def _turn(self, line: Line) -> str:
        style = self.style
        amounts = f"{line['input_tokens']:,} in  {line['output_tokens']:,} out"
        if line["total_cost_usd"]:
            amounts += f"  {money(line['total_cost_usd'])}"
        cut = f"  {style.red('cut at the output limit')}" if line["finish"] == "length" else ""
        return f"{style.bold('turn')} {int(line['turn'])}  {style.dim(amounts)}{cut}"

    def _turn_failed(self, line: Line) -> str:
        wait = line["retry_in_s"]
        head = f"turn {int(line['turn'])}  " + (f"waits {wait:.1f} s: " if wait else "")
        return self.style.red(head + one_line(line["error"], self._screen.width - len(head)))

    def _tell_result(self, run: LiveRun, line: Line) -> None:
        """How a call ended, with its arguments in what is left of the line."""
        arguments = self._arguments.pop((run.run_id, line["call"]), None)
        if child := self._tree.runs.get(f"{run.run_id}.{line['call']}"):
            if child.status is None:
                self._lost[child.run_id] = line.get("error", "")
            return
        if run.name and self._screen.overwrites:
            return
        style, took, width = self.style, duration(line["ms"]), self._screen.width
        word = visible(line.get("outcome", "ok" if line["ok"] else "error"))
        what = "" if line["ok"] else f"  {one_line(line.get('error', ''), width // 2)}"
        name = one_line(line["tool_name"], NAME_MAX)
        head = f"{run.name}    " if run.name else "  "
        if arguments is not None:
            taken = len(head) + len(name) + len(f"{word} {took}{what}") + 3
            name = f"{name} {short(arguments, max(width - taken, 10))}"
        elif self._is_one_too_many(f"{name} {word}{what}"):
            return  # Answered without being run, like many others.
        ended = style.green(word) if line["ok"] else style.red(word)
        self._say(f"{head}{name}  {ended} {style.dim(took)}{what}")

    def _is_one_too_many(self, words: str) -> bool:
        """Whether so many ended with these words that on a terminal they are only counted."""
        self._alike[words] += self._screen.overwrites
        return self._alike[words] > ALIKE_MAX

    def _tell_progress(self, run: LiveRun, line: Line) -> None:
        now = self._clock()
        if self._screen.overwrites or now - self._last_progress < PROGRESS_SECONDS_MIN:
            return
        self._last_progress = now
        head = f"{run.name}    " if run.name else "  "
        words = f"{head}{one_line(line['tool_name'], NAME_MAX)}  "
        self._say(words + one_line(line["label"], max(self._screen.width - len(words), 10)))

    def _tell_ending(self, run: LiveRun, reason: str) -> None:
        """How a child ended; and where no block tells it, what the tree has come to by then."""
        style, quiet, width = self.style, self._screen.overwrites, self._screen.width
        status, done = run.status or "", run.status == Status.COMPLETED
        what = run.task if done else one_line(reason.removeprefix(f"{status}: "), DOING_MAX)
        if not done and self._is_one_too_many(f"{status}  {what}"):
            return
        amounts = "" if status == NOT_RUN else f"  {_amounts(run.turns, run.cost_usd)}"
        tail = "" if quiet else f"  [{self._so_far()}]"
        head = f"  {run.name}  " if quiet else f"{run.name}  "
        room = width - len(head) - len(status) - len(amounts) - len(tail) - 2
        words = f"{colour(style, status)}{style.dim(amounts)}  {one_line(what, max(room, 20))}"
        self._say(f"{head}{words}{style.dim(tail)}")

    # The block.

    def _block(self) -> list[str]:
        """What is going on: the root's tool, a line for each child under way, and the totals."""
        tree, now, width = self._tree, self._clock(), self._screen.width - 1
        live = sorted((r for r in tree.children if r.status is None), key=lambda run: run.order)
        lines: list[str] = []
        root = tree.root
        if root and root.status is None and (root.calls or not live):
            silent = f"  {age(now - root.heard)}" if now - root.heard >= 1.0 else ""
            lines.append(self.style.dim(one_line(root.doing, width - 10) + silent))
        if not tree.children:
            return [f"  {line}" for line in lines]
        room = min(LIVE_MAX, max(self._screen.height // 2, 3))
        shown = live if len(live) <= room else live[: room - 1]
        names = max((len(run.name) for run in shown), default=0)
        lines += [self._live(run, names, now, width) for run in shown]
        if len(shown) < len(live):
            lines.append(self.style.dim(f"and {len(live) - len(shown)} more under way"))
        lines.append(f"{self._totals()}  {age(now - self._began)}"[: width - 2])
        return [f"  {line}" for line in lines]

    def _live(self, run: LiveRun, names: int, now: float, width: int) -> str:
        cost = f"{money(run.cost_usd):>9}  " if self._tree.cost_usd else ""
        amounts = f"{count(run.turns, 'turn'):>8}  {cost}{age(now - run.began):>3}"
        room = max(width - 2 - names - 2 - len(amounts) - 4, 20)
        doing = one_line(run.doing, room * 2 // 3)
        task = one_line(run.task, room - len(doing))
        style = self.style
        return f"{run.name:<{names}}  {style.dim(amounts)}  {doing}  {style.dim(task)}"

    def _so_far(self) -> str:
        tree = self._tree
        many = len(tree.children)
        ended = many - tree.standing()[UNDER_WAY]
        return f"{ended} of {many} ended  {_amounts(tree.turns, tree.cost_usd)}"

    def _totals(self) -> str:
        tree = self._tree
        standing = ", ".join(f"{number} {status}" for status, number in tree.standing().items())
        many = len(tree.children)
        noun = "child" if many == 1 else "children"
        return f"{many} {noun}: {standing}  {_amounts(tree.turns, tree.cost_usd)}"


def _amounts(turns: int, cost_usd: float) -> str:
    """Turns, and money where it is known."""
    return count(turns, "turn") + (f"  {money(cost_usd)}" if cost_usd else "")


def _fitted(line: Line) -> str:
    """What was taken out of the next request; the history keeps it."""
    words = f"context {line['before']:,} to {line['after']:,} tokens"
    if line["cleared"]:
        words += f", {count(line['cleared'], 'result')} cleared"
    if line["folded"]:
        words += f", {count(line['folded'], 'round')} folded"
    return words
