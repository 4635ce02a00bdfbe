"""How a run is told to people: its amounts, its ending, and the command to type next."""

import shlex
from collections.abc import Sequence
from typing import Any

import msgspec

from actors.outcome import Interruption, Outcome, Status, root_of
from supervisor.report import Report, Totals
from supervisor.standing import CUT_OFF
from supervisor.terminal import Style, one_line, visible
from supervisor.waiting import waiting_calls

ARGS_MAX = 4000
"""Characters of a call's arguments that an approval shows; more are shown by ``show --turn``."""
LISTED_MAX = 8
"""Calls or runs that a sentence names."""
WAITING_MAX = 8
"""Calls whose commands are spelled out; how the others are answered can be seen from these."""
_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "m"), (1.0, "s"))


class Commands:
    """The commands to type next, with the state directory where that is not the usual one."""

    def __init__(self, state_dir: str | None = None) -> None:
        """``state_dir`` is what the user gave with ``--state-dir``, if it matters."""
        self._option = ["--state-dir", state_dir] if state_dir else []

    def line(self, *words: str) -> str:
        """``exeunt`` and these words, ready for a shell."""
        return visible(shlex.join(["exeunt", *words, *self._option]))


def money(usd: float) -> str:
    """An amount of money."""
    return f"${usd:.6f}"


def count(number: int, noun: str) -> str:
    """``1 turn``, ``2 turns``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(words: Sequence[str]) -> str:
    """The first few of many."""
    more = f" and {len(words) - LISTED_MAX} more" if len(words) > LISTED_MAX else ""
    return f"{', '.join(words[:LISTED_MAX])}{more}"


def age(seconds: float) -> str:
    """A length of time in its largest unit."""
    for unit, name in _UNITS:
        if seconds >= unit:
            return f"{seconds / unit:.0f}{name}"
    return "0s"


def duration(ms: float) -> str:
    """How long something took, in milliseconds or seconds."""
    return f"{ms:.1f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


def colour(style: Style, status: str) -> str:
    """A status in its colour."""
    match status:
        case Status.COMPLETED:
            return style.green(status)
        case Status.FAILED | "damaged":
            return style.red(status)
        case _:
            return style.bold(status)


def ending(report: Report, style: Style) -> str:
    """One line with what the run came to, and one that says why unless it completed."""
    status = report.status or CUT_OFF
    possibly = report.possibly_spent_usd
    amounts = ", ".join(
        [
            count(report.turns, "turn"),
            count(report.tool_runs, "tool run"),
            f"{report.input_tokens:,}+{report.output_tokens:,} tokens",
            money(report.cost_usd) + (f" (possibly {money(possibly)} more)" if possibly else ""),
        ]
    )
    line = f"{colour(style, status)}  {style.dim(amounts)}"
    if report.children:
        line += f"\n  {style.dim(_tree(report.tree))}"
        line += "".join(f"\n  {style.red(visible(words))}" for words in _unreadable(report))
    why = reason(report)
    return f"{line}\n  {visible(why)}" if why else line


def _tree(tree: Totals) -> str:
    """What a run and everything below it came to."""
    possibly = tree.possibly_spent_usd
    more = f" (possibly {money(possibly)} more)" if possibly else ""
    return (
        f"with its children {count(tree.runs, 'run')}, {count(tree.turns, 'turn')}, "
        f"{count(tree.tool_runs, 'tool run')}, {money(tree.cost_usd)}{more}"
    )


def _unreadable(report: Report) -> list[str]:
    """What is wrong with runs below, which are in no sum."""
    found = [f"{c.run_id}: {c.error}" for c in report.children if c.status is None and c.error]
    return found + [words for child in report.children for words in _unreadable(child)]


def reason(report: Report) -> str | None:
    """Why a run ended other than completed, in one sentence."""
    if report.status is None:
        return report.error or "no ending was recorded; nothing that was saved is lost"
    if report.status == Status.COMPLETED:
        return None
    if report.answered and report.interruption["type"] == "in_doubt":
        # Others may be in doubt, or wait for approval: an ending names the first.
        return "the call that was in doubt is answered"
    if report.answered:
        return "all calls that waited for approval are answered"
    if len(calls := waiting_calls(report.interruption)) > 1:
        return f"{len(calls)} calls wait for approval"
    interruption: Interruption | None = (
        msgspec.convert(report.interruption, Interruption) if report.interruption else None
    )
    return Outcome(Status(report.status), interruption, report.error).reason


def next_steps(report: Report, commands: Commands) -> str:
    """What to type next, after the calls that wait for a person."""
    lines: list[str] = []
    for call in waiting_calls(report.interruption):
        owner = "" if call["run_id"] == report.run_id else f"{call['run_id']} "
        lines.append(f"  {owner}{call['call']}  {visible(call['tool_name'])} {shown(call['args'])}")
    steps = _steps(report, commands)
    width = max(len(command) for command, _ in steps)
    for index, (command, what) in enumerate(steps):
        head = "      " if index else "next: "
        lines.append(f"{head}{command:<{width}}  {what}".rstrip())
    return "\n".join(lines)


def shown(args: Any) -> str:
    """A call's arguments as JSON, so far as ``ARGS_MAX`` allows; a cut says how much is left."""
    whole = visible(msgspec.json.encode(args).decode("utf-8", "replace"))
    if len(whole) <= ARGS_MAX:
        return whole
    return f"{whole[:ARGS_MAX]} [{len(whole) - ARGS_MAX} more characters: see show --turn]"


