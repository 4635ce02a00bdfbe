"""How a run ends: exactly five ways, each a value and none an exception."""

import enum
from typing import Any

import msgspec


class Status(enum.StrEnum):
    """The five endings; a run without one is still going, or was cut off and can be resumed."""

    COMPLETED = "completed"
    FAILED = "failed"
    MAX_TURNS = "max_turns_exceeded"
    MAX_BUDGET = "budget_exceeded"
    INTERRUPTED = "interrupted"


RESUMABLE = frozenset({Status.MAX_TURNS, Status.MAX_BUDGET, Status.INTERRUPTED})
"""The endings after which ``exeunt resume`` goes on; completed and failed are final."""
NOT_RUN = "not run"
"""What stands in place of an ending for a child that its tree had no room for: it never was."""


class PendingCall(msgspec.Struct, frozen=True, tag_field="type", tag="approval"):
    """A call that waits for a person: ``call`` is the word that ``approve`` and ``reject`` take."""

    run_id: str
    call: str
    tool_name: str
    args: Any
    path: tuple[str, ...]


class Approval(msgspec.Struct, frozen=True, tag_field="type", tag="approval", omit_defaults=True):
    """The run waits for a verdict on ``call``; ``pending`` lists them all if there are several."""

    run_id: str
    call: str
    tool_name: str
    args: Any
    path: tuple[str, ...]
    pending: tuple[PendingCall, ...] = ()


def path_of(run_id: str) -> tuple[str, ...]:
    """The runs from the root down to this one: a child's id is its parent's and the call's ref."""
    parts = run_id.split(".")
    return tuple(".".join(parts[: end + 1]) for end in range(0, len(parts), 2))


def root_of(run_id: str) -> str:
    """The root run of a tree, from the name of any run in it."""
    return path_of(run_id)[0]


def parent_of(run_id: str) -> str:
    """The run that a run answers to, from its name; nothing for a root."""
    return "".join(path_of(run_id)[-2:-1])


class InDoubt(msgspec.Struct, frozen=True, tag_field="type", tag="in_doubt"):
    """A write was started before a process died, and a person must say whether it happened."""

    run_id: str
    call: str
    tool_name: str
    args: Any
    path: tuple[str, ...]


class MaxTurns(msgspec.Struct, frozen=True, tag_field="type", tag="max_turns"):
    """The turn cap was reached before the model was asked again."""

    max_turns: int


class MaxBudget(msgspec.Struct, frozen=True, tag_field="type", tag="max_budget"):
    """The money cap leaves no room for another turn; amounts in USD."""

    max_budget_usd: float
    spent_usd: float
    possibly_spent_usd: float
    next_turn_usd: float
    children_usd: float = 0.0
    """Spent and possibly spent by the runs below; what stands above is the run's own."""


ORPHANED = "orphaned"
"""Who stopped a run whose supervisor or parent is gone: nobody decided that its work should end."""


class Cancelled(msgspec.Struct, frozen=True, tag_field="type", tag="cancelled"):
    """Somebody, or a limit other than turns and money, stopped the run; ``who`` says which."""

    reason: str
    who: str = "user"


Interruption = Approval | InDoubt | MaxTurns | MaxBudget | Cancelled


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The recorded ending: a status, why (interruption or error), and the output when completed."""

    status: Status
    interruption: Interruption | None = None
    error: str | None = None
    output: str | None = None

    @property
    def reason(self) -> str:
        """One sentence that says why the run ended, for the trace and for people."""
        match self.interruption:
            case Approval(tool_name=name, call=call):
                return f"approval needed for {name} (call {call})"
            case InDoubt(tool_name=name, call=call):
                return f"{name} (call {call}) was started and its outcome is not known"
            case MaxTurns(max_turns=cap):
                return f"the cap of {cap} turns is reached"
            case MaxBudget() as m:
                below = f"${m.children_usd:.6f} by the runs below, " if m.children_usd else ""
                return (
                    f"the budget of ${m.max_budget_usd:.6f} does not cover another turn: "
                    f"${m.spent_usd:.6f} spent, ${m.possibly_spent_usd:.6f} possibly spent, "
                    f"{below}the next turn may cost ${m.next_turn_usd:.6f}"
                )
            case Cancelled(reason=reason):
                return reason
            case None:
                return self.error or self.status.value
