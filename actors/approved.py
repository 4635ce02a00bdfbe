"""What a person's verdict is bound to: a call, its arguments, and the tool as a model sees it."""

from actors.decision import Rules, Run
from actors.state import args_digest
from actors.tool_arguments import Arguments
from actors.tool_errors import ArgumentError
from actors.tools import Tool


def digest_of(rules: Rules, tool: Tool, arguments: Arguments) -> bytes:
    """Names a tool, as it is described to the model, with these arguments: 16 bytes."""
    # The schema is a part of it: a tool that changed voids the approvals it had.
    return args_digest(f"{tool.name}:{rules.catalogue.digest(tool.name)}", arguments.canonical)


def verdict_on(rules: Rules, run: Run) -> str | None:
    """What a person said of this very call, with the tool as it is now; None for nothing."""
    verdict = run.call.verdict
    if verdict is None or verdict.digest != _shown(rules, run):
        return None
    return verdict.verdict


def _shown(rules: Rules, run: Run) -> bytes | None:
    """The digest that a verdict must name: of what the person was shown, with the tool as it is."""
    call, tool = run.call, run.tool
    if call.verdict is None or call.verdict.args is None:
        return run.digest
    # The edit came with the verdict, so the person was asked about what stood there before it.
    try:
        return digest_of(rules, tool, tool.parse(call.shown))
    except ArgumentError:
        return None
