"""``exeunt completion``: the script that teaches a shell our verbs and options."""

import argparse
from typing import Any, cast

import shtab

from supervisor import output
from supervisor.cli import parser

_PATHS = frozenset({"config", "ledger"})
_FOLDERS = frozenset({"state_dir"})


def completion(args: argparse.Namespace) -> int:
    """Print the completions of the whole command line."""
    top = parser()
    _complete_paths(top)
    output.text(shtab.complete(top, shell=args.shell).rstrip("\n"))
    return 0


def _complete_paths(part: argparse.ArgumentParser) -> None:
    for action in cast(list[Any], part._actions):
        if action.dest in _PATHS:
            action.complete = shtab.FILE
        elif action.dest in _FOLDERS:
            action.complete = shtab.DIRECTORY
        if action.dest == "verb":
            for inner in action.choices.values():
                _complete_paths(inner)
