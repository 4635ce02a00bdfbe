"""``exeunt approve`` and ``exeunt reject``: a person's verdict on a call, and on with the run."""

import argparse

import msgspec
import trio

from actors.outcome import root_of
from actors.text import clean
from actors.tool_errors import ArgumentError
from actors.verdict import Verdict, VerdictRefused, record_verdict, waits
from supervisor import output
from supervisor.code_check import check_arguments
from supervisor.commands import UsageError
from supervisor.commands.run import go_on
from supervisor.config import ConfigError, key_names
from supervisor.person import user_name
from supervisor.report import tree_report
from supervisor.spawner import open_spawner
from supervisor.standing import RUNNING, asked_calls, standing_of
from supervisor.state_dir import StateDir
from supervisor.words import Commands, listed, next_steps


def approve(args: argparse.Namespace) -> int:
    """Let a call run; one in doubt runs again, or counts as done."""
    edited = None if args.args is None else _arguments(args.args)
    happened = True if args.done else None
    verdict = Verdict(ref=args.call, yes=True, who=user_name(), happened=happened, args=edited)
    return _record(args, verdict)


def reject(args: argparse.Namespace) -> int:
    """Refuse a call, with a reason for the model; one in doubt counts as not done."""
    happened = False if args.not_done else None
    reason = clean(args.reason)
    verdict = Verdict(ref=args.call, yes=False, who=user_name(), happened=happened, reason=reason)
    return _record(args, verdict)


def _record(args: argparse.Namespace, verdict: Verdict) -> int:
    state_dir = StateDir(args.state_dir)
    state_dir.existing(args.run)
    commands = Commands(args.state_dir_shown)
    run_id = _owner(state_dir, args.run, verdict.ref, commands)
    root = root_of(run_id)
    under_way = standing_of(state_dir, root).status == RUNNING
    if (pid := state_dir.holder(run_id)) is not None or (under_way and run_id == root):
        who = f"by process {pid}" if pid else "now"
        raise UsageError(
            f"run {run_id} is being performed {who}, so no verdict can be recorded. "
            f"Wait until it ends, or type: {commands.line('stop', root)}"
        )
    # Of a journal that is lost nothing waits, and whoever opens it begins a new one.
    state_dir.state(run_id)
    if verdict.args is not None:
        trio.run(_check_fit, state_dir, run_id, verdict.ref, verdict.args)
    try:
        recorded = trio.run(record_verdict, state_dir.run_dir(run_id), verdict)
    except VerdictRefused as error:
        raise UsageError(f"{error}. {_see(state_dir, args.run, commands)}") from None
    word = "approved" if verdict.yes else "rejected"
    if recorded:
        output.note(f"{word} call {verdict.ref} of {run_id}")
    else:
        output.note(f"call {verdict.ref} of {run_id} was {word} before; nothing was recorded")
    if not args.no_resume and not under_way:
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
    if under_way:
        output.note(f"{root} is still under way; once all that waits is answered, it goes on")
    else:
        output.note(next_steps(tree_report(state_dir, root), commands))
    return 0


def _owner(state_dir: StateDir, run_id: str, ref: str, commands: Commands) -> str:
    """Whose call it is: the named run's, or that of the only run below it where it waits."""
    calls = [(name, call) for name, call in asked_calls(state_dir, run_id) if call.ref == ref]
    owners = [name for name, call in calls if waits(call)] or [name for name, _ in calls]
    if run_id in owners or not owners:
        return run_id
    if len(owners) > 1:
        raise UsageError(
            f"call {ref} waits in {len(owners)} runs below {run_id}. Name one of them, "
            f"like: {commands.line('approve', owners[0], ref)}. They are {listed(owners)}"
        )
    return owners[0]


def _see(state_dir: StateDir, run_id: str, commands: Commands) -> str:
    """Where to look after a refusal: at the calls that do wait in the tree, if there are any."""
    waiting = [
        f"{name} {call.ref}"
        for name, call in asked_calls(state_dir, root_of(run_id))
        if waits(call) and name != run_id
    ]
    see = f"See: {commands.line('show', run_id)}"
    return f"In its tree these wait: {listed(waiting)}. {see}" if waiting else see


async def _check_fit(state_dir: StateDir, run_id: str, ref: str, edited: str) -> None:
    """Raise UsageError for arguments that the tool would refuse, which would use up a verdict."""
    state = state_dir.state(run_id)
    try:
        call = state.call(ref)
    except KeyError:
        return  # Told by whoever would record the verdict.
    config = state_dir.config(run_id)
    try:
        # A zygote would be warm only when its one process has ended.
        async with open_spawner("subprocess", drop_env=key_names(config)) as spawner:
            await check_arguments(
                spawner, config, state_dir.runs, state.agent, call.written.name, edited
            )
    except ConfigError as error:
        raise UsageError(f"--args cannot be checked, so nothing was recorded: {error}") from None
    except ArgumentError as error:
        raise UsageError(f"--args: {error} Nothing was recorded") from None


def _arguments(text: str) -> str:
    """The arguments as compact JSON."""
    try:
        value = msgspec.json.decode(clean(text))
        if isinstance(value, dict):
            return msgspec.json.encode(value).decode()
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise UsageError(f"--args is no JSON ({error}). {_EXAMPLE}") from None
    raise UsageError(f"--args is JSON, but no object. {_EXAMPLE}")


_EXAMPLE = """Give it like: --args '{"path": "notes.txt"}'"""
