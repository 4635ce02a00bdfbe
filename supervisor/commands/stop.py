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
    request = StopRequest(run_id, clean(args.reason or REASON)[:REASON_MAX])
    asked, found = trio.run(_ask, state_dir, request)
    root = root_of(run_id)
    if not asked and run_id != root and trio.run(record_stop, state_dir, request):
        asked, found = True, standing_of(state_dir, run_id)
    left = _held(state_dir, run_id) if found.ended else None
    # Until a tree is free, it may go on with what has not ended for good.
    settled = run_id != root and is_settled(found.state)
    holder = None if asked or settled else state_dir.supervisor_of(root)
    if found.error:
        asked_words = f"{run_id} was asked to stop, and its ending cannot be read: "
        raise UsageError((asked_words if asked else "") + found.error)
    over = found.ended and left is None and holder is None
    if args.json:
        reason = found.state.outcome.reason if found.state.outcome else None
        output.document(
            {"run_id": run_id, "stopped": asked and over, "status": found.status, "reason": reason}
        )
    if over:
        style = Style(sys.stderr)
        told = tree_report(state_dir, run_id)
        if not asked:
            output.note(_before(found, commands))
        output.write_note(sys.stderr, ending(told, style))
        output.write_note(sys.stderr, next_steps(told, commands))
        return 0
    if holder is None and left is not None:
        happened = "was asked to stop" if asked else "has ended"
        output.note(f"{run_id} {happened}, and process {left} is still there; try again")
    else:
        output.note(_unstopped(found, commands, asked, holder))
    return 1


async def _ask(state_dir: StateDir, request: StopRequest) -> tuple[bool, Standing]:
    """Whether a supervisor took the Stop, and the run once nothing of it is held any more.

    What is gone on with has the ending of before on record until it has another, so an ending
    alone says nothing. After the run's grace and ``EXTRA_SECONDS`` it is taken as it stands then.
    """
    run_id, root = request.run_id, state_dir.run_dir(root_of(request.run_id))
    asked = ask(root, request)
    found = standing_of(state_dir, run_id)
    if asked or (found.ended and _held(state_dir, run_id) is not None):
        grace = state_dir.config(run_id).supervision.stop_grace_s
        with trio.move_on_after(2 * grace + EXTRA_SECONDS):
            while not (found.ended or found.error) or _held(state_dir, run_id) is not None:
                await trio.sleep(_POLL_SECONDS)
                # A supervisor that holds the tree and does not listen begins now, or has done.
                asked = asked or ask(root, request)
                found = standing_of(state_dir, run_id)
        found = standing_of(state_dir, run_id)
    return asked, found


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


def _unstopped(found: Standing, commands: Commands, asked: bool, holder: int | None) -> str:
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
        case _ if holder is not None:
            return (
                f"{found.run_id} is not running now ({found.status}), and process {holder} holds "
                f"its tree. Stop all of it with: {commands.line('stop', root_of(found.run_id))}"
            )
        case _:
            return f"{found.run_id} is not running ({found.status}): {_before(found, commands)}"
