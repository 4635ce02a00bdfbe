"""Approvals anywhere in a tree: it stops as a whole, resumably, and each verdict is used once."""

import json
from typing import Any

import pytest
from grove import Grove, ask, played

from actors.events import ApprovalAsked, Opened, Started
from actors.journal import JournalError
from actors.testing.scripts import Call, Conversation, Say
from actors.verdict import Verdict, VerdictRefused, record_verdict
from supervisor import child as child_module
from supervisor.report import Report

LEAF = "r1.1.0.1.0"
PATH = ("r1", "r1.1.0", LEAF)


@pytest.fixture(autouse=True)
def no_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "BACK_OFF_SECONDS", (0.0,))


def remover(heard: Conversation) -> Any:
    """Ask to remove something, then tell what the transcript says."""
    if heard.turn == 0:
        return Call("remove", {"name": heard.task})
    return Say(f"told: {heard.results[-1]}")


async def answer(grove: Grove, run_id: str, ref: str, yes: bool, **fields: Any) -> bool:
    run_dir = grove.supervisor.state_dir.run_dir(run_id)
    verdict = Verdict(ref=ref, yes=yes, who="tester", **fields)
    return await record_verdict(run_dir, verdict)


async def resume(grove: Grove) -> Report:
    grove.supervisor = grove.another()
    return await grove.supervisor.resume("r1")


def removed(grove: Grove) -> list[str]:
    path = grove.workspace / "removed"
    return path.read_text().splitlines() if path.exists() else []


@played
async def test_an_approval_in_a_grandchild_stops_the_tree(grove: Grove) -> None:
    """Every generation is interrupted for the same call, and its path is told."""
    grove.chain(remover, "remove")
    report = await grove.run()
    assert report.status == "interrupted"
    assert report.interruption == {
        "type": "approval",
        "run_id": LEAF,
        "call": "1.0",
        "tool_name": "remove",
        "args": {"name": "question 0"},
        "path": PATH,
    }
    for run_id in PATH:
        assert grove.state(run_id).outcome == grove.state("r1").outcome
    assert removed(grove) == []
    assert grove.living() == set()


@pytest.mark.parametrize(
    ("verdict", "told", "effect"),
    [
        ({"yes": True}, "removed question 0", [f"{LEAF} question 0"]),
        ({"yes": True, "args": '{"name": "b"}'}, "removed b", [f"{LEAF} b"]),
        ({"yes": False, "reason": "it is mine"}, "The reason: it is mine", []),
    ],
    ids=["approve", "edit", "reject"],
)
@played
async def test_a_verdict_goes_to_the_grandchild(
    grove: Grove, verdict: dict[str, Any], told: str, effect: list[str]
) -> None:
    """The same runs go on from there, with no turn asked twice, and the words come up."""
    grove.chain(remover, "remove")
    await grove.run()
    await answer(grove, LEAF, "1.0", **verdict)
    report = await resume(grove)
    assert report.status == "completed"
    assert report.output
    assert report.output.startswith("completed: completed: told: ")
    assert told in report.output
    assert removed(grove) == effect
    assert grove.runs() == list(PATH)
    assert len(grove.bills()) == 6
    assert [one.ref for one in grove.events("r1", Started)] == ["1.0"]


@played
async def test_a_resume_without_a_verdict_asks_again(grove: Grove) -> None:
    """Nothing runs, nothing is billed, and the same call waits."""
    grove.chain(remover, "remove")
    first = await grove.run()
    again = await resume(grove)
    assert again.interruption == first.interruption
    assert removed(grove) == []
    assert len(grove.bills()) == 3
    assert len(grove.events(LEAF, ApprovalAsked)) == 1


@played
async def test_several_wait_and_are_answered_in_any_order(grove: Grove) -> None:
    """All that wait are listed; partial answers move only those that have one."""
    grove.family(3, remover, "remove")
    report = await grove.run()
    pending = report.interruption["pending"]
    assert [(one["run_id"], one["call"]) for one in pending] == [
        ("r1.1.0", "1.0"),
        ("r1.1.1", "1.0"),
        ("r1.1.2", "1.0"),
    ]
    assert [one["path"] for one in pending] == [("r1", one["run_id"]) for one in pending]

    await answer(grove, "r1.1.2", "1.0", yes=True)
    await answer(grove, "r1.1.0", "1.0", yes=False, reason="no")
    report = await resume(grove)
    assert report.interruption["run_id"] == "r1.1.1"
    assert "pending" not in report.interruption
    assert removed(grove) == ["r1.1.2 question 2"]

    await answer(grove, "r1.1.1", "1.0", yes=True)
    report = await resume(grove)
    assert report.status == "completed"
    assert removed(grove) == ["r1.1.2 question 2", "r1.1.1 question 1"]
    first, second, third = grove.results("r1")
    assert "rejected" in first
    assert second == "completed: told: removed question 1"
    assert third == "completed: told: removed question 2"
    assert [one.why for one in grove.events("r1.1.2", Opened)] == ["start", "verdict", "resume"]


