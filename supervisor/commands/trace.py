"""``exeunt trace``: the event lines of a run and its children."""

import argparse

import msgspec
import trio

from actors.outcome import root_of
from supervisor import output
from supervisor.output import json_text
from supervisor.standing import RUNNING, standing_of, tree_ids
from supervisor.state_dir import StateDir
from supervisor.trace_lines import Line, Merged, all_lines
from supervisor.words import Commands

POLL_SECONDS = 0.1
STANDING_POLLS = 10
"""Polls between two looks at whether the run is still performed."""


def trace(args: argparse.Namespace) -> int:
    """Print the lines that are there, and with ``--follow`` those that come."""
    state_dir = StateDir(args.state_dir)
    state_dir.existing(args.run)
    following = args.follow and not standing_of(state_dir, args.run).ended
    if following and args.json:
        trio.run(_wait, state_dir, args.run)
    elif following:
        trio.run(_follow, state_dir, args.run, Commands(args.state_dir_shown))
        return 0
    lines = all_lines(state_dir, tree_ids(state_dir, args.run), _warn)
    if args.json:
        output.document([msgspec.Raw(line.raw) for line in lines])
        return 0
    for line in lines:
        if not _print(line):
            break
    return 0


def _warn(run_id: str, error: object) -> None:
    """Say that the lines of a run may be fewer than what happened."""
    output.note(f"exeunt: of {run_id} these are the lines in its trace file alone: {error}")


def _print(line: Line) -> bool:
    return output.text(json_text(line.raw))


async def _follow(state_dir: StateDir, root: str, commands: Commands) -> None:
    """Print lines until the root run has ended, or nobody reads them any more."""
    lines = Merged(state_dir, root)
    told = False
    polls = 0
    while True:
        # Asked before the files are read, so that what the run wrote last is among the lines.
        standing = standing_of(state_dir, root) if polls % STANDING_POLLS == 0 else None
        if not all(map(_print, lines.read())):
            return
        if lines.ended or (standing and (standing.ended or standing.error)):
            any(not _print(line) for line in lines.rest())
            if standing and standing.error:
                _warn(root, standing.error)
            return
        if standing and standing.status != RUNNING and not told:
            hint = commands.line("resume", root_of(root))
            output.note(f"{root} is {standing.status}; waiting until somebody types: {hint}")
            told = True
        polls += 1
        await trio.sleep(POLL_SECONDS)


async def _wait(state_dir: StateDir, root: str) -> None:
    """Wait until nobody performs a run any more."""
    while True:
        if standing_of(state_dir, root).status != RUNNING:
            return
        await trio.sleep(POLL_SECONDS)
