"""A child that cannot go on for now pauses its tree; one that cannot go on at all fails alone."""

import fcntl
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
import trio
from grove import Grove, played

from actors.journal import JOURNAL, LOCK, NewerSchema
from actors.outcome import ORPHANED, Cancelled
from actors.state import State
from actors.testing.scripts import Call, Say
from supervisor import child as child_module
from supervisor.state_dir import StateDir
from supervisor.supervisor import RunRefused

PAUSE = [Call("pause"), Say("done")]


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "HELD_SECONDS_MAX", 0.0)


def check_paused(grove: Grove, words: str, *run_ids: str) -> None:
    """These runs are interrupted by nobody, with their calls open and no child told as stopped."""
    for run_id in run_ids:
        state = grove.state(run_id)
        assert state.outcome
        why = state.outcome.interruption
        assert isinstance(why, Cancelled)
        assert why.who == ORPHANED
        assert words in why.reason
        assert all(call.result is None for call in state.turns[-1].calls)
        assert grove.told("child_stopped", run_id) == []
    assert grove.living() == set()


def check_nothing_lost(grove: Grove) -> None:
    """Every run has come to its answer, and no saved turn was billed again."""
    for run_id in grove.runs():
        outcome = grove.state(run_id).outcome
        assert outcome
        assert outcome.status == "completed"
    bills = Counter(bill["key"] for bill in grove.bills())
    assert set(bills.values()) == {1}, bills


async def cut_off(grove: Grove, waiting: int = 1) -> None:
    """Kill the whole tree while so many tools wait."""

    async def act() -> None:
        await grove.heard("tool_progress", times=waiting)
        grove.supervisor.kill()

    report = await grove.beside(act)
    assert report.status is None
    grove.go()


def stat_of(pid: int) -> list[str]:
    """What the kernel tells of a process, from its state and its parent's pid on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


@pytest.mark.slow
@played
async def test_a_grandchild_whose_program_lives_on_pauses_all_until_it_has_ended(
    grove: Grove,
) -> None:
    """Its supervisor and zygote died at once, so nobody was left to end what its tool started."""
    grove.chain([Call("linger"), Say("done")], "linger")
    await grove.config()
    supervisor = await grove.supervisor_process("r1")
    program = grove.workspace / "pid"
    while not program.exists() or not program.read_text():  # noqa: ASYNC110  # no other sign
        await trio.sleep(0.005)
    zygote = int(stat_of(min(grove.pids()))[1])
    # It would sweep up behind its zygote, and actors end their programs when they see it go.
    supervisor.send_signal(signal.SIGSTOP)
    while stat_of(supervisor.pid)[0] != "T":  # noqa: ASYNC110  # nobody tells
        await trio.sleep(0.005)
    os.kill(zygote, signal.SIGKILL)
    while grove.living():  # noqa: ASYNC110  # nobody is left to tell
        await trio.sleep(0.005)
    supervisor.kill()
    await supervisor.wait()
    leaf = "r1.1.0.1.0"
    words = f"a tool that an earlier process of run {leaf} started is still running"
    with pytest.raises(RunRefused, match=f"{words}; end it, then resume") as refused:
        await grove.supervisor.resume("r1")
    assert refused.value.kind == "held"
    check_paused(grove, words, "r1", "r1.1.0")
    assert grove.state(leaf).outcome is None
    os.killpg(int(program.read_text()), signal.SIGKILL)
    report = await grove.supervisor.resume("r1")
    assert report.output == "completed: completed: done"
    check_nothing_lost(grove)


@played
async def test_a_child_that_another_process_holds_pauses_its_tree(grove: Grove) -> None:
    """That process goes on with it or lets it go; for its parent it has not failed."""
    grove.chain(PAUSE, "pause")
    await cut_off(grove)
    fd = os.open(grove.supervisor.state_dir.run_dir("r1.1.0.1.0") / LOCK, os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(RunRefused, match=r"run r1\.1\.0\.1\.0 is held by process"):
        await grove.supervisor.resume("r1")
    check_paused(grove, "run r1.1.0.1.0 is held by process", "r1", "r1.1.0")
    os.close(fd)
    report = await grove.supervisor.resume("r1")
    assert report.output == "completed: completed: done"
    check_nothing_lost(grove)


@played
async def test_a_child_of_a_later_version_pauses_its_tree(
    grove: Grove, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version that wrote it goes on with it."""
    grove.chain(PAUSE, "pause")
    await cut_off(grove)
    state_of = StateDir.state

    def newer(state_dir: StateDir, run_id: str) -> State:
        if run_id == "r1.1.0.1.0":
            raise NewerSchema("written by another version of Exeunt")
        return state_of(state_dir, run_id)

    monkeypatch.setattr(StateDir, "state", newer)
    with pytest.raises(RunRefused, match="another version"):
        await grove.supervisor.resume("r1")
    monkeypatch.undo()
    check_paused(grove, "another version", "r1", "r1.1.0")
    report = await grove.supervisor.resume("r1")
    assert report.output == "completed: completed: done"
    check_nothing_lost(grove)


@played
async def test_a_child_whose_journal_is_damaged_fails_alone(grove: Grove) -> None:
    """No waiting mends it, so its parent is told and goes on with what its siblings found."""
    grove.family(2, PAUSE, "pause")
    await cut_off(grove, waiting=2)
    journal = grove.supervisor.state_dir.run_dir("r1.1.0") / JOURNAL
    data = bytearray(journal.read_bytes())
    data[100] ^= 4
    journal.write_bytes(data)
    report = await grove.supervisor.resume("r1")
    assert report.status == "completed"
    damaged, other = grove.results("r1")
    assert damaged.startswith("failed: ")
    assert "r1.1.0/journal.x1 is damaged at byte" in damaged
    assert other == "completed: done"
    assert journal.read_bytes() == data


@played
async def test_a_stop_of_before_is_what_a_tree_ends_by(grove: Grove) -> None:
    """A child that cannot even record it then changes neither the reason nor who asked."""
    grove.chain(PAUSE, "pause")
    await cut_off(grove)
    fd = os.open(grove.supervisor.state_dir.run_dir("r1.1.0.1.0") / LOCK, os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    grove.supervisor.stop("enough")
    report = await grove.supervisor.resume("r1")
    os.close(fd)
    assert report.interruption == {"type": "cancelled", "reason": "enough", "who": "user"}
