"""What became of a run, read back from its journal, so that no report can contradict it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from actors.journal import JournalError
from actors.money import usd
from actors.outcome import Status, path_of
from actors.state import State
from supervisor.state_dir import StateDir
from supervisor.waiting import interruption_now, is_answered

EXIT_CODES = {
    Status.COMPLETED: 0,
    Status.FAILED: 1,
    Status.MAX_TURNS: 3,
    Status.MAX_BUDGET: 4,
    Status.INTERRUPTED: 5,
}
EXIT_USAGE = 2
EXIT_CANCELLED = 6
EXIT_KILLED = EXIT_CANCELLED


class Totals(msgspec.Struct, frozen=True):
    """Sums over a run and everything below it."""

    runs: int
    turns: int
    tool_runs: int
    cost_usd: float
    possibly_spent_usd: float


class Report(msgspec.Struct, frozen=True):
    """The result document; ``status`` is null for a run whose ending is not recorded.

    Then ``error`` says why it was cut off, where that is known. An ``interruption`` that waits for
    a person names the calls that still wait; once all are answered, its ``pending`` is empty.
    """

    run_id: str
    status: str | None
    interruption: Any
    error: str | None
    output: str | None
    turns: int
    tool_runs: int
    input_tokens: int
    output_tokens: int
    cached_input_tokens: int
    cost_usd: float
    possibly_spent_usd: float
    tree: Totals
    children: tuple["Report", ...] = ()

    @property
    def answered(self) -> bool:
        """Whether all calls that it waited for have their verdict, so that a resume goes on."""
        return is_answered(self.interruption)

    @property
    def exit_code(self) -> int:
        """The exit code of ``run``, ``resume``, ``approve`` and ``reject``."""
        if self.status is None:
            return EXIT_KILLED
        status = Status(self.status)
        if status is Status.INTERRUPTED and self.interruption.get("type") == "cancelled":
            return EXIT_CANCELLED
        return EXIT_CODES[status]


def tree_report(state_dir: StateDir, run_id: str) -> Report:
    """The report of a run and of everything below it, each from its own journal.

    Of a run below whose journal cannot be read, the report is an ``error`` without a status: it
    takes no answer away from those above it. Raises JournalError when the run's own cannot.
    """
    states = {run_id: state_dir.state(run_id)}
    damaged: dict[str, str] = {}
    for name in state_dir.below(run_id):
        try:
            states[name] = state_dir.state(name)
        except JournalError as error:
            states[name], damaged[name] = State(), str(error)
    below: dict[str, list[str]] = {name: [] for name in states}
    for name in states:
        # The directory of the one between may be gone; what was spent below it is not.
        above = [one for one in path_of(name)[:-1] if one in states]
        if above:
            below[above[-1]].append(name)
    reports: dict[str, Report] = {}
    spent: dict[str, tuple[int, int]] = {}
    # A run's name is longer than its parent's, so whoever is below a run comes before it.
    for name in sorted(states, key=len, reverse=True):
        own, head = report(name, states[name], states), states[name].head
        children = tuple(reports.pop(child) for child in below[name])
        # Added up as integers: many small amounts would not stay exact otherwise.
        cost = head.cost_nusd + sum(spent[child][0] for child in below[name])
        maybe = head.maybe_nusd + sum(spent[child][1] for child in below[name])
        spent[name] = cost, maybe
        sums = [own.tree, *(child.tree for child in children)]
        tree = Totals(
            runs=sum(t.runs for t in sums),
            turns=sum(t.turns for t in sums),
            tool_runs=sum(t.tool_runs for t in sums),
            cost_usd=usd(cost),
            possibly_spent_usd=usd(maybe),
        )
        error = damaged.get(name, own.error)
        reports[name] = msgspec.structs.replace(own, error=error, tree=tree, children=children)
    return reports[run_id]


def report(run_id: str, state: State, states: Mapping[str, State] | None = None) -> Report:
    """The report of a run alone; ``states`` are those that are known, its own among them."""
    head, outcome = state.head, state.outcome
    cost, maybe = usd(head.cost_nusd), usd(head.maybe_nusd)
    return Report(
        run_id=run_id,
        status=outcome.status.value if outcome else None,
        interruption=interruption_now(outcome.interruption, states or {}) if outcome else None,
        error=outcome.error if outcome else None,
        output=outcome.output if outcome else None,
        turns=head.turns,
        tool_runs=head.tool_runs,
        input_tokens=head.input_tokens,
        output_tokens=head.output_tokens,
        cached_input_tokens=head.cached_input_tokens,
        cost_usd=cost,
        possibly_spent_usd=maybe,
        tree=Totals(1, head.turns, head.tool_runs, cost, maybe),
    )
