"""Stop of what nobody performs now: a child's is recorded, a root's says that nothing runs."""

import functools
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from grove import Grove, cancelled, played

from actors.events import Finished, Opened
from actors.outcome import ORPHANED, Cancelled
from actors.testing.scripts import Call, Say
from supervisor.cli import main
from supervisor.late_stop import record_stop
from supervisor.stop_socket import StopRequest

CHAIN = ("r1", "r1.1.0", "r1.1.0.1.0")
STEPS = [Call("list_files"), Call("pause"), Say("done")]
REMOVE = [Call("list_files"), Call("remove", {"name": "old"}), Say("done")]

Exeunt = Callable[..., tuple[int, Any, str]]
Pause = Callable[[Grove], Awaitable[None]]


@pytest.fixture
def exeunt(capsys: pytest.CaptureFixture[str], grove: Grove) -> Exeunt:
    """Type a command; what came back: exit code, standard output (JSON decoded), standard error."""

    def type_(*words: str) -> tuple[int, Any, str]:
        code = main([*words, "--state-dir", str(grove.folder / "state")])
        shown = capsys.readouterr()
        return code, json.loads(shown.out) if "--json" in words else shown.out, shown.err

    return type_


async def abandoned(grove: Grove) -> None:
    """The supervisor goes, and the actors save and leave."""
    grove.chain(STEPS, "list_files", "pause")

    async def act() -> None:
        await grove.heard("tool_progress")
        for child in grove.supervisor.children():
            child.stop("the supervisor is gone", ORPHANED)

    await grove.beside(act)


async def killed(grove: Grove) -> None:
    """All processes go at once, and no run has an ending."""
    grove.chain(STEPS, "list_files", "pause")

    async def act() -> None:
        await grove.heard("tool_progress")
        grove.supervisor.kill()

    await grove.beside(act)


async def waiting(grove: Grove) -> None:
    """A call of the lowest run waits for a person."""
    grove.chain(REMOVE, "list_files", "remove")
    await grove.run()


PAUSES = pytest.mark.parametrize("pause", [abandoned, killed, waiting])


@PAUSES
@played
async def test_a_child_of_a_paused_tree_is_stopped_for_good(
    grove: Grove, exeunt: Exeunt, pause: Pause
) -> None:
    """It and what is below it; the resume asks neither's model, and its parent reads all of it."""
    await pause(grove)
    words = ("stop", CHAIN[1], "--reason", "enough", "--json")
    code, found, told = await trio.to_thread.run_sync(functools.partial(exeunt, *words))
    assert code == 0
    assert found == {
        "run_id": CHAIN[1], "stopped": True, "status": "interrupted", "reason": "enough",
    }  # fmt: skip
    assert "had ended before" not in told
    for run_id in CHAIN[1:]:
        assert cancelled(grove, run_id) == Cancelled("enough", "user")
    opened = [len(grove.events(run_id, Opened)) for run_id in CHAIN]
    grove.go()
    grove.supervisor = grove.another()
    assert (await grove.supervisor.resume("r1")).status == "completed"
    (answer,) = grove.events("r1", Finished)
    assert answer.content.startswith("interrupted after 1 turn (enough); findings so far:")
    assert "errors.log" in answer.content
    assert [len(grove.events(run_id, Opened)) for run_id in CHAIN] == [opened[0] + 1, *opened[1:]]
    root = grove.state("r1")
    assert root.head.children_nusd == grove.state(CHAIN[1]).spent_nusd > 0
    assert not (grove.workspace / "removed").exists()


def test_a_second_stop_of_a_child_finds_it_ended(grove: Grove, exeunt: Exeunt) -> None:
    """The first reason stays."""
    grove.play(functools.partial(abandoned, grove))
    assert exeunt("stop", CHAIN[1], "--reason", "enough")[0] == 0
    code, found, told = exeunt("stop", CHAIN[1], "--reason", "more", "--json")
    assert (code, found["stopped"], found["reason"]) == (0, False, "enough")
    assert "had ended before" in told


def test_a_stop_in_a_paused_tree_is_told_of_in_the_trace(grove: Grove, exeunt: Exeunt) -> None:
    """As any other is."""
    grove.play(functools.partial(abandoned, grove))
    exeunt("stop", CHAIN[2], "--reason", "enough")
    lines = [json.loads(line) for line in exeunt("trace", CHAIN[2])[1].splitlines()]
    assert [line["type"] for line in lines[-2:]] == ["tool_result", "run_stopped"]
    assert lines[-1]["reason"] == "enough"


@PAUSES
def test_a_paused_root_is_told_of_as_paused(grove: Grove, exeunt: Exeunt, pause: Pause) -> None:
    """Nothing of it runs and nothing is changed; it has not ended, and only a person resumes it."""
    grove.play(functools.partial(pause, grove))
    before = [grove.state(run_id) for run_id in CHAIN]
    _, found, told = exeunt("stop", "r1", "--json")
    assert not found["stopped"]
    assert "had ended before" not in told
    assert "nothing of r1 runs, and nothing goes on unless somebody types" in " ".join(told.split())
    assert "exeunt resume r1" in told
    assert [grove.state(run_id) for run_id in CHAIN] == before


@played
async def test_a_child_is_not_stopped_behind_its_supervisors_back(grove: Grove) -> None:
    """While somebody supervises the tree, a Stop goes through that process alone."""
    grove.family(1, [Call("pause"), Say("done")], "pause")

    async def act() -> None:
        await grove.heard("tool_progress")
        request = StopRequest("r1.1.0", "enough")
        assert not await record_stop(grove.supervisor.state_dir, request)
        grove.go()

    report = await grove.beside(act)
    assert report.output == "completed: done"
