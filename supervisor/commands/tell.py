"""``exeunt tell``: a person's message to one run of a tree, read at its next turn."""

import argparse

import msgspec
import trio

from actors.events import UserMessage
from actors.outcome import RESUMABLE, root_of
from actors.tell import TellRefused, record_message
from actors.text import clean
from supervisor import output
from supervisor.commands import UsageError
from supervisor.person import user_name
from supervisor.state_dir import StateDir
from supervisor.stop_socket import REQUEST_MAX, TellRequest, ask
from supervisor.tree import is_settled
from supervisor.words import Commands

SECONDS_MAX = 5.0
"""How long it is waited for that a run under way has a message on record."""
_POLL_SECONDS = 0.03


def tell(args: argparse.Namespace) -> int:
    """Pass a message to a run under way, or record it for the next resume."""
    state_dir = StateDir(args.state_dir)
    run_id: str = args.run
    run_dir = state_dir.existing(run_id)
    root = root_of(run_id)
    request = TellRequest(run_id, clean(args.text), user_name())
    size = len(msgspec.json.encode(request))
    if not request.text.strip():
        raise UsageError("the message is empty; say something")
    if size > REQUEST_MAX:
        raise UsageError(f"the message takes {size} bytes, and at most {REQUEST_MAX} are taken")
    _check_reads(state_dir, run_id)
    before = len(_messages(state_dir, run_id))
    under_way = ask(state_dir.run_dir(root), request)
    if under_way:
        told = trio.run(_on_record, state_dir, run_id, before)
    else:
        try:
            trio.run(record_message, run_dir, request.text, request.who)
        except TellRefused as error:
            raise UsageError(f"{run_id}: {error}") from None
        told = True
    if args.json:
        output.document({"run_id": run_id, "told": told, "under_way": under_way})
    if not told:
        output.note(f"{run_id} was given the message, and has not recorded it; type ps to see why")
        return 1
    if under_way:
        output.note(f"told {run_id}, which reads it at its next turn")
    else:
        output.note(f"recorded for {run_id}, which reads it when {root} is resumed")
        output.note(f"next: {Commands(args.state_dir_shown).line('resume', root)}")
    return 0


def _check_reads(state_dir: StateDir, run_id: str) -> None:
    """Raise UsageError for a run that nobody will ever ask a model for again."""
    for name in dict.fromkeys((root_of(run_id), run_id)):
        state = state_dir.state(name)
        if state.outcome and (
            state.outcome.status not in RESUMABLE or (name != root_of(name) and is_settled(state))
        ):
            raise UsageError(f"{name} has ended ({state.outcome.status}) and reads no message")


def _messages(state_dir: StateDir, run_id: str) -> list[UserMessage]:
    return [event for event in state_dir.events(run_id) if isinstance(event, UserMessage)]


async def _on_record(state_dir: StateDir, run_id: str, before: int) -> bool:
    """Whether a run has one more message than before, within ``SECONDS_MAX``."""
    with trio.move_on_after(SECONDS_MAX):
        # The journal is another process's, which tells nobody when it has grown.
        while len(_messages(state_dir, run_id)) <= before:  # noqa: ASYNC110
            await trio.sleep(_POLL_SECONDS)
        return True
    return False
