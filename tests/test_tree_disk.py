"""A disk without room: the whole tree pauses, says so alike everywhere, and goes on with room."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from grove import Grove, ask, fan, played

from actors.journal import disk_failed
from actors.outcome import Cancelled
from actors.testing.scripts import Call, Say
from supervisor.actor_log import LOG
from supervisor.commands.ps import row_of
from supervisor.report import EXIT_CANCELLED, Report
from supervisor.standing import CUT_OFF, standing_of
from supervisor.state_dir import StateDir, StateError
from supervisor.stop_socket import SOCKET
from supervisor.supervisor import RunRefused

FULL = "journal.x1: disk full; make room and resume the run"


def make_room(grove: Grove) -> None:
    (grove.workspace / "room").touch()
    grove.go()


def check_agreed(grove: Grove, report: Report) -> None:
    """What the result says of each run is what ``ps`` and the trace say of it."""
    runs = {report.run_id: report} | {child.run_id: child for child in report.children}
    for run_id in grove.runs():
        row = row_of(standing_of(grove.supervisor.state_dir, run_id), {})
        stopped = [line["status"] for line in grove.told("run_stopped", run_id)]
        if run_id in runs:
            assert row.status == (runs[run_id].status or CUT_OFF)
        assert stopped == ([] if row.status == CUT_OFF else [row.status])
        assert row.interruption == (None if row.status == CUT_OFF else "orphaned")
    assert report.exit_code == EXIT_CANCELLED


def check_paused(grove: Grove, run_id: str, where: str) -> None:
    """The run is interrupted by nobody, because of the disk of ``where``, with its calls open."""
    state = grove.state(run_id)
    assert state.outcome
    why = state.outcome.interruption
    assert isinstance(why, Cancelled)
    assert why.who == "orphaned"
    assert f"{where}/{FULL}" in why.reason
    assert all(call.result is None for call in state.turns[-1].calls)


async def check_goes_on(grove: Grove) -> None:
    """With room, a resume comes to the end, and no saved turn was billed again."""
    make_room(grove)
    report = await grove.supervisor.resume("r1")
    assert report.status == "completed"
    assert grove.living() == set()
    for run_id in grove.runs():
        state = grove.state(run_id)
        assert state.outcome
        assert state.outcome.status == "completed"
    bills = Counter(bill["key"] for bill in grove.bills())
    assert set(bills.values()) == {1}, bills


def researcher(heard: Any) -> Any:
    """The first finds no room; the second waits beside it; both repeat what came of it."""
    if heard.turn == 0:
        full = Call("fill_disk", {"after": "pausing"})
        return full if "question 0" in heard.task else Call("pause")
    return Say("\n".join(heard.results))


@played
async def test_a_child_without_room_pauses_its_tree(grove: Grove) -> None:
    """Its parent is not told of a failure to go on from, and a child beside it keeps its calls."""
    grove.agent("lead", fan(2), "research")
    grove.agent("researcher", researcher, "fill_disk", "pause")
    grove.behind(research="researcher")
    report = await grove.run()
    assert report.status == "interrupted"
    assert grove.results("r1") == []
    check_paused(grove, "r1", "r1.1.0")
    check_paused(grove, "r1.1.1", "r1.1.0")
    assert grove.state("r1.1.0").outcome is None
    check_agreed(grove, report)
    await check_goes_on(grove)
    assert [words.partition(":")[0] for words in grove.results("r1")] == ["completed"] * 2


@played
async def test_a_grandchild_without_room_pauses_all_above_it(grove: Grove) -> None:
    """However deep it is."""
    grove.chain([Call("fill_disk"), Say("done")], "fill_disk")
    report = await grove.run()
    for run_id in ("r1", "r1.1.0"):
        check_paused(grove, run_id, "r1.1.0.1.0")
    check_agreed(grove, report)
    await check_goes_on(grove)


@played
async def test_a_root_without_room_is_cut_off_in_words(grove: Grove) -> None:
    """It has no ending, so it has not failed: the error says where there is no room."""
    full = Call("fill_disk", {"after": "pausing"})
    grove.agent("lead", [[ask("a"), full], Say("done")], "research", "fill_disk")
    grove.agent("researcher", [Call("pause"), Say("done")], "pause")
    grove.behind(research="researcher")
    report = await grove.run()
    assert report.status is None
    assert f"r1/{FULL}" in str(report.error)
    assert grove.runs() == ["r1", "r1.1.0"]
    check_agreed(grove, report)
    await check_goes_on(grove)
    assert grove.results("r1") == ["completed: done", "there is room"]


@played
async def test_a_stop_without_room_ends_what_is_under_way(grove: Grove) -> None:
    """It cannot be recorded, and all the same nobody waits for a tool that runs on."""
    grove.agent("lead", [Call("fill_disk", {"and_wait": True}), Say("done")], "fill_disk")

    async def act() -> None:
        await grove.heard("tool_progress")
        grove.supervisor.stop("enough")

    report = await grove.beside(act)
    assert report.status is None
    assert f"r1/{FULL}" in str(report.error)
    assert grove.state("r1").stop is None


@played
async def test_no_room_for_the_directory_of_a_child_pauses_its_tree(
    grove: Grove, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As no room in its journal does."""

    def no_room(state_dir: StateDir, run_id: str) -> None:
        raise disk_failed(state_dir.run_dir(run_id), OSError(28, "No space left on device"))

    monkeypatch.setattr(StateDir, "create_child", no_room)
    grove.family(1)
    report = await grove.run()
    assert report.interruption["who"] == "orphaned"
    assert "r1.1.0: disk full" in report.interruption["reason"]
    monkeypatch.undo()
    await check_goes_on(grove)


