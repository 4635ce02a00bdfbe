"""What is left below a root that has ended for good gets its ending too, since nobody goes on."""

import fcntl
import os

import pytest
from grove import Grove, cancelled, played

from actors.journal import LOCK
from actors.outcome import Cancelled
from actors.spec import LimitChange
from actors.state import State
from actors.testing.scripts import Call, Say
from supervisor import child as child_module
from supervisor import supervisor as supervisor_module
from supervisor.cli import main
from supervisor.report import Report
from supervisor.state_dir import StateDir

LEAF = "r1.1.0.1.0"
LEFT = Cancelled("its parent has ended", "parent")
STEPS = [Call("list_files"), Call("pause"), Say("done")]
SUPERVISION = "max_restarts = 1\nrestart_period_s = 60"


@pytest.fixture(autouse=True)
def no_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "BACK_OFF_SECONDS", (0.0,))


async def crash(grove: Grove, victim: str) -> Report:
    """Kill a run above the leaf more often than it may be restarted, while the leaf works."""

    async def act() -> None:
        await grove.heard("tool_progress", LEAF)
        grove.kill(victim)
        await grove.heard("tool_progress", LEAF, times=2)
        grove.kill(victim)

    return await grove.beside(act, supervision=SUPERVISION)


async def kept(state_dir: StateDir, found: Report, listener: object) -> Report:
    """As if the supervisor were killed at the moment in which the root had ended."""
    return found


def leaf(grove: Grove) -> State:
    return grove.state(LEAF)


@pytest.mark.parametrize(
    ("victim", "ending", "left"),
    [("r1.1.0", "completed", [LEAF]), ("r1", "failed", ["r1.1.0", LEAF])],
    ids=["middle", "root"],
)
@played
async def test_a_crash_loop_leaves_no_run_without_an_ending(
    grove: Grove, victim: str, ending: str, left: list[str]
) -> None:
    """Whoever was cut off by it, every call is answered in words, and no model is asked again."""
    grove.chain(STEPS, "list_files", "pause")
    report = await crash(grove, victim)
    assert report.status == ending
    assert "crash loop" in str(grove.state(victim).outcome)
    for run_id in left:
        assert cancelled(grove, run_id) == LEFT
    assert "cancelled, its parent has ended" in grove.results(LEAF)[1]
    if "r1.1.0" in left:
        (told,) = grove.results("r1.1.0")
        assert "From the child: interrupted after 2 turns (its parent has ended)" in told
        assert "errors.log" in told
    shown = [report.children[0], report.children[0].children[0]]
    assert [child.run_id for child in shown if child.interruption] == left
    assert len([bill for bill in grove.bills() if bill["key"].startswith(LEAF)]) == 2
    assert grove.living() == set()
    for run_id in grove.runs():
        assert grove.told("", run_id)[-1]["type"] == "run_stopped"


@pytest.mark.parametrize("way", ["program", "command"])
def test_a_resume_ends_what_a_killed_supervisor_left(
    grove: Grove, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    """The root stays as it ended; asked again, there is nothing to be done."""

    async def first() -> None:
        grove.chain(STEPS, "list_files", "pause")
        with monkeypatch.context() as patch:
            patch.setattr(supervisor_module, "end_left", kept)
            report = await crash(grove, "r1")
        assert report.status == "failed"
        assert leaf(grove).pending
        if way == "program":
            again = await grove.supervisor.resume("r1")
            assert (again.status, again.error) == (report.status, report.error)

    grove.play(first)
    resume = ["resume", "r1", "--state-dir", str(grove.folder / "state")]
    if way == "command":
        assert main(resume) == 1
        assert "r1 had ended; what was left below it has ended now" in capsys.readouterr().err
    for run_id in ("r1.1.0", LEAF):
        assert cancelled(grove, run_id) == LEFT
    before = [(run_id, len(grove.supervisor.state_dir.events(run_id))) for run_id in grove.runs()]
    assert main(resume) == 1
    assert "r1 had ended; nothing was done" in capsys.readouterr().err
    after = [(run_id, len(grove.supervisor.state_dir.events(run_id))) for run_id in grove.runs()]
    assert after == before


@played
async def test_what_is_left_below_a_root_that_can_be_resumed_waits_for_its_end(
    grove: Grove,
) -> None:
    """As long as the tree is gone on with, nothing in it is closed."""
    grove.chain(STEPS, "list_files", "pause", lead_max_turns=1)
    report = await crash(grove, "r1.1.0")
    assert report.status == "max_turns_exceeded"
    assert leaf(grove).orphaned
    assert leaf(grove).pending
    report = await grove.supervisor.resume("r1", LimitChange(max_turns=2))
    assert report.status == "completed"
    assert cancelled(grove, LEAF) == LEFT


@played
async def test_what_cannot_be_ended_takes_no_answer_away(
    grove: Grove, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process holds it; a later resume ends it."""
    grove.chain(STEPS, "list_files", "pause")
    with monkeypatch.context() as patch:
        patch.setattr(supervisor_module, "end_left", kept)
        await crash(grove, "r1.1.0")
    fd = os.open(grove.supervisor.state_dir.run_dir(LEAF) / LOCK, os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    report = await grove.supervisor.resume("r1")
    assert report.status == "completed"
    assert leaf(grove).pending
    os.close(fd)
    await grove.supervisor.resume("r1")
    assert cancelled(grove, LEAF) == LEFT
