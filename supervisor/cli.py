"""The command line: reads the arguments, hands them to the verb's module, words what goes wrong.

Nothing heavy is imported before a verb needs it, so that ``exeunt --help`` answers at once.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NoReturn

from actors.version import VERSION
from supervisor.cli_numbers import amount, amount_or_zero, count, count_or_zero, port, seed
from supervisor.commands import UsageError

STATE_DIR = ".exeunt"
STATE_DIR_VARIABLE = "EXEUNT_STATE_DIR"
EXIT_USAGE = 2
EXIT_CTRL_C = 130
_KNOWN = (
    ("supervisor.commands", "UsageError"),
    ("supervisor.config_errors", "ConfigError"),
    ("supervisor.state_dir", "StateError"),
    ("supervisor.spawned", "SpawnError"),
    ("supervisor.scripted", "ScriptedError"),
    ("supervisor.supervisor", "RunRefused"),
    ("actors.journal", "JournalError"),
)
"""Where the errors are that are told in one sentence; everything else is a bug, and traces."""

_DESCRIPTION = "Runs research agents as a tree of processes; every run is its journal."
_EPILOG = "exeunt VERB --help explains a verb."
_CHAOS = (
    "The model is a script and the files are a copy, but tools really run, in every round. Calls "
    "that need approval are approved. exit codes: 0 promises kept, 1 broken, nothing "
    "struck, or the tree fails undisturbed, 2 usage or configuration error, 6 interrupted: "
    "what was found until then is told"
)
_EXIT_CODES = (
    "exit codes: 0 completed, 1 failed, 2 usage or configuration error, 3 max_turns_exceeded, "
    "4 budget_exceeded, 5 interrupted (approval or in doubt), 6 interrupted (cancelled)"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the arguments say (those of the process by default); returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        _open_standard_streams()
        return _dispatch(words)
    except KeyboardInterrupt:
        return EXIT_CTRL_C
    except Exception as error:
        known = _known(error)
        if known is None:
            raise
        return _fail(known, as_json="--json" in words)


def _open_standard_streams() -> None:
    """Put something where a caller closed a descriptor, lest a socket of ours take its number."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            if fd:
                stream = open(fd, "w", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
                setattr(sys, ("stdin", "stdout", "stderr")[fd], stream)


def _dispatch(words: list[str]) -> int:
    args = parse(words)
    module, _, function = str(args.command).partition(":")
    command: Callable[[argparse.Namespace], int] = getattr(
        import_module(f"supervisor.commands.{module}"), function
    )
    return command(args)


def parse(words: list[str]) -> argparse.Namespace:
    """The arguments with the state directory filled in; raises UsageError."""
    args, rest = parser().parse_known_args(words)
    # ``--set A=1 B=2``: more values of one option come back as rest, since an option that took
    # them all would take CONFIG too.
    if getattr(args, "sets", None) and all("=" in word and word[0] != "-" for word in rest):
        args.sets += rest
        rest = []
    if rest:
        raise UsageError(f"what is {rest[0]!r}? See: exeunt {args.verb} --help")
    if getattr(args, "sets", None) and args.config is None:
        raise UsageError(
            "--set changes a key of a configuration; name its file too. See: exeunt doctor --help"
        )
    usual = os.environ.get(STATE_DIR_VARIABLE) or STATE_DIR
    given: str | None = getattr(args, "state_dir", None)
    args.state_dir = given or usual
    args.state_dir_shown = given if given and given != usual else None
    args.json = getattr(args, "json", False)
    return args


def _known(error: BaseException) -> str | None:
    """The words of an error that is no bug of ours."""
    if isinstance(error, ExceptionGroup):
        words = [_known(inner) for inner in error.exceptions]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType, reportUnknownMemberType]
        return None if None in words else "; ".join(sorted({str(word) for word in words}))
    # An error of a module that was never imported cannot have been raised.
    kinds = tuple(getattr(sys.modules[m], n) for m, n in _KNOWN if m in sys.modules)
    return str(error) if isinstance(error, kinds) else None


def _fail(words: str, *, as_json: bool) -> int:
    from supervisor import output  # here, as --help needs none of it

    output.note(f"exeunt: {words}")
    if as_json:
        output.document({"error": words})
    return EXIT_USAGE