@played
async def test_a_resume_without_room_changes_nothing(
    grove: Grove, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ending of before stands, so the resume is refused in words."""
    grove.go()
    grove.agent("lead", [Call("pause"), Say("done")], "pause", max_turns=1)
    before = await grove.run()
    assert before.status == "max_turns_exceeded"
    journal = grove.supervisor.state_dir.run_dir("r1") / "journal.x1"
    data = journal.read_bytes()

    there = os.open

    def no_room(path: Path, flags: int, mode: int = 0o777) -> int:
        if Path(path).name == LOG:
            raise OSError(28, "No space left on device")
        return there(path, flags, mode)

    monkeypatch.setattr(os, "open", no_room)
    with pytest.raises(RunRefused, match=r"actor\.log: disk full; make room") as refused:
        await grove.supervisor.resume("r1")
    monkeypatch.undo()
    assert refused.value.kind == "disk_full"
    assert journal.read_bytes() == data


@played
async def test_no_control_socket_is_told_in_words(grove: Grove) -> None:
    """Whatever keeps it from being made; the ending of before stands."""
    grove.go()
    grove.agent("lead", [Call("pause"), Say("done")], "pause", max_turns=1)
    await grove.run()
    (grove.supervisor.state_dir.run_dir("r1") / SOCKET).mkdir()
    with pytest.raises(RunRefused, match=r"control\.sock: Is a directory; mend that"):
        await grove.supervisor.resume("r1")
    assert grove.state("r1").outcome


@played
async def test_no_room_for_the_configuration_leaves_no_run(
    grove: Grove, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing could go on with it, and its name is free for another try."""
    grove.agent("lead", [Say("done")])
    there = os.open

    def no_room(path: Path, flags: int, mode: int = 0o777, **others: Any) -> int:
        if Path(path).name == "config.new":
            raise OSError(28, "No space left on device")
        return there(path, flags, mode, **others)

    monkeypatch.setattr(os, "open", no_room)
    with pytest.raises(StateError, match=r"cannot write .*config\.json: No space left on device"):
        await grove.run()
    monkeypatch.undo()
    assert not grove.supervisor.state_dir.exists("r1")
    assert (await grove.run()).status == "completed"
