"""The children of one run: the tools they stand behind, and the asking for their processes.

An actor starts no process. It asks its supervisor, which answers when the child has ended; what
became of the child is then read from the child's own journal, which nobody retells.
"""

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Annotated

import msgspec
import trio

from actors.child_report import ChildReport, read_child
from actors.messages import Nature
from actors.spec import AgentTool
from actors.tool_arguments import Parameters
from actors.tools import Tool
from actors.wire import ChildEnded, StartChild, StopChild

CHILD_SECONDS_MAX = 7 * 24 * 3600.0
STOP_SECONDS_MAX = 1.0


def child_tools(agents: Iterable[AgentTool]) -> list[Tool]:
    """The tools whose calls are runs of their own."""
    return [
        Tool(
            name=one.name,
            description=one.description,
            nature=Nature.CHILD,
            function=_research,
            parameters=Parameters(_research),
            timeout_seconds=CHILD_SECONDS_MAX,
            agent=one.agent,
            budget_nusd=one.max_budget_nusd,
        )
        for one in agents
    ]


def _research(
    question: Annotated[str, msgspec.Meta(description="What to find out.", min_length=1)],
) -> str:
    """Hand a question to an agent of its own."""
    raise AssertionError(f"a child answers {question!r}, not this function")


class ChildRefused(Exception):
    """The supervisor does not start this child, in words for the model."""


class Children:
    """One actor's children, by the refs of the calls that they answer."""

    def __init__(
        self,
        run_dir: Path,
        send: Callable[[StartChild | StopChild], Awaitable[None]] | None = None,
    ) -> None:
        """Without ``send`` there is no supervisor, and every child is refused."""
        self._run_dir = run_dir
        self._send = send
        self._ended: dict[str, trio.Event] = {}
        self._refused: dict[str, str] = {}

    async def run(self, ref: str, agent: str, task: str, limit_nusd: int | None) -> ChildReport:
        """Start the child of a call, or go on with it, and report when it has ended.

        Raises ChildRefused. Cancelled, it asks for the child's Stop and does not wait for it.
        """
        if self._send is None:
            raise ChildRefused("not run: there is no supervisor to start a child")
        self._ended[ref] = trio.Event()
        try:
            await self._send(StartChild(ref, agent, task, limit_nusd))
            await self._ended[ref].wait()
        except trio.Cancelled:
            with trio.move_on_after(STOP_SECONDS_MAX, shield=True):
                await self._send(StopChild(ref, "its parent stopped waiting for it"))
            raise
        finally:
            del self._ended[ref]
        if refused := self._refused.pop(ref, ""):
            raise ChildRefused(refused)
        return self.report(ref)

    def ended(self, frame: ChildEnded) -> None:
        """Take in the supervisor's word that a child has ended."""
        if frame.ref in self._ended:
            if frame.refused:
                self._refused[frame.ref] = frame.refused
            self._ended[frame.ref].set()

    def report(self, ref: str) -> ChildReport:
        """What the journal of a child says now."""
        return read_child(self._run_dir.parent / f"{self._run_dir.name}.{ref}")
