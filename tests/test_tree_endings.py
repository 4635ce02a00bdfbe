"""The five endings, fresh and resumed, of a root and of a child: what is recorded and what is read.

And the trace of a tree: who started whom, and how each ended.
"""

import json
from typing import Any

import msgspec
import pytest
from grove import Grove, fan, played

from actors.messages import ResultKind
from actors.outcome import RESUMABLE, Status
from actors.testing.scripts import Call, Say

FOUND = "; findings so far:\npause gave: went on"


class Ending(msgspec.Struct, frozen=True):
    """An ending, how a run comes to it behind its first call, and what a parent reads of it."""

    status: Status
    exit_code: int
    then: Any
    words: str
    why: str = ""
    tools: tuple[str, ...] = ()
    limits: dict[str, Any] = {}


ENDINGS = [
    Ending(Status.COMPLETED, 0, Say("found it"), "completed: found it"),
    Ending(
        Status.FAILED,
        1,
        Call("forbid_later"),
        f"failed: forbid_later: error: PermissionError: not yours{FOUND}",
        tools=("forbid_later",),
    ),
    Ending(
        Status.MAX_TURNS,
        3,
        Say("never said"),
        f"max_turns_exceeded after 1 turn{FOUND}",
        "max_turns",
        limits={"max_turns": 1},
    ),
    Ending(
        Status.MAX_BUDGET,
        4,
        Say("never said"),
        f"budget_exceeded after 1 turn{FOUND}",
        "max_budget",
        limits={"max_budget_usd": 0.0001, "strict_budget": False},
    ),
    Ending(
        Status.INTERRUPTED,
        6,
        Say("never said"),
        f"interrupted after 1 turn (pause has run){FOUND}",
        "cancelled",
        limits={"stop_after_tool": "pause"},
    ),
]


@pytest.mark.parametrize("where", ["root", "child"])
@pytest.mark.parametrize("how", ["fresh", "resumed"])
@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.status.value)
@played
async def test_an_ending_is_the_same_wherever_it_comes(
    grove: Grove, ending: Ending, how: str, where: str
) -> None:
    """Its word comes first, then why, then what was found; never empty, never like a success."""
    name = "lead" if where == "root" else "researcher"
    grove.agent(name, [Call("pause"), ending.then], "pause", *ending.tools, **ending.limits)
    if where == "child":
        grove.agent("lead", fan(1), "research")
        grove.behind(research="researcher")
    report = await performed(grove, how)
    run_id = "r1" if where == "root" else "r1.1.0"
    outcome = grove.state(run_id).outcome
    assert outcome
    assert outcome.status is ending.status
    if where == "root":
        assert (report.status, report.exit_code) == (ending.status.value, ending.exit_code)
        assert (report.interruption or {"type": ""})["type"] == ending.why
    else:
        (call,) = grove.state("r1").turns[0].calls
        assert call.result
        assert call.result.content == ending.words
        done = ending.status is Status.COMPLETED
        assert call.result.outcome is (ResultKind.OK if done else ResultKind.ERROR)
        assert call.result.child_status == ending.status
        assert report.status == "completed"
        assert report.children[0].status == ending.status.value
        (stopped,) = grove.told("child_stopped")
        assert (stopped["child_id"], stopped["status"]) == ("r1.1.0", ending.status.value)
    await check_final(grove, run_id, ending.status)


async def performed(grove: Grove, how: str) -> Any:
    """Run the tree through, or kill all of it in its first tool and go on with it."""
    if how == "fresh":
        grove.go()
        return await grove.run()

    async def act() -> None:
        await grove.heard("tool_progress")
        grove.supervisor.kill()

    await grove.beside(act)
    grove.go()
    grove.supervisor = grove.another()
    return await grove.supervisor.resume("r1")


async def check_final(grove: Grove, run_id: str, status: Status) -> None:
    """A resume of what has ended asks no model, and says the same again."""
    before = len(grove.bills())
    again = await grove.another().resume("r1")
    assert len(grove.bills()) == before
    if run_id == "r1" and status in RESUMABLE:
        assert again.status == status.value


@played
async def test_the_trace_of_a_tree_tells_who_started_whom(grove: Grove) -> None:
    """Each run numbers its own lines; by time they merge into one story."""
    grove.chain([Call("list_files"), Say("done")], "list_files")
    await grove.run()
    lines: list[dict[str, Any]] = []
    for run_id in grove.runs():
        path = grove.supervisor.state_dir.run_dir(run_id) / "trace.jsonl"
        own = [json.loads(line) for line in path.read_bytes().splitlines()]
        assert [line["seq"] for line in own] == list(range(1, len(own) + 1))
        assert {line["run_id"] for line in own} == {run_id}
        assert {line["root_id"] for line in own} == {"r1"}
        lines += own
    lines.sort(key=lambda line: line["at"])
    story = [
        (line["type"], line["run_id"], line.get("child_id", ""), line.get("agent", ""))
        for line in lines
        if line["type"] in ("child_started", "child_stopped", "run_stopped")
    ]
    leaf = "r1.1.0.1.0"
    assert story == [
        ("child_started", "r1", "r1.1.0", "middle"),
        ("child_started", "r1.1.0", leaf, "leaf"),
        ("run_stopped", leaf, "", ""),
        ("child_stopped", "r1.1.0", leaf, ""),
        ("run_stopped", "r1.1.0", "", ""),
        ("child_stopped", "r1", "r1.1.0", ""),
        ("run_stopped", "r1", "", ""),
    ]
    assert sorted(lines, key=lambda line: line["at"]) == sorted(
        grove.lines, key=lambda line: line["at"]
    )
