"""``exeunt stop``: Stop for a tree, asked of its supervisor from any terminal."""

import argparse
import sys

import trio

from actors.outcome import root_of
from actors.text import clean
from supervisor import output
from supervisor.commands import UsageError
from supervisor.late_stop import record_stop
from supervisor.report import tree_report
from supervisor.standing import Standing, standing_of, tree_ids
from supervisor.state_dir import StateDir
from supervisor.stop_socket import StopRequest, ask
from supervisor.terminal import Style
from supervisor.tree import is_settled
from supervisor.words import Commands, ending, next_steps

REASON = "cancelled: exeunt stop"
REASON_MAX = 1000
EXTRA_SECONDS = 10.0
"""How much longer than the run's own grace its ending is waited for."""
_POLL_SECONDS = 0.03


def stop(args: argparse.Namespace) -> int:
    """Ask the supervisor of a run to stop it, and wait until it has ended."""
    state_dir = StateDir(args.state_dir)
    run_id: str = args.run
    state_dir.existing(run_id)
    commands = Commands(args.state_dir_shown)
    before = standing_of(state_dir, run_id)
    request = StopRequest(run_id, clean(args.reason or REASON)[:REASON_MAX])
    asked = not before.ended and ask(state_dir.run_dir(root_of(run_id)), request)
    found = before
    if asked:
        grace = state_dir.config(run_id).supervision.stop_grace_s
        found = trio.run(_ended, state_dir, run_id, 2 * grace + EXTRA_SECONDS)
    elif run_id != root_of(run_id) and trio.run(record_stop, state_dir, request):
        asked, found = True, standing_of(state_dir, run_id)
    left = _held(state_dir, run_id) if asked and found.ended else None
    if found.error:
        asked_words = f"{run_id} was asked to stop, and its ending cannot be read: "
        raise UsageError((asked_words if asked else "") + found.error)
    stopped = asked and found.ended and left is None
    if args.json:
        reason = found.state.outcome.reason if found.state.outcome else None
        output.document(
            {"run_id": run_id, "stopped": stopped, "status": found.status, "reason": reason}
        )
    if found.ended and left is None:
        style = Style(sys.stderr)
        told = tree_report(state_dir, run_id)
        if not asked:
            output.note(_before(found, commands))
        output.write_note(sys.stderr, ending(told, style))
        output.write_note(sys.stderr, next_steps(told, commands))
        return 0
    if left is not None:
        output.note(f"{run_id} has ended, and process {left} is still there; try again")
    else:
        output.note(_unstopped(found, commands, asked))
    return 1


async def _ended(state_dir: StateDir, run_id: str, seconds: float) -> Standing:
    """The run once it has ended and nothing of it is held; after ``seconds`` as it stands then."""
    found = standing_of(state_dir, run_id)
    with trio.move_on_after(seconds):
        while not (found.ended or found.error) or _held(state_dir, run_id) is not None:
            await trio.sleep(_POLL_SECONDS)
            found = standing_of(state_dir, run_id)
    return found


def _held(state_dir: StateDir, run_id: str) -> int | None:
    """A process that holds a run or one below it; of a root also its supervisor, the last to go."""
    if run_id == root_of(run_id) and (pid := state_dir.supervisor_of(run_id)) is not None:
        return pid
    holders = (state_dir.holder(name) for name in tree_ids(state_dir, run_id))
    return next((pid for pid in holders if pid is not None), None)


def _before(found: Standing, commands: Commands) -> str:
    """What to say of a run that was not under way: only an ending that stays is one."""
    if is_settled(found.state):
        return f"{found.run_id} had ended before"
    hint = commands.line("resume", root_of(found.run_id))
    return f"nothing of {found.run_id} runs, and nothing goes on unless somebody types: {hint}"


def _unstopped(found: Standing, commands: Commands, asked: bool) -> str:
    match found.status:
        case "running" if asked:
            return f"{found.run_id} was asked to stop, and has not ended yet"
        case "running" if found.pid is None:
            return f"{found.run_id} is between two processes, or its supervisor is stuck; try again"
        case "running":
            return (
                f"{found.run_id} is held by process {found.pid}, whose supervisor does not answer. "
                f"End it with: kill {found.pid}"
            )
        case _:
            return f"{found.run_id} is not running ({found.status}): {_before(found, commands)}"
