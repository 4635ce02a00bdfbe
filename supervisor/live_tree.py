"""A tree of runs as its trace lines tell it: who is under way, what each does, what it comes to."""

from collections import Counter
from typing import Any

import msgspec

from actors.money import usd
from actors.state import State
from supervisor.terminal import one_line, visible

NAME_MAX = 40
DOING_MAX = 200
"""Columns of what a run does that are kept."""
ASKS, UNDER_WAY, CUT_OFF = "asks the model", "under way", "cut off"

Line = dict[str, Any]


class LiveRun(msgspec.Struct):
    """One run; ``turns`` and ``cost_usd`` are its own, over all its processes."""

    run_id: str
    began: float
    """When this view first heard of it, by the clock of the view."""
    heard: float
    """When it last did."""
    agent: str = ""
    task: str = ""
    turns: int = 0
    cost_usd: float = 0.0
    status: str | None = None
    """Its ending, as far as this view knows."""
    waits: str = ""
    """Why it does not get on, when its provider makes it wait."""
    calls: dict[str, tuple[str, str]] = msgspec.field(default_factory=dict[str, tuple[str, str]])
    """The tools that run now: name, and arguments or the last label."""

    @property
    def order(self) -> list[int]:
        """What sorts runs as ``ps`` does: a child behind its parent, and before the next one."""
        parts = self.run_id.split(".")[1:]
        return [int(part[:9]) if part.isdecimal() else 0 for part in parts]

    @property
    def name(self) -> str:
        """What comes after the root's name; empty for the root itself."""
        _, dot, rest = self.run_id.partition(".")
        return visible(dot + rest)

    @property
    def doing(self) -> str:
        """What it does now, in words."""
        if self.waits:
            return self.waits
        if not self.calls:
            return ASKS
        name, what = next(reversed(self.calls.values()))
        more = f" (+{len(self.calls) - 1})" if len(self.calls) > 1 else ""
        return f"{name} {what}{more}"


class LiveTree:
    """All runs of one tree, the root included."""

    def __init__(self) -> None:
        self.runs: dict[str, LiveRun] = {}

    def know(self, state: State, now: float) -> None:
        """Take in a run as its journal has it, from before this view began."""
        if not state.epoch:
            return
        run = self.run(state.run_id, now)
        run.agent, run.turns, run.cost_usd = (
            state.agent,
            state.head.turns,
            usd(state.head.cost_nusd),
        )
        run.task = one_line(state.prompts[-1].text, DOING_MAX) if state.prompts else ""
        run.status = state.outcome.status.value if state.outcome else CUT_OFF

    def run(self, run_id: str, now: float) -> LiveRun:
        """The run of that name, new if nothing was heard of it before."""
        if run_id not in self.runs:
            self.runs[run_id] = LiveRun(run_id, now, now)
        return self.runs[run_id]

    def take(self, run_id: str, line: Line, now: float) -> LiveRun:
        """Take in a trace line of a run; raises KeyError, TypeError or ValueError if it is none."""
        run = self.run(run_id, now)
        run.heard = now
        match line["type"]:
            case "child_started" | "child_stopped":
                self._take_child(run, line, now)
            case "run_stopped":
                run.status, run.turns = visible(line["status"]), int(line["turns"])
                run.cost_usd, run.waits = float(line["cost_usd"]), ""
                run.calls.clear()
            case "run_resumed":
                run.status = None
            case "turn":
                run.turns, run.cost_usd = int(line["turn"]), float(line["total_cost_usd"])
                run.waits = ""
            case "turn_failed":
                wait = f"waits {float(line['retry_in_s']):.1f} s: "
                run.waits = wait + one_line(line["error"], DOING_MAX)
            case "tool_start":
                self._take_call(run, line, _shown(line["args"]))
            case "tool_progress":
                self._take_call(run, line, line["label"])
            case "tool_result":
                run.calls.pop(line["call"], None)
            case _:
                pass
        return run

    def _take_call(self, run: LiveRun, line: Line, words: str) -> None:
        run.calls[line["call"]] = (
            one_line(line["tool_name"], NAME_MAX),
            one_line(words, DOING_MAX),
        )

    def _take_child(self, run: LiveRun, line: Line, now: float) -> None:
        child = self.run(line["child_id"], now)
        # What the call does is what the child does.
        _, asked = run.calls.pop(line["call"], ("", ""))
        if line["type"] == "child_started":
            child.agent, child.task, child.status = visible(line["agent"]), asked, None
        else:
            child.status = child.status or visible(line["status"])

    @property
    def root(self) -> LiveRun | None:
        """The run that all others are below."""
        return next((run for run in self.runs.values() if not run.name), None)

    @property
    def children(self) -> list[LiveRun]:
        """Every run but the root, in the order in which they were heard of."""
        return [run for run in self.runs.values() if run.name]

    def standing(self) -> Counter[str]:
        """How many children are under way, and how many have ended in which way."""
        found = Counter({UNDER_WAY: 0})
        found.update(run.status or UNDER_WAY for run in self.children)
        return +found

    @property
    def turns(self) -> int:
        """Turns of all runs."""
        return sum(run.turns for run in self.runs.values())

    @property
    def cost_usd(self) -> float:
        """What all runs spent."""
        return sum(run.cost_usd for run in self.runs.values())


def _shown(args: Any) -> str:
    """The arguments of a call: a question in itself, all else as JSON."""
    match args:
        case {"question": str(question), **others} if not others:
            return question
        case _:
            return msgspec.json.encode(args).decode("utf-8", "replace")
