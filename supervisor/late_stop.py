"""The Stop of a child whose tree is paused: it comes too late for a process, not for the record."""

from actors.late_stop import end_stopped
from actors.outcome import parent_of, root_of
from actors.state import State
from actors.wire import Start, Stop
from supervisor.standing import tree_ids
from supervisor.state_dir import StateDir
from supervisor.stop_socket import StopRequest
from supervisor.tree import is_settled
from supervisor.tree_lock import lock_tree


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
            state = state_dir.state(name)
            if not _goes_on(state):
                continue
            start = Start(
                run_id=name,
                root_id=root,
                ref=name.removeprefix(f"{parent_of(name)}."),
                run_dir=str(state_dir.run_dir(name)),
                spec=config.run_spec(state.agent, task=""),
                base_url="",
                why="resume",
                stop=Stop(request.reason, request.who),
            )
            await end_stopped(start)
    return True


def _goes_on(state: State) -> bool:
    """Whether a resume of its tree would go on with such a child."""
    return state.epoch > 0 and not is_settled(state)
