"""Limits of a tree: refused in words, and the run goes on."""

from typing import Any

import pytest
from grove import Grove, ask, echo, fan, played

from actors.child_report import reason_of
from actors.testing.faults import Fault, FaultKind
from actors.testing.scripts import Call, Conversation, Say
from supervisor.cli import main

UNAUTHORIZED = [Fault(turn=1, kind=FaultKind.UNAUTHORIZED)]


def nested(heard: Conversation) -> Any:
    """Ask one more child, then tell what it said."""
    return fan(1)(heard)


@pytest.mark.parametrize("depth", [1, 2, 3])
@played
async def test_a_tree_is_as_deep_as_it_may_be(grove: Grove, depth: int) -> None:
    """An agent that always delegates is told so at the bottom, and answers from that."""
    grove.agent("lead", nested, "research", max_depth=depth)
    grove.behind(research="lead")
    report = await grove.run()
    assert report.status == "completed"
    assert len(grove.runs()) == 1 + depth
    words = f"not run: the tree's depth below its root is limited to {depth}"
    assert report.output == "completed: " * depth + words
    for kind in ("child_started", "child_stopped"):
        assert sorted(line["child_id"] for line in grove.told(kind)) == grove.runs()[1:]


@played
async def test_a_run_has_as_many_children_as_it_may(grove: Grove) -> None:
    """In its whole life: over one message and the next."""

    def lead(heard: Conversation) -> Any:
        if heard.turn < 2:
            return [ask(f"{heard.turn} {number}") for number in range(2)]
        return Say("\n".join(heard.results))

    grove.agent("lead", lead, "research", max_children=3)
    grove.agent("researcher", echo)
    grove.behind(research="researcher")
    report = await grove.run()
    assert report.output == (
        "completed: about 0 0\ncompleted: about 0 1\ncompleted: about 1 0\n"
        "not run: this run has started 3 children, its limit"
    )
    assert len(grove.runs()) == 4


@played
async def test_a_tree_has_as_many_runs_as_it_may(
    grove: Grove, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counted over the whole tree and its whole life, whichever process goes on with it."""
    grove.family(2, [Call("pause"), ask("more", "deeper"), Say("done")], "pause", "deeper")
    grove.agent("digger", echo)
    grove.behind(deeper="digger")

    async def act() -> None:
        await grove.heard("tool_progress", times=2)
        grove.supervisor.kill()

    few = ("supervision.max_runs=3",)
    await grove.beside(act, sets=few)
    grove.go()
    grove.supervisor = grove.another()
    report = await grove.supervisor.resume("r1")
    assert report.output == "completed: done\ncompleted: done"
    assert grove.runs() == ["r1", "r1.1.0", "r1.1.1"]
    assert grove.results("r1.1.0")[1] == "not run: the tree has 3 runs, its limit"
    stopped = {line["child_id"]: line["status"] for line in grove.told("child_stopped")}
    assert stopped.pop("r1.1.0.2.0") == stopped.pop("r1.1.1.2.0") == "not run"
    assert set(stopped.values()) == {"completed"}
    head = grove.state("r1.1.0").head
    assert head.children == 0, "what never was takes no place of its parent's either"
    assert main(["show", "r1.1.0", "--state-dir", str(grove.folder / "state")]) == 0
    assert "r1.1.0.2.0" not in capsys.readouterr().out


@played
async def test_no_children_at_all_may_be_the_limit(grove: Grove) -> None:
    grove.family(1, echo, lead_max_children=0)
    report = await grove.run()
    assert report.output == "not run: this run has started 0 children, its limit"
    assert grove.runs() == ["r1"]


@played
async def test_a_fan_out_that_fails_alike_is_cut_short(grove: Grove) -> None:
    """The first three end with one reason; the others are not started, and the parent is told."""
    grove.family(12, echo, faults=UNAUTHORIZED, lead_children_at_once=1)
    report = await grove.run()
    assert report.status == "completed"
    assert len(grove.runs()) == 1 + 3
    results = grove.results("r1")
    assert len(results) == 12
    assert all(result.startswith("failed: ") for result in results[:3])
    words = "not run: the first 3 calls of research in this message failed alike, so the others"
    assert all(result.startswith(words) for result in results[3:])
    reason = reason_of(results[0])
    assert all(result.endswith(f"were not started. {reason}") for result in results[3:])


@pytest.mark.parametrize(("words", "started"), [("row {} of 0x{}f", 3), ("no {0}{0}", 6)])
@played
async def test_failures_are_alike_though_a_number_differs(
    grove: Grove, words: str, started: int
) -> None:
    """Each child names another id in its error; words that differ are another error."""

    def child(heard: Conversation) -> Any:
        number = heard.task.removeprefix("question ")
        what = number if started == 3 else "abcdef"[int(number)]
        return Call("forbid", {"words": words.format(what, what)})

    grove.family(6, child, "forbid", lead_children_at_once=1)
    await grove.run()
    assert len(grove.runs()) == 1 + started
    assert grove.results("r1")[0].startswith("failed: forbid: error: PermissionError: ")


@played
async def test_what_is_under_way_when_a_fan_out_is_cut_short_goes_on(grove: Grove) -> None:
    """Side by side more may have started by then; none of them is lost, and no more start."""
    grove.family(12, echo, faults=UNAUTHORIZED, lead_children_at_once=4)
    await grove.run()
    results = grove.results("r1")
    failed = sum(result.startswith("failed: ") for result in results)
    assert 3 <= failed <= 6
    assert len(grove.runs()) == 1 + failed
    assert failed + sum(result.startswith("not run: ") for result in results) == 12


@played
async def test_findings_do_not_make_a_failure_another_one(grove: Grove) -> None:
    """Each child has found something else before it failed, for the same reason."""

    def child(heard: Conversation) -> Any:
        return [Say(f"I look into {heard.task}"), Call("list_files")]

    faults = [Fault(turn=2, kind=FaultKind.UNAUTHORIZED)]
    grove.family(6, child, "list_files", faults=faults, lead_children_at_once=1)
    await grove.run()
    assert len(grove.runs()) == 1 + 3
    assert "I look into question 0" in grove.results("r1")[0]
    assert "I look into" not in grove.results("r1")[3]


@played
async def test_one_success_first_keeps_a_fan_out_going(grove: Grove) -> None:
    """Then the failures are of the questions and not of the whole."""

    def child(heard: Conversation) -> Any:
        return Say("done") if heard.task == "question 0" else Say(" ")

    grove.family(6, child, lead_children_at_once=1)
    await grove.run()
    assert len(grove.runs()) == 1 + 6


@played
async def test_a_later_message_may_try_again(grove: Grove) -> None:
    """What failed alike is held against one fan-out, not against the run."""

    def lead(heard: Conversation) -> Any:
        if heard.turn < 2:
            return [ask(f"{heard.turn} {number}") for number in range(4)]
        return Say("\n".join(heard.results))

    grove.agent("lead", lead, "research", children_at_once=1)
    grove.agent("researcher", echo, faults=UNAUTHORIZED)
    grove.behind(research="researcher")
    await grove.run()
    assert len(grove.runs()) == 1 + 3 + 3