@played
async def test_siblings_finish_before_the_tree_stops(grove: Grove) -> None:
    """What needs no person is done first; it is not done again after the verdict."""

    def child(heard: Conversation) -> Any:
        return remover(heard) if heard.task == "question 0" else Say("done")

    grove.family(3, child, "remove")
    report = await grove.run()
    assert report.interruption["run_id"] == "r1.1.0"
    assert grove.results("r1") == ["completed: done", "completed: done"]
    await answer(grove, "r1.1.0", "1.0", yes=True)
    report = await resume(grove)
    assert report.output == "completed: told: removed question 0\ncompleted: done\ncompleted: done"
    assert [one.why for one in grove.events("r1.1.1", Opened)] == ["start"]


@played
async def test_a_parent_and_its_child_may_both_wait(grove: Grove) -> None:
    """The calls are told apart by the run whose they are."""

    def lead(heard: Conversation) -> Any:
        if heard.turn == 0:
            return [ask("question"), Call("remove", {"name": "own"})]
        return Say("\n".join(heard.results))

    grove.agent("lead", lead, "research", "remove")
    grove.agent("researcher", remover, "remove")
    grove.behind(research="researcher")
    report = await grove.run()
    pending = report.interruption["pending"]
    assert {(one["run_id"], one["call"]) for one in pending} == {("r1", "1.1"), ("r1.1.0", "1.0")}
    await answer(grove, "r1", "1.1", yes=True)
    await answer(grove, "r1.1.0", "1.0", yes=True)
    report = await resume(grove)
    assert report.output == "completed: told: removed question\nremoved own"


@played
async def test_a_verdict_is_used_once(grove: Grove) -> None:
    """It fits neither another call, nor another run, nor a second time."""

    def child(heard: Conversation) -> Any:
        if heard.turn < 2:
            return Call("remove", {"name": "same"})
        return Say("done")

    grove.family(1, child, "remove")
    await grove.run()
    assert await answer(grove, "r1.1.0", "1.0", yes=True)
    assert not await answer(grove, "r1.1.0", "1.0", yes=True)
    for run_id, ref in (("r1.1.0", "1.1"), ("r1", "1.0"), ("r1.1.0", "../1")):
        with pytest.raises(VerdictRefused):
            await answer(grove, run_id, ref, yes=True)
    report = await resume(grove)
    assert report.interruption["call"] == "2.0"
    assert removed(grove) == ["r1.1.0 same"]
    with pytest.raises(VerdictRefused):
        await answer(grove, "r1.1.0", "1.0", yes=True)
    again = await resume(grove)
    assert again.interruption == report.interruption
    assert removed(grove) == ["r1.1.0 same"]


@played
async def test_no_verdict_is_taken_while_the_run_is_under_way(grove: Grove) -> None:
    """Its process holds the lock, and decides nothing behind its own back."""
    grove.family(1, [Call("pause"), Say("done")], "pause")

    async def act() -> None:
        await grove.heard("tool_progress")
        with pytest.raises(JournalError, match="held"):
            await answer(grove, "r1.1.0", "1.0", yes=True)
        grove.go()

    await grove.beside(act)


@pytest.mark.parametrize(
    ("verdict", "words", "notes"),
    [
        ({"yes": True, "happened": True}, "it happened", ["x"]),
        ({"yes": False}, "it did not happen", ["x"]),
        ({"yes": True}, "completed: noted", ["x", "x"]),
    ],
    ids=["done", "not done", "run again"],
)
@played
async def test_a_write_in_doubt_in_a_child_is_put_to_a_person(
    grove: Grove, verdict: dict[str, Any], words: str, notes: list[str]
) -> None:
    """The child's process died in it; the tree stops, and goes on with what the person knows."""

    def child(heard: Conversation) -> Any:
        return Say(heard.results[-1]) if heard.turn else Call("note", {"text": "x"})

    grove.family(1, child, "note", errors='on_in_doubt = "stop"')

    async def act() -> None:
        await grove.heard("tool_progress")
        grove.kill("r1.1.0")

    report = await grove.beside(act)
    assert report.interruption["type"] == "in_doubt"
    assert report.interruption["path"] == ("r1", "r1.1.0")
    grove.go()
    await answer(grove, "r1.1.0", "1.0", **verdict)
    report = await resume(grove)
    assert report.status == "completed"
    assert words in json.dumps(report.output)
    assert (grove.workspace / "notes").read_text().split() == notes


@played
async def test_the_trace_shows_who_waits(grove: Grove) -> None:
    """One line where the person is needed, and one ending a run that names it."""
    grove.chain(remover, "remove")
    await grove.run()
    (line,) = grove.told("approval_required")
    assert (line["run_id"], line["call"], line["args"]) == (LEAF, "1.0", {"name": "question 0"})
    for stopped in grove.told("run_stopped"):
        assert stopped["reason"] == "approval needed for remove (call 1.0)"
