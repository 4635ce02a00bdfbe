"""Whatever ends a run in the middle of a tree, what was found below it reaches the run above."""

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import trio
from grove import Grove, fan, played

from actors.testing.scripts import Call, Say
from supervisor.stop_socket import StopRequest
from supervisor.stop_socket import ask as ask_socket

LOOKS_AND_WAITS = [Call("list_files"), Call("dawdle")]
NOT_STRICT: dict[str, Any] = {"strict_budget": False}


class End(msgspec.Struct, frozen=True):
    """What ends the run in the middle, and what it then says; ``stops``: a person does it."""

    words: str
    limits: dict[str, Any] = {}
    leaf: Sequence[Call | Say] = tuple(LOOKS_AND_WAITS)
    leaf_limits: dict[str, Any] = {}
    stops: bool = False


ENDS = {
    "stop": End("interrupted after 1 turn (enough)", stops=True),
    "idle": End("interrupted after 1 turn (no progress for 1 s)", {"idle_s": 1.0}),
    "deadline": End(
        "interrupted after 1 turn (the deadline of 2 s is reached)", {"deadline_s": 2.0}
    ),
    "budget": End(
        "budget_exceeded after 1 turn",
        {"max_budget_usd": 0.0015},
        [Call("list_files")],
        NOT_STRICT,
    ),
    "max turns": End(
        "max_turns_exceeded after 1 turn",
        {"max_turns": 1},
        [Call("list_files")],
        {"max_turns": 1},
    ),
}
SLOW = ("idle", "deadline")


def generations(grove: Grove, depth: int, end: End) -> list[str]:
    """A lead, ``depth`` generations below it, the first of which has the limits; their ids."""
    names = ["lead", *(f"middle_{number}" for number in range(1, depth)), "leaf"]
    tools = {name: f"to_{name}" for name in names[1:]}
    limits = {"lead": {"max_depth": depth}, "middle_1": end.limits}
    for above, below in itertools.pairwise(names):
        own: dict[str, Any] = NOT_STRICT | limits.get(above, {})
        grove.agent(above, fan(1, tools[below]), tools[below], **own)
    grove.agent("leaf", end.leaf, "list_files", "dawdle", **end.leaf_limits)
    grove.behind(**{tool: name for name, tool in tools.items()})
    return ["r1" + ".1.0" * level for level in range(depth + 1)]


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize(
    "end",
    [
        pytest.param(end, id=name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name, end in ENDS.items()
    ],
)
@played
async def test_what_the_lowest_run_found_reaches_the_root(
    grove: Grove, end: End, depth: int
) -> None:
    """The run below the root is ended, and that reaches the leaf or comes of how the leaf ended."""
    runs = generations(grove, depth, end)

    async def act() -> None:
        await grove.heard("tool_progress", runs[-1])
        if end.stops:
            run_dir = grove.supervisor.state_dir.run_dir("r1")
            request = StopRequest(runs[1], "enough")
            assert await trio.to_thread.run_sync(ask_socket, run_dir, request)

    report = await grove.beside(act)
    assert report.status == "completed"
    for run_id in runs[:-1]:
        (result,) = grove.results(run_id)
        assert "errors.log" in result, f"{run_id} read: {result}"
    assert grove.results("r1")[0].startswith(end.words)
