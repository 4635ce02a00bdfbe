"""``exeunt show``: a run's transcript for people, or its whole state as JSON."""

import argparse
import sys
from typing import Any, cast

import msgspec

from actors.events import Replied
from actors.messages import ResultKind
from actors.money import usd
from actors.outcome import NOT_RUN, RESUMABLE, root_of
from actors.state import Call, Turn
from actors.trace import shown_args
from supervisor import output
from supervisor.commands import UsageError
from supervisor.report import tree_report
from supervisor.standing import RUNNING, Standing, standing_of
from supervisor.state_dir import StateDir
from supervisor.terminal import Style, visible
from supervisor.words import Commands, colour, ending, money, next_steps, shown

LINES_MAX = 12
"""Lines of one text that the transcript shows; ``--turn`` shows them all."""
COLUMNS_MAX = 400
_VERDICTS = {
    "approve": "approved",
    "reject": "rejected",
    "run_again": "run it again",
    "done": "it did happen",
    "not_done": "it did not happen",
}


def show(args: argparse.Namespace) -> int:
    """Show a run; ``--turn`` shows one turn of it whole."""
    state_dir = StateDir(args.state_dir)
    state_dir.existing(args.run)
    standing = standing_of(state_dir, args.run)
    if standing.error:
        raise UsageError(standing.error)
    state = standing.state
    number: int | None = args.turn
    if number is not None and number > len(state.turns):
        raise UsageError(f"run {args.run} has {len(state.turns)} turns, so there is no {number}")
    if args.json:
        output.document(_document(state_dir, standing))
        return 0
    style = Style(sys.stdout)
    costs = _costs(state_dir, args.run)
    if number is not None:
        output.text(turn_text(state.turns[number - 1], costs, style, run_id=args.run))
        return 0
    commands = Commands(args.state_dir_shown)
    lines = [_header(standing, style), *_story(standing, costs, style, commands)]
    lines.append(_end(state_dir, standing, style, commands))
    output.text("\n\n".join(lines))
    return 0


def _story(
    standing: Standing, costs: dict[int, str], style: Style, commands: Commands
) -> list[str]:
    """What the model was given, its turns, and what a person said in between."""
    state = standing.state
    parts = [_prompt(prompt.role, prompt.text, style) for prompt in state.prompts]
    told = list(state.told)
    for turn in state.turns:
        while told and told[0][0] < turn.number:
            parts.append(_prompt("user", told.pop(0)[1], style))
        whole = commands.line("show", standing.run_id, "--turn", str(turn.number))
        parts.append(turn_text(turn, costs, style, whole, standing.run_id))
    return parts + [_prompt("user", text, style) for _, text in told]


def _header(standing: Standing, style: Style) -> str:
    state = standing.state
    pid = f"  process {standing.pid}" if standing.pid else ""
    agent = visible(f"agent {state.agent}")
    return (
        f"{style.bold('run')} {standing.run_id}  {style.dim(agent)}  "
        f"{colour(style, standing.status)}{pid}"
    )


def _end(state_dir: StateDir, standing: Standing, style: Style, commands: Commands) -> str:
    if standing.state.outcome is None and standing.pid is not None:
        return f"running; follow it with: {commands.line('trace', standing.run_id, '--follow')}"
    told = tree_report(state_dir, standing.run_id)
    outcome = standing.state.outcome
    if outcome and outcome.status not in RESUMABLE:
        return ending(told, style)
    root = root_of(standing.run_id)
    if told.answered and standing_of(state_dir, root).status == RUNNING:
        return f"{ending(told, style)}\n{root} is still under way, and goes on with the verdicts"
    return f"{ending(told, style)}\n{next_steps(told, commands)}"


def _prompt(role: str, text: str, style: Style) -> str:
    return f"{style.bold(visible(role))}\n{_block(text, '  ', 'exeunt show --json')}"


def turn_text(
    turn: Turn, costs: dict[int, str], style: Style, whole: str | None = None, run_id: str = ""
) -> str:
    """A turn: what the model wrote, its calls and their results; ``whole`` shows what is cut.

    ``run_id`` is whose turn it is, so that its children can be named.
    """
    cut = f"  {style.red('cut at the output limit')}" if turn.finish == "length" else ""
    lines = [f"{style.bold('turn')} {turn.number}  {style.dim(costs.get(turn.number, ''))}{cut}"]
    if turn.message.text:
        lines.append(_block(turn.message.text, "  ", whole))
    lines += [_call(call, style, whole, run_id) for call in turn.calls]
    return "\n".join(lines)


def _call(call: Call, style: Style, whole: str | None, run_id: str) -> str:
    name = style.bold(visible(call.written.name))
    lines = [f"  {call.ref}  {name} {shown(shown_args(call))}"]
    if call.is_child and not (call.result and call.result.child_status == NOT_RUN):
        lines.append(f"    {style.dim(f'run {run_id}.{call.ref}')}")
    if call.verdict:
        verdict = call.verdict
        edited = " with other arguments" if verdict.args is not None else ""
        because = f": {verdict.reason}" if verdict.reason else ""
        word = _VERDICTS.get(verdict.verdict, verdict.verdict)
        lines.append(f"    {visible(f'{verdict.who}: {word}{edited}{because}')}")
    if call.result is None:
        word = "started, no result yet" if call.attempts else "has not run"
        lines.append(f"    {style.bold(word)}")
    else:
        kind = call.result.outcome
        good = kind in (ResultKind.OK, ResultKind.DEDUPED)
        lines.append(f"    {style.green(kind.value) if good else style.red(kind.value)}")
        lines.append(_block(call.result.content, "      ", whole))
    return "\n".join(lines)


def _block(text: str, indent: str, whole: str | None) -> str:
    """An indented text; with ``whole``, its first lines and how to see the rest."""
    lines = visible(text, multiline=True).split("\n")
    kept = lines
    if whole is not None:
        kept = [
            line if len(line) <= COLUMNS_MAX else f"{line[:COLUMNS_MAX]}…"
            for line in lines[:LINES_MAX]
        ]
        if kept != lines:
            rest = len(lines) - len(kept)
            kept.append(f"[{rest} more lines: {whole}]" if rest else f"[cut: {whole}]")
    return "\n".join(f"{indent}{line}" for line in kept)


def _costs(state_dir: StateDir, run_id: str) -> dict[int, str]:
    """What each turn took, in words."""
    return {
        event.turn: f"{event.usage.input_tokens:,} in  {event.usage.output_tokens:,} out  "
        f"{money(usd(event.cost_nusd))}"
        for event in state_dir.events(run_id)
        if isinstance(event, Replied)
    }


def _document(state_dir: StateDir, standing: Standing) -> dict[str, Any]:
    """The whole state as JSON data, with bytes in hexadecimal and the head by its names."""
    state = cast(dict[str, Any], _hex(msgspec.to_builtins(standing.state, builtin_types=(bytes,))))
    state["head"] = msgspec.structs.asdict(standing.state.head)
    if outcome := state["outcome"]:
        # Verdicts that came after the ending are in the journals of the runs whose calls they are.
        outcome["interruption"] = tree_report(state_dir, standing.run_id).interruption
    return {"run_id": standing.run_id, "status": standing.status, "pid": standing.pid} | {
        key: value for key, value in state.items() if key != "run_id"
    }


def _hex(value: Any) -> Any:
    match value:
        case bytes():
            return value.hex()
        case dict():
            pairs = cast(dict[Any, Any], value).items()
            return {_hex(key): _hex(item) for key, item in pairs}
        case list() | tuple():
            return [_hex(item) for item in cast(list[Any], value)]
        case _:
            return value
