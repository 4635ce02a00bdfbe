"""The Stop of a run that nobody performs: it comes too late for a process, not for the record."""

import functools
from contextlib import suppress

import trio

from actors.child_report import SETTLED
from actors.journal import JournalError
from actors.late_stop import end_stopped
from actors.outcome import RESUMABLE, parent_of, root_of
from actors.state import State
from actors.wire import Start, Stop
from supervisor.child import Listener
from supervisor.config import Config, ConfigError
from supervisor.report import Report, tree_report
from supervisor.standing import tree_ids
from supervisor.state_dir import StateDir
from supervisor.stop_socket import StopRequest
from supervisor.tree import is_settled
from supervisor.tree_lock import lock_tree

LEFT_SECONDS_MAX = 30.0
"""How long an ended tree is worked on, for the sake of what is left in it."""


async def record_stop(state_dir: StateDir, request: StopRequest) -> bool:
    """End a child and what is below it on disk, so that its parent reads why when it goes on.

    False when there is nothing to be recorded: it has not begun or has ended for good, or somebody
    supervises its tree. Raises JournalError, StateError, ConfigError.
    """
    root = root_of(request.run_id)
    with lock_tree(state_dir.run_dir(root)) as refused:
        if refused or not _goes_on(state_dir.state(request.run_id)):
            return False
        config = state_dir.config(root)
        # Whoever is below comes first, so that those above are told what it has found.
        for name in reversed(tree_ids(state_dir, request.run_id)):
            await _end(state_dir, config, name, Stop(request.reason, request.who))
    return True


async def end_left(state_dir: StateDir, found: Report, listener: Listener | None = None) -> Report:
    """End on disk what is left below a root that has ended for good; returns its report then.

    Nobody would ever answer the calls of such a run, as one that was cut off below a parent that
    failed. The caller holds the tree. What cannot be recorded now, since a tool of it still runs,
    it is damaged or ``LEFT_SECONDS_MAX`` are over, is left to the next resume. Raises as
    ``tree_report`` does, and StateError.
    """
    left = _left_below(found)
    if found.status is None or found.status in RESUMABLE or not left:
        return found
    config = state_dir.config(found.run_id)
    with trio.move_on_after(LEFT_SECONDS_MAX):
        for name in left:
            with suppress(JournalError, ConfigError):
                await _end(
                    state_dir, config, name, Stop("its parent has ended", "parent"), listener
                )
    return tree_report(state_dir, found.run_id)


def _left_below(found: Report) -> list[str]:
    """The runs that may be left, whoever is below before those above."""
    left: list[str] = []
    for child in found.children:
        left += _left_below(child)
        if child.status not in SETTLED:
            left.append(child.run_id)
    return left


async def _end(
    state_dir: StateDir, config: Config, name: str, stop: Stop, listener: Listener | None = None
) -> None:
    state = state_dir.state(name)
    if not _goes_on(state):
        return
    start = Start(
        run_id=name,
        root_id=root_of(name),
        ref=name.removeprefix(f"{parent_of(name)}."),
        run_dir=str(state_dir.run_dir(name)),
        spec=config.run_spec(state.agent, task=""),
        base_url="",
        why="resume",
        stop=stop,
    )
    await end_stopped(start, functools.partial(listener, name) if listener else None)


def _goes_on(state: State) -> bool:
    """Whether a resume of its tree would go on with such a child."""
    return state.epoch > 0 and not is_settled(state)
