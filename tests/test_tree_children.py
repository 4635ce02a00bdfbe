"""Children: whose ids they bear, when they run, and that no death of anybody starts one twice."""

import os
import signal
from collections import Counter

import pytest
import trio
from grove import Grove, echo, played

from actors.events import Opened, Started
from actors.testing.scripts import Call, Say
from supervisor import child as child_module

PAUSE = [Call("pause"), Say("done")]


@pytest.fixture(autouse=True)
def no_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "BACK_OFF_SECONDS", (0.0,))


def whys(grove: Grove, run_id: str) -> list[str]:
    """Why each process of a run was started."""
    return [one.why for one in grove.events(run_id, Opened)]


def billed_twice(grove: Grove) -> list[str]:
    """The turns that were billed more than once."""
    return [
        key for key, times in Counter(bill["key"] for bill in grove.bills()).items() if times > 1
    ]


@played
async def test_a_child_answers_its_parents_call(grove: Grove) -> None:
    """Its id is its parent's and the ref; its parent is told its summary and nothing else of it."""
    grove.family(1, [Call("list_files"), Say("summary")], "list_files")
    report = await grove.run()
    assert (report.status, report.output) == ("completed", "completed: summary")
    assert grove.runs() == ["r1", "r1.1.0"]
    assert [one.run_id for one in report.children] == ["r1.1.0"]
    assert (report.tree.runs, report.tree.turns) == (2, 4)
    assert grove.results() == ["completed: summary"]
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
    """All are under way at once, each in a process of its own; answers keep the calls' order."""
    grove.family(5, lambda heard: Say(heard.task) if heard.turn else Call("pause"), "pause")

    async def act() -> None:
        await grove.heard("tool_progress", times=5)
        assert len({one.pid for one in grove.supervisor.children()}) == 6
        grove.go()

    report = await grove.beside(act)
    assert report.output == "\n".join(f"completed: question {number}" for number in range(5))


@played
async def test_children_start_in_the_order_of_their_calls_as_many_as_there_may_be(
    grove: Grove,
) -> None:
    """The next one starts when one has ended."""
    grove.family(5, PAUSE, "pause", lead_children_at_once=2)

    async def act() -> None:
        await grove.heard("tool_progress", times=2)
        assert len(grove.supervisor.children()) == 3
        grove.go()

    await grove.beside(act)
    started = [one.ref for one in grove.events("r1", Started)]
    assert started == ["1.0", "1.1", "1.2", "1.3", "1.4"]
    running = most = 0
    for line in grove.told("", "r1"):
        running += {"child_started": 1, "child_stopped": -1}.get(line["type"], 0)
        most = max(most, running)
    assert most == 2


@played
async def test_a_finished_child_is_not_run_again(grove: Grove) -> None:
    """Its parent dies before it could note the answer; the next process reads it from disk."""
    grove.family(2, PAUSE, "pause")

    async def act() -> None:
        await grove.heard("tool_progress", times=2)
        grove.kill("r1", signal.SIGSTOP)
        grove.go()
        await grove.heard("run_stopped", times=2)
        grove.kill("r1")

    report = await grove.beside(act)
    assert report.output == "completed: done\ncompleted: done"
    assert whys(grove, "r1") == ["start", "restart"]
    assert whys(grove, "r1.1.0") == whys(grove, "r1.1.1") == ["start"]
    assert len(grove.bills()) == 6
    assert [one.ref for one in grove.events("r1", Started)] == ["1.0", "1.1"]


@pytest.mark.parametrize(
    ("victims", "root", "child", "other"),
    [
        (["r1.1.0"], ["start"], ["start", "restart"], ["start"]),
        (["r1"], ["start", "restart"], ["start", "resume"], ["start", "resume"]),
    ],
    ids=["child", "parent"],
)
@played
async def test_an_unfinished_child_is_gone_on_with(
    grove: Grove, victims: list[str], root: list[str], child: list[str], other: list[str]
) -> None:
    """Whoever dies, it is the same run under the same id, and no saved turn is asked again."""
    grove.family(2, PAUSE, "pause")
    expected = {"r1": root, "r1.1.0": child, "r1.1.1": other}

    async def act() -> None:
        await grove.heard("tool_progress", times=2)
        for victim in victims:
            grove.kill(victim)
        for run_id, each in expected.items():
            await grove.heard("run_resumed", run_id, times=len(each) - 1)
        grove.go()

    report = await grove.beside(act)
    assert report.output == "completed: done\ncompleted: done"
    assert {run_id: whys(grove, run_id) for run_id in grove.runs()} == expected
    assert billed_twice(grove) == []
    assert grove.living() == set()


