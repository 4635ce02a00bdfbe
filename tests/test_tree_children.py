"""Children: whose ids they bear, when they run, and what their parent reads of them."""

from grove import Grove, echo, played

from actors.events import Started
from actors.testing.scripts import Call, Say


@played
async def test_a_child_answers_its_parents_call(grove: Grove) -> None:
    """Its id is its parent's and the ref; its parent is told its summary and nothing else of it."""
    grove.family(1, [Call("list_files"), Say("summary")], "list_files")
    report = await grove.run()
    assert (report.status, report.output) == ("completed", "completed: summary")
    assert grove.runs() == ["r1", "r1.1.0"]
    assert [one.run_id for one in report.children] == ["r1.1.0"]
    assert report.tree.runs == 2
    assert report.tree.turns == 4
    said = [text for heard in grove.asked for text in heard.results]
    assert said.count("completed: summary") == 1
    assert not any("notes.txt" in heard.results for heard in grove.asked if heard.turn == 0)
    assert grove.living() == set()


@played
async def test_a_child_has_its_own_prompt_and_tools(grove: Grove) -> None:
    """It gets neither its parent's task nor the tool that started it."""
    grove.family(1, echo, "list_files")
    await grove.run()
    (child,) = [one for one in grove.asked if one.task == "question 0"]
    assert child.tools == ("list_files",)


@played
async def test_questions_run_side_by_side(grove: Grove) -> None:
    """All are under way at once, each in a process of its own."""
    grove.family(5, [Call("pause"), Say("done")], "pause")
    config = await grove.config()

    async def act() -> None:
        await grove.heard("tool_progress", times=5)
        assert len({one.pid for one in grove.supervisor.children()}) == 6
        (grove.workspace / "go").touch()

    grove.nursery.start_soon(act)
    report = await grove.supervisor.run(config, "r1")
    assert report.output == "\n".join(["completed: done"] * 5)


@played
async def test_children_start_in_the_order_of_their_calls_as_many_as_there_may_be(
    grove: Grove,
) -> None:
    """The next one starts when one has ended."""
    grove.family(5, [Call("pause"), Say("done")], "pause", lead_children_at_once=2)
    config = await grove.config()

    async def act() -> None:
        await grove.heard("tool_progress", times=2)
        assert len(grove.supervisor.children()) == 3
        (grove.workspace / "go").touch()

    grove.nursery.start_soon(act)
    await grove.supervisor.run(config, "r1")
    started = [one.ref for one in grove.events("r1", Started)]
    assert started == ["1.0", "1.1", "1.2", "1.3", "1.4"]
    running = most = 0
    for line in grove.told("", "r1"):
        running += {"child_started": 1, "child_stopped": -1}.get(line["type"], 0)
        most = max(most, running)
    assert most == 2