class _Parser(argparse.ArgumentParser):
    """One whose mistakes are UsageErrors, and whose options are written out in full."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See: {self.prog} --help")


def parser() -> argparse.ArgumentParser:
    """The parser of every verb; ``command`` is set to ``module:function`` of what does it."""
    common = _Parser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument(
        "--state-dir",
        metavar="DIR",
        help=f"where runs are kept (env {STATE_DIR_VARIABLE}; default {STATE_DIR})",
    )
    common.add_argument("--json", action="store_true", help="print one JSON document")
    top = _Parser(prog="exeunt", description=_DESCRIPTION, epilog=_EPILOG, parents=[common])
    top.add_argument("--version", action="version", version=f"exeunt {VERSION}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, command: str, words: str, epilog: str | None = None) -> _Parser:
        made = verbs.add_parser(
            name,
            help=words,
            description=f"{words[0].upper()}{words[1:]}.",
            epilog=epilog,
            parents=[common],
        )
        made.set_defaults(command=command)
        return made

    _add_performing(verb)
    _add_looking(verb)
    _add_serving(verb)
    _add_chaos(verb)
    return top


_Verb = Callable[..., argparse.ArgumentParser]


def _add_performing(verb: _Verb) -> None:
    run = verb("run", "run:run", "start a run and follow it to its end", _EXIT_CODES)
    _config_arguments(run)
    run.add_argument("--task", metavar="T", help="what the agent is asked, instead of run.task")
    run.add_argument("--run-id", metavar="ID", help="the run's name; a short one is made up")
    resume = verb("resume", "run:resume", "go on with a run from disk", _EXIT_CODES)
    _run_argument(resume)
    resume.add_argument("--max-turns", metavar="N", type=count, help="a new turn cap")
    resume.add_argument("--max-budget-usd", metavar="X", type=amount, help="a new budget, USD")
    resume.add_argument("--deadline-s", metavar="S", type=amount, help="a new deadline, seconds")
    approve = verb("approve", "verdict:approve", "allow a call that waits, and go on", _EXIT_CODES)
    _call_arguments(approve)
    approve.add_argument("--args", metavar="JSON", help="run it with these arguments instead")
    approve.add_argument("--done", action="store_true", help="a call in doubt: it did happen")
    reject = verb("reject", "verdict:reject", "refuse a call that waits, and go on", _EXIT_CODES)
    _call_arguments(reject)
    reject.add_argument("--reason", metavar="T", default="", help="the model reads this")
    reject.add_argument(
        "--not-done", action="store_true", help="a call in doubt: it did not happen"
    )
    stop = verb("stop", "stop:stop", "stop a run and what is below it, from any terminal")
    _run_argument(stop)
    stop.add_argument("--reason", metavar="T", help="what the record says")
    tell = verb("tell", "tell:tell", "give a run a message, which it reads at its next turn")
    _run_argument(tell)
    tell.add_argument("text", metavar="TEXT", help="what the model reads, as a user's message")


def _add_looking(verb: _Verb) -> None:
    ps = verb("ps", "ps:ps", "list the runs as a tree")
    ps.add_argument("run", metavar="RUN", nargs="?", help="this run and its children alone")
    show = verb("show", "show:show", "show a run's transcript")
    _run_argument(show)
    show.add_argument("--turn", metavar="N", type=count, help="this turn alone, and whole")
    trace = verb("trace", "trace:trace", "print the event lines of a run and its children")
    _run_argument(trace)
    trace.add_argument("--follow", action="store_true", help="go on until the run has ended")
    journal = verb("journal", "journal:journal", "cut the damaged end off a run's journal")
    journal.add_argument("action", metavar="repair", choices=("repair",), help="the one action")
    _run_argument(journal)
    journal.add_argument("--yes", action="store_true", help="do it; else say what would be cut")


def _add_serving(verb: _Verb) -> None:
    provider = verb("provider", "provider:provider", "serve the scripted provider alone")
    provider.add_argument("--port", metavar="P", type=port, default=0, help="default: any")
    provider.add_argument(
        "--window-tokens",
        metavar="N",
        type=count_or_zero,
        default=0,
        help="refuse larger requests",
    )
    provider.add_argument(
        "--latency-ms",
        metavar="N",
        type=amount_or_zero,
        default=0.0,
        help="wait before each answer",
    )
    provider.add_argument(
        "--script", metavar="S", default="", help="plays for models that are no script"
    )
    provider.add_argument(
        "--scripts",
        metavar="MODULE",
        nargs="+",
        action="extend",
        default=[],
        help="modules with more scripts",
    )
    provider.add_argument("--ledger", metavar="FILE", help="gets one JSON line a billed reply")
    doctor = verb("doctor", "doctor:doctor", "check the machine, and a configuration")
    _config_arguments(doctor, nargs="?")
    completion = verb("completion", "completion:completion", "print completions for a shell")
    completion.add_argument(
        "shell", metavar="SHELL", choices=("bash", "zsh", "tcsh"), help="bash, zsh or tcsh"
    )


def _add_chaos(verb: _Verb) -> None:
    chaos = verb("chaos", "chaos:chaos", "kill a part of a tree, again and again", _CHAOS)
    _config_arguments(chaos)
    chaos.add_argument("--kills", metavar="N", type=count, help="rounds; default 20")
    chaos.add_argument("--seed", metavar="S", type=seed, help="the same plans again")
    chaos.add_argument("--recorded", metavar="RUN", help="a real run, whose replies are replayed")
    chaos.add_argument("--plan", metavar="P", dest="plans", action="append", help="just this round")


def _config_arguments(made: argparse.ArgumentParser, **options: Any) -> None:
    made.add_argument("config", metavar="CONFIG", help="a TOML file", **options)
    words = "change a key of the configuration, like agents.lead.limits.max_turns=8"
    made.add_argument(
        "--set", metavar="KEY=VALUE", dest="sets", action="append", default=[], help=words
    )


def _run_argument(made: argparse.ArgumentParser) -> None:
    made.add_argument("run", metavar="RUN", help="the run's name, as ps lists it")


def _call_arguments(made: argparse.ArgumentParser) -> None:
    _run_argument(made)
    made.add_argument("call", metavar="CALL", help="the call's name, like 2.0")
    made.add_argument(
        "--no-resume", action="store_true", help="record the verdict, and leave the run as it is"
    )