@pytest.mark.parametrize("victim", ["r1", "r1.1.0"])
@played
async def test_a_grandchild_is_gone_on_with_too(grove: Grove, victim: str) -> None:
    """Whoever above it died, nobody has decided that its work should end."""
    grove.chain(PAUSE, "pause")

    async def act() -> None:
        await grove.heard("tool_progress")
        grove.kill(victim)
        await grove.heard("run_resumed", "r1.1.0.1.0")
        grove.go()

    report = await grove.beside(act)
    assert report.output == "completed: completed: done"
    assert whys(grove, "r1.1.0.1.0") == ["start", "resume"]
    assert billed_twice(grove) == []


@played
async def test_parent_and_child_may_die_at_once(grove: Grove) -> None:
    """Whichever death is seen first, both go on."""
    grove.family(1, PAUSE, "pause")

    async def act() -> None:
        await grove.heard("tool_progress")
        grove.kill("r1")
        grove.kill("r1.1.0")
        await grove.heard("run_resumed", "r1")
        await grove.heard("tool_progress", "r1.1.0", times=2)
        grove.go()

    report = await grove.beside(act)
    assert report.output == "completed: done"
    assert whys(grove, "r1") == ["start", "restart"]
    assert billed_twice(grove) == []


@played
async def test_a_tree_that_was_killed_whole_is_gone_on_with(grove: Grove) -> None:
    """A second supervisor finds every run again by its id."""
    grove.chain(PAUSE, "pause")

    async def act() -> None:
        await grove.heard("tool_progress")
        grove.supervisor.kill()

    report = await grove.beside(act)
    assert report.status is None
    assert grove.living() == set()
    grove.supervisor = grove.another()
    grove.go()
    report = await grove.supervisor.resume("r1")
    assert report.output == "completed: completed: done"
    assert grove.runs() == ["r1", "r1.1.0", "r1.1.0.1.0"]
    assert billed_twice(grove) == []


@pytest.mark.slow
@played
async def test_a_tree_survives_its_zygote(grove: Grove) -> None:
    """All actors die with it, and go on in processes of the next one."""
    grove.chain(PAUSE, "pause")

    async def act() -> None:
        await grove.heard("tool_progress")
        os.kill(grove.zygote_pid(), signal.SIGKILL)
        await grove.heard("run_resumed", "r1.1.0.1.0")
        grove.go()

    report = await grove.beside(act)
    assert report.output == "completed: completed: done"
    assert billed_twice(grove) == []


@pytest.mark.slow
@played
async def test_a_run_starts_although_the_zygote_dies_in_its_birth(grove: Grove) -> None:
    """Nothing of it was there yet, so it is simply started by the next one."""
    grove.family(1)
    await grove.config()
    os.kill(grove.zygote_pid(), signal.SIGSTOP)

    async def act() -> None:
        while not grove.births():  # noqa: ASYNC110  # no other sign
            await trio.sleep(0.005)
        os.kill(grove.zygote_pid(), signal.SIGKILL)

    report = await grove.beside(act)
    assert report.status == "completed"
    assert whys(grove, "r1") == ["start"]


@pytest.mark.slow
@played
async def test_a_tree_survives_its_supervisor(grove: Grove) -> None:
    """Its actors leave with all saved, and answer no call that somebody will go on with."""
    grove.chain(PAUSE, "pause")
    await grove.config()
    process = await grove.supervisor_process("r1")
    while not (grove.workspace / "pausing").exists():  # noqa: ASYNC110  # no other sign
        await trio.sleep(0.005)
    process.kill()
    await process.wait()
    with trio.fail_after(5):
        while grove.living():  # noqa: ASYNC110  # nobody is left to tell
            await trio.sleep(0.01)
    grove.go()
    report = await grove.supervisor.resume("r1")
    assert report.output == "completed: completed: done"
    assert billed_twice(grove) == []