def short(args: Any, width: int) -> str:
    """A call's arguments as JSON on one line."""
    return one_line(msgspec.json.encode(args).decode("utf-8", "replace"), width)


def _steps(report: Report, commands: Commands) -> list[tuple[str, str]]:
    run_id = report.run_id
    interruption: dict[str, Any] = report.interruption or {}
    match interruption.get("type"), report.status:
        case _ if report.answered:
            return [(commands.line("resume", root_of(run_id)), "goes on with the verdicts")]
        case "approval", _:
            return _verdicts(waiting_calls(interruption), commands)
        case "in_doubt", _:
            owner, call = interruption["run_id"], interruption["call"]
            return [
                (commands.line("approve", owner, call), "run it again"),
                (commands.line("approve", owner, call, "--done"), "it did happen"),
                (commands.line("reject", owner, call), "it did not happen"),
            ]
        case _ if root_of(run_id) != run_id:
            return [(commands.line("show", root_of(run_id)), "")]
        case "max_turns", _:
            cap = str(2 * interruption["max_turns"])
            return [(commands.line("resume", run_id, "--max-turns", cap), "")]
        case "max_budget", _:
            own = interruption["spent_usd"] + interruption["possibly_spent_usd"]
            spent = own + interruption["children_usd"]
            enough = spent + 10 * interruption["next_turn_usd"]
            cap = f"{max(2 * interruption['max_budget_usd'], enough):.2g}"
            return [(commands.line("resume", run_id, "--max-budget-usd", cap), "")]
        case "cancelled", _ if interruption["who"] == "deadline":
            return [(commands.line("resume", run_id), "with --deadline-s S for more time")]
        case _, None | "interrupted":
            return [(commands.line("resume", run_id), "")]
        case _:
            return [(commands.line("show", run_id), "")]


def _verdicts(calls: list[dict[str, Any]], commands: Commands) -> list[tuple[str, str]]:
    """How to answer calls, each by itself; what is said to all is said once."""
    steps: list[tuple[str, str]] = []
    for call in calls[:WAITING_MAX]:
        named = (call["run_id"], call["call"])
        steps += [
            (commands.line("approve", *named), "let it run"),
            (commands.line("reject", *named, "--reason", "..."), "the model reads the reason"),
        ]
    if len(calls) > WAITING_MAX:
        steps.append((commands.line("approve", "RUN", "CALL"), "for each of the others"))
    if len(calls) > 1:
        last = "once all are answered with --no-resume"
        steps.append((commands.line("resume", root_of(calls[0]["run_id"])), last))
    return steps
