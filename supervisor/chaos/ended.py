"""What a tree came to, as far as it is compared with the same tree undisturbed."""

from collections.abc import Iterable

import msgspec

from actors import file_tools, note_tools
from actors.messages import Nature, ResultKind
from actors.tools import Tool

SHIPPED = frozenset(
    one.name
    for module in (file_tools, note_tools)
    for one in vars(module).values()
    if isinstance(one, Tool)
)
"""Names of the tools that come with Exeunt; all others are the user's."""


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """A call that a tool was started for, in whichever run; times in Unix seconds."""

    tool: str
    run: str
    call: str
    nature: Nature
    attempts: int
    outcome: ResultKind | None
    said: str
    started_at: float
    ended_at: float
    behind: bool = False
    """It was answered, and the process that ran it is gone: so is all that it had left running."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """What a tree came to."""

    status: str
    output: str | None
    error: str | None
    workspace: dict[str, str]
    """Size and digest of each file."""
    runs: tuple[str, ...]
    ran: tuple[Ran, ...] = ()
    short: tuple[str, ...] = ()
    """Agents whose budget a kill used up, as what was possibly spent counts."""
    unlike: bool = False
    """Something else was said or done than undisturbed, as it may be, so the answer may differ."""

    @property
    def users(self) -> tuple[Ran, ...]:
        """Calls of the user's own tools."""
        return tuple(one for one in self.ran if one.tool not in SHIPPED)

    @property
    def natures(self) -> dict[str, Nature]:
        """Nature of each tool that was started, as the journals have it."""
        return {one.tool: one.nature for one in self.ran}

    @property
    def doubts(self) -> tuple[str, ...]:
        """Tools of calls whose outcome nobody knew after a kill."""
        return tool_names(one for one in self.ran if one.outcome is ResultKind.IN_DOUBT)

    @property
    def again(self) -> tuple[str, ...]:
        """Tools of calls that were started more than once."""
        return tool_names(one for one in self.ran if one.attempts > 1)


def tool_names(calls: Iterable[Ran]) -> tuple[str, ...]:
    """The tools of some calls, each once."""
    return tuple(sorted({one.tool for one in calls}))
