"""What became of a run, read back from its journal, so that no report can contradict it."""

from typing import Any

import msgspec

from actors.money import usd
from actors.outcome import Outcome, Status
from actors.state import State

EXIT_CODES = {
    Status.COMPLETED: 0,
    Status.FAILED: 1,
    Status.MAX_TURNS: 3,
    Status.MAX_BUDGET: 4,
    Status.INTERRUPTED: 5,
}
EXIT_USAGE = 2
EXIT_CANCELLED = 6
EXIT_KILLED = 130


class Totals(msgspec.Struct, frozen=True):
    """Sums over a run and everything below it."""

    runs: int
    turns: int
    tool_runs: int
    cost_usd: float
    possibly_spent_usd: float


class Report(msgspec.Struct, frozen=True):
    """The result document; ``status`` is null for a run whose ending is not recorded."""

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
    def exit_code(self) -> int:
        """The exit code of ``run``, ``resume``, ``approve`` and ``reject``."""
        if self.status is None:
            return EXIT_KILLED
        status = Status(self.status)
        if status is Status.INTERRUPTED and self.interruption.get("type") == "cancelled":
            return EXIT_CANCELLED
        return EXIT_CODES[status]


def report(run_id: str, state: State, error: str | None = None) -> Report:
    """The report of a run; ``error`` says why it could not go on where its journal cannot."""
    head = state.head
    outcome = state.outcome or (Outcome(Status.FAILED, error=error) if error else None)
    cost, maybe = usd(head.cost_nusd), usd(head.maybe_nusd)
    return Report(
        run_id=run_id,
        status=outcome.status.value if outcome else None,
        interruption=msgspec.to_builtins(outcome.interruption) if outcome else None,
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
