"""``exeunt ps``: the runs of a state directory as a tree."""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from actors.money import usd
from actors.outcome import ORPHANED, Cancelled, Status, parent_of
from actors.state import State
from supervisor import output
from supervisor.standing import Standing, standing_of, tree_ids
from supervisor.state_dir import StateDir, numbers
from supervisor.terminal import Style, visible
from supervisor.waiting import interruption_now, is_answered
from supervisor.words import age, colour, count, money

_HEADINGS = ("RUN", "AGENT", "STATUS", "TURNS", "COST", "TOKENS", "AGE", "PID")
_STATUS = _HEADINGS.index("STATUS")
ANSWERED = "answered"


class Row(msgspec.Struct, omit_defaults=True):
    """One run as ``--json`` lists it; ``pid`` is null when no process holds it."""

    run_id: str
    status: str
    agent: str
    turns: int
    cost_usd: float
    possibly_spent_usd: float
    input_tokens: int
    output_tokens: int
    age_s: float | None
    pid: int | None
    children: list[Any]
    interruption: str | None = None
    """Of an interrupted run the type of its interruption, such as approval or cancelled; answered
    when all calls that waited have their verdict; orphaned when nobody stopped it, and a resume
    goes on with all that was under way."""
    error: str | None = None
    warning: str | None = None


def ps(args: argparse.Namespace) -> int:
    """List all runs, or one with those below it."""
    state_dir = StateDir(args.state_dir)
    names = tree_ids(state_dir, args.run) if args.run is not None else list(state_dir.run_ids())
    found = [standing_of(state_dir, name) for name in names]
    states = {standing.run_id: standing.state for standing in found}
    rows = tree([row_of(standing, states) for standing in found])
    if args.json:
        output.document([msgspec.structs.asdict(row) for row in rows])
    elif rows:
        output.text(table(rows, Style(sys.stdout)))
    else:
        output.note(f"there are no runs in {state_dir.path}")
    return 0


def row_of(standing: Standing, states: Mapping[str, State]) -> Row:
    """What is listed of a run; ``states`` are its own and those of the runs below it."""
    state = standing.state
    head = state.head
    started = state.first_opened_at
    return Row(
        run_id=standing.run_id,
        status=standing.status,
        agent=state.agent,
        turns=head.turns,
        cost_usd=usd(head.cost_nusd),
        possibly_spent_usd=usd(head.maybe_nusd),
        input_tokens=head.input_tokens,
        output_tokens=head.output_tokens,
        age_s=round(max(0.0, time.time() - started), 1) if started else None,
        pid=standing.pid,
        children=[],
        interruption=_interruption(state, states),
        error=standing.error,
        warning=standing.warning,
    )


def _interruption(state: State, states: Mapping[str, State]) -> str | None:
    outcome = state.outcome
    if outcome is None or outcome.status is not Status.INTERRUPTED:
        return None
    why = outcome.interruption
    if isinstance(why, Cancelled) and why.who == ORPHANED:
        return ORPHANED
    if (now := interruption_now(why, states)) is None:
        return None
    return ANSWERED if is_answered(now) else str(now["type"])


def tree(rows: list[Row]) -> list[Row]:
    """The rows that have no parent among them, with the others as their children."""
    by_id = {row.run_id: row for row in rows}
    roots: list[Row] = []
    for row in rows:
        parent = by_id.get(parent_of(row.run_id))
        (parent.children if parent else roots).append(row)
    for row in rows:
        row.children.sort(key=lambda child: numbers(child.run_id))
    return roots


def table(rows: list[Row], style: Style) -> str:
    """The tree as a table, and below it what is wrong with damaged or very long runs."""
    lines: list[tuple[str, ...]] = [_HEADINGS]
    errors: list[str] = []

    def add(row: Row, depth: int) -> None:
        lines.append(_cells(row, depth))
        if row.error or row.warning:
            errors.append(visible(f"{row.run_id}: {row.error or row.warning}"))
        for child in row.children:
            add(child, depth + 1)

    for row in rows:
        add(row, 0)
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    shown = [
        "  ".join(_cell(style, line, column, width) for column, width in enumerate(widths)).rstrip()
        for line in lines
    ]
    totals = [style.dim(_totals(row)) for row in rows if len(rows) == 1 and row.children]
    return "\n".join([style.dim(shown[0]), *shown[1:], *totals, *errors])


def _totals(root: Row) -> str:
    """What a tree comes to, and how many of its runs stand where."""
    every = _with_those_below(root)
    standing = Counter(row.status for row in every)
    return ", ".join(
        [
            count(len(every), "run"),
            *(f"{number} {status}" for status, number in standing.most_common()),
            count(sum(row.turns for row in every), "turn"),
            _cost(sum(row.cost_usd for row in every), any(row.possibly_spent_usd for row in every)),
        ]
    )


def _with_those_below(row: Row) -> list[Row]:
    return [row, *(one for child in row.children for one in _with_those_below(child))]


def _cells(row: Row, depth: int) -> tuple[str, ...]:
    return (
        "  " * depth + row.run_id,
        visible(row.agent) or "-",
        f"{row.status} ({row.interruption})" if row.interruption else row.status,
        str(row.turns),
        _cost(row.cost_usd, row.possibly_spent_usd > 0),
        f"{row.input_tokens:,}+{row.output_tokens:,}",
        "-" if row.age_s is None else age(row.age_s),
        "-" if row.pid is None else str(row.pid),
    )


def _cost(usd: float, possibly: bool) -> str:
    """An amount; with a plus, where more was possibly spent."""
    return money(usd) + ("+" if possibly else "")


def _cell(style: Style, line: tuple[str, ...], column: int, width: int) -> str:
    padded = f"{line[column]:<{width}}"
    if column == _STATUS and line is not _HEADINGS:
        return padded.replace(status := line[column].split(" (")[0], colour(style, status), 1)
    return padded
