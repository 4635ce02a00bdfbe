"""One Stop for a whole tree: from wherever it comes, it reaches the bottom, and nothing is left."""

from pathlib import Path
from typing import Any

import pytest
import trio
from grove import Grove, ask, cancelled, check_quiet, fan, played
from run_tools import is_alive

from actors.messages import ResultKind
from actors.outcome import Cancelled
from actors.state import State
from actors.testing.faults import Fault, FaultKind
from actors.testing.scripts import Call, Conversation, Say
from supervisor import child as child_module
from supervisor.stop_socket import StopRequest
from supervisor.stop_socket import ask as ask_socket

CHAIN = ("r1", "r1.1.0", "r1.1.0.1.0")


@pytest.fixture(autouse=True)
def no_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "BACK_OFF_SECONDS", (0.0,))


async def from_program(grove: Grove) -> None:
    grove.supervisor.stop("lunch")


async def from_socket(grove: Grove) -> None:
    run_dir = grove.supervisor.state_dir.run_dir("r1")
    request = StopRequest("r1", "lunch")
    assert await trio.to_thread.run_sync(ask_socket, run_dir, request)


@pytest.mark.parametrize("how", [from_program, from_socket])
@played
async def test_one_stop_reaches_the_bottom(grove: Grove, how: Any) -> None:
    """Three generations down to a program of a tool; each record has the reason and who asked."""
    grove.chain([Call("linger"), Say("never")], "linger")

    async def act() -> None:
        await grove.heard("tool_progress")
        await pid_written(grove)
        await how(grove)

    report = await grove.beside(act)
    assert report.status == "interrupted"
    for run_id in CHAIN:
        assert cancelled(grove, run_id) == Cancelled("lunch", "user")
    for run_id in CHAIN:
        (result,) = grove.results(run_id)
        assert "cancelled, lunch" in result
    assert "From the child: interrupted after 1 turn (lunch)" in grove.results("r1")[0]
    assert not is_alive(int((grove.workspace / "pid").read_text()))
    check_quiet(grove)


async def pid_written(grove: Grove) -> None:
    pid = grove.workspace / "pid"
    while not (pid.exists() and pid.read_text().strip()):  # noqa: ASYNC110  # no other sign
        await trio.sleep(0.005)


@played
async def test_a_stop_reaches_requests_in_flight(grove: Grove) -> None:
    """The model is asked no more; what the request may have cost is held against the budget."""
    grove.family(3, faults=[Fault(turn=1, kind=FaultKind.TIMEOUT)])
    children = ("r1.1.0", "r1.1.1", "r1.1.2")

    async def act() -> None:
        await grove.heard("child_started", times=3)
        for run_id in children:
            while not grove.in_flight(run_id):  # noqa: ASYNC110  # no other sign
                await trio.sleep(0.005)
        grove.supervisor.stop("lunch")

    report = await grove.beside(act)
    assert report.status == "interrupted"
    for run_id in children:
        state = grove.state(run_id)
        assert cancelled(grove, run_id) == Cancelled("lunch", "user")
        assert (state.head.turns, state.head.cost_nusd) == (0, 0)
        assert state.head.maybe_nusd > 0
    assert len(grove.bills()) == 1
    check_quiet(grove)


@played
async def test_a_deadline_of_the_root_stops_its_tree(grove: Grove) -> None:
    """What is below it says that its parent stopped it, and why."""
    grove.chain([Call("dawdle"), Say("never")], "dawdle", lead_deadline_s=0.4)
    await grove.run()
    assert cancelled(grove, "r1") == Cancelled("the deadline of 0.4 s is reached", "deadline")
    for run_id in CHAIN[1:]:
        assert cancelled(grove, run_id) == Cancelled(
            "its parent has reached its deadline", "parent"
        )
    check_quiet(grove)


@pytest.mark.slow
@played
async def test_a_deadline_holds_though_a_tool_lets_nothing_else_run(grove: Grove) -> None:
    """The supervisor stops the run and its children in the actor's place, in the same words."""
    grove.agent("lead", [[ask("a"), Call("spin_later")]], "research", "spin_later", deadline_s=1.0)
    grove.agent("researcher", [Call("dawdle")], "dawdle")
    grove.behind(research="researcher")

    async def act() -> None:
        await grove.heard("tool_progress", "r1.1.0")
        grove.go()

    await grove.beside(act, supervision="stop_grace_s = 0.5")
    assert cancelled(grove, "r1") == Cancelled("the deadline of 1 s is reached", "deadline")
    assert cancelled(grove, "r1.1.0") == Cancelled("its parent has reached its deadline", "parent")
    assert grove.living() == set()


@played
async def test_the_end_of_a_parent_stops_its_children(grove: Grove) -> None:
    """It fails while a child is under way; the child's ending and money are on its record."""

    def lead(heard: Conversation) -> list[Call]:
        return [ask("a"), Call("forbid_later")]

    grove.agent("lead", lead, "research", "forbid_later")
    grove.agent("researcher", [Call("list_files"), Call("dawdle")], "list_files", "dawdle")
    grove.behind(research="researcher")

    async def act() -> None:
        await grove.heard("tool_progress", "r1.1.0")
        grove.go()

    report = await grove.beside(act)
    assert (report.status, report.error) == (
        "failed",
        "forbid_later: error: PermissionError: not yours",
    )
    assert cancelled(grove, "r1.1.0").who == "parent"
    (result, _) = grove.results("r1")
    assert "errors.log" in result
    assert_settled(grove.state("r1"), grove.state("r1.1.0"))
    check_quiet(grove)


