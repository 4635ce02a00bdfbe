"""Where a run stands, for those who only look at it: its status, its process, its state."""

import msgspec

from actors.journal import JournalError
from actors.outcome import RESUMABLE, root_of
from actors.state import Call, State
from actors.verdict import outcome_unknown
from supervisor.state_dir import StateDir
from supervisor.stop_socket import listens

SIZE_WARNED = 50 * 2**20
TURNS_WARNED = 10_000
RUNNING, CUT_OFF, NOT_STARTED, DAMAGED = "running", "cut off", "not started", "damaged"


class Standing(msgspec.Struct, frozen=True):
    """One look at a run; ``status`` is one of the five endings or one of the words above."""

    run_id: str
    status: str
    pid: int | None
    """The process that holds the run."""
    state: State
    error: str | None = None
    """What is wrong with a damaged journal."""

    size: int = 0
    """Bytes of its journal."""

    @property
    def warning(self) -> str | None:
        """What is no fault yet: a run that grows so long that each resume reads for a while."""
        outcome, turns = self.state.outcome, self.state.head.turns
        if outcome and outcome.status not in RESUMABLE:
            return None
        if self.size < SIZE_WARNED and turns < TURNS_WARNED:
            return None
        return (
            f"its journal has {self.size // 2**20} MiB and {turns:,} turns, which "
            "every resume reads; end it soon, and go on in a new run"
        )

    @property
    def ended(self) -> bool:
        """Whether the run has an ending on record."""
        return self.state.outcome is not None


def standing_of(state_dir: StateDir, run_id: str) -> Standing:
    """Look at a run without touching it; a damaged journal is a status. Raises StateError."""
    # First the lock and then the journal, so that a run which ends in between is seen as ended.
    pid = state_dir.holder(run_id)
    try:
        state = state_dir.state(run_id)
    except JournalError as error:
        return Standing(run_id, DAMAGED, pid, State(), str(error))
    if state.outcome:
        status = state.outcome.status.value
    # Between two processes of a run nobody holds it, but its tree's supervisor is there.
    elif pid is not None or listens(state_dir.run_dir(root_of(run_id))):
        status = RUNNING
    else:
        status = CUT_OFF if state.epoch else NOT_STARTED
    return Standing(run_id, status, pid, state, size=state_dir.journal_size(run_id))


def tree_ids(state_dir: StateDir, run_id: str) -> list[str]:
    """A run that is there, and the runs below it, parents first. Raises StateError."""
    state_dir.existing(run_id)
    return [run_id, *state_dir.below(run_id)]


def asked_calls(state_dir: StateDir, run_id: str) -> list[tuple[str, Call]]:
    """The calls that a person is or was asked about and that have no answer yet.

    Those of a run and of all below it, each with the run that it belongs to. Raises StateError.
    """
    found: list[tuple[str, Call]] = []
    for name in tree_ids(state_dir, run_id):
        try:
            pending = state_dir.state(name).pending
        except JournalError:
            continue  # What is wrong with it is told of the run itself.
        found += [(name, c) for c in pending if c.asked is not None or outcome_unknown(c)]
    return found
