"""``exeunt approve`` and ``exeunt reject``: a person's verdict on a call, and on with the run."""

import argparse
import os
import pwd

import msgspec
import trio

from actors.text import clean
from actors.verdict import Verdict, VerdictRefused, record_verdict
from supervisor import output
from supervisor.commands import UsageError
from supervisor.commands.run import go_on
from supervisor.standing import root_of, standing_of
from supervisor.state_dir import StateDir
from supervisor.words import Commands


def approve(args: argparse.Namespace) -> int:
    """Let a call run; one in doubt runs again, or counts as done."""
    edited = None if args.args is None else _arguments(args.args)
    happened = True if args.done else None
    verdict = Verdict(ref=args.call, yes=True, who=_user(), happened=happened, args=edited)
    return _record(args, verdict)


def reject(args: argparse.Namespace) -> int:
    """Refuse a call, with a reason for the model; one in doubt counts as not done."""
    happened = False if args.not_done else None
    reason = clean(args.reason)
    verdict = Verdict(ref=args.call, yes=False, who=_user(), happened=happened, reason=reason)
    return _record(args, verdict)


def _record(args: argparse.Namespace, verdict: Verdict) -> int:
    state_dir = StateDir(args.state_dir)
    run_id: str = args.run
    run_dir = state_dir.existing(run_id)
    root = root_of(run_id)
    commands = Commands(args.state_dir_shown)
    if (pid := state_dir.holder(root)) is not None:
        raise UsageError(
            f"run {root} is being performed by process {pid}, so no verdict can be recorded. "
            f"Wait until it ends, or type: {commands.line('stop', root)}"
        )
    try:
        recorded = trio.run(record_verdict, run_dir, verdict)
    except VerdictRefused as error:
        raise UsageError(f"{error}. See: {commands.line('show', run_id)}") from None
    word = "approved" if verdict.yes else "rejected"
    if recorded:
        output.note(f"{word} call {verdict.ref} of {run_id}")
    else:
        output.note(f"call {verdict.ref} of {run_id} was {word} before; nothing was recorded")
    if not args.no_resume:
        return go_on(args, root)
    if args.json:
        output.document(
            {
                "run_id": run_id,
                "call": verdict.ref,
                "recorded": recorded,
                "status": standing_of(state_dir, root).status,
            }
        )
    output.note(f"next: {commands.line('resume', root)}")
    return 0


def _arguments(text: str) -> str:
    """The arguments as compact JSON; the tool's schema is held against them when it is called."""
    try:
        value = msgspec.json.decode(clean(text))
        if isinstance(value, dict):
            return msgspec.json.encode(value).decode()
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise UsageError(f"--args is no JSON ({error}). {_EXAMPLE}") from None
    raise UsageError(f"--args is JSON, but no object. {_EXAMPLE}")


_EXAMPLE = """Give it like: --args '{"path": "notes.txt"}'"""


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