def assert_settled(parent: State, child: State) -> None:
    assert parent.head.children_nusd == child.spent_nusd > 0


@played
async def test_a_cancelled_program_stops_its_tree(grove: Grove) -> None:
    """A cancel around ``run`` is a Stop: recorded everywhere, and passed on when all is quiet."""
    grove.chain([Call("dawdle"), Say("never")], "dawdle")
    config = await grove.config()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(grove.supervisor.run, config, "r1")
            await grove.heard("tool_progress")
            scope.cancel()
    assert scope.cancelled_caught
    for run_id in CHAIN:
        assert cancelled(grove, run_id) == Cancelled("cancelled by the program", "program")
    check_quiet(grove)


@played
async def test_a_stop_in_the_middle_ends_what_is_below_it(grove: Grove) -> None:
    """The run above goes on, and the runs below are stopped for the same reason by the same."""
    grove.chain([Call("dawdle"), Say("never")], "dawdle")

    async def act() -> None:
        await grove.heard("tool_progress")
        run_dir = grove.supervisor.state_dir.run_dir("r1")
        request = StopRequest(CHAIN[1], "too dear", "boss")
        assert await trio.to_thread.run_sync(ask_socket, run_dir, request)

    report = await grove.beside(act)
    assert report.status == "completed"
    for run_id in CHAIN[1:]:
        assert cancelled(grove, run_id) == Cancelled("too dear", "boss")
    assert "too dear" in grove.results("r1")[0]
    check_quiet(grove)


@played
async def test_the_first_stop_counts(grove: Grove) -> None:
    """A second one changes neither reason nor asker."""
    grove.family(1, [Call("dawdle")], "dawdle")

    async def act() -> None:
        await grove.heard("tool_progress")
        grove.supervisor.stop("lunch")
        grove.supervisor.stop("dinner", "cook")

    await grove.beside(act)
    for run_id in grove.runs():
        assert cancelled(grove, run_id) == Cancelled("lunch", "user")


@played
async def test_a_stop_while_children_start_leaves_none_running(grove: Grove) -> None:
    """Those under way end as cancelled, and those not yet started are told as not run."""
    grove.family(6, [Call("dawdle")], "dawdle", lead_children_at_once=3)

    async def act() -> None:
        await grove.heard("child_started", times=2)
        grove.supervisor.stop("lunch")

    await grove.beside(act)
    outcomes = {call.result.outcome for call in grove.state("r1").turns[0].calls if call.result}
    assert outcomes == {ResultKind.CANCELLED}
    assert grove.results("r1")[-1] == "not run: cancelled, lunch"
    for run_id in grove.runs():
        assert cancelled(grove, run_id) == Cancelled("lunch", "user")
    assert grove.living() == set()


@pytest.mark.slow
@played
async def test_a_stubborn_grandchild_is_killed_after_the_grace(grove: Grove) -> None:
    """It holds its process in a system call; its next process records the Stop."""
    grove.chain([Call("hold"), Say("never")], "hold")

    async def act() -> None:
        await pid_written(grove)
        grove.supervisor.stop("lunch")

    await grove.beside(act, supervision="stop_grace_s = 0.5")
    for run_id in CHAIN:
        assert cancelled(grove, run_id) == Cancelled("lunch", "user")
    assert grove.living() == set()


@played
async def test_a_stop_before_the_start_starts_nothing(grove: Grove) -> None:
    """A supervisor that was stopped records runs as cancelled without asking any model."""
    grove.family(2)
    grove.supervisor.stop("closed")
    report = await grove.run()
    assert report.status == "interrupted"
    assert grove.bills() == []
    assert grove.runs() == ["r1"]


@played
async def test_a_tree_that_was_stopped_can_be_gone_on_with(grove: Grove) -> None:
    """The calls that were cancelled are answered, so the model decides what to do about them."""
    seen: list[tuple[str, ...]] = []

    def lead(heard: Conversation) -> Any:
        seen.append(heard.results)
        return fan(2)(heard)

    grove.agent("lead", lead, "research")
    grove.agent("researcher", [Call("dawdle")], "dawdle")
    grove.behind(research="researcher")

    async def act() -> None:
        await grove.heard("tool_progress", times=2)
        grove.supervisor.stop("lunch")

    await grove.beside(act)
    before = len(grove.bills())
    grove.supervisor = grove.another()
    report = await grove.supervisor.resume("r1")
    assert report.status == "completed"
    assert len(grove.bills()) == before + 1
    assert len(seen[-1]) == 2
    root = grove.state("r1")
    assert root.head.children_nusd == sum(
        grove.state(run_id).spent_nusd for run_id in grove.runs()[1:]
    )


def test_the_socket_is_gone_with_its_supervisor(tmp_path: Path) -> None:
    assert not ask_socket(tmp_path, StopRequest("r1", "no"))
