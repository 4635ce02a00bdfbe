"""Tools that block, hog or outlive their process, a full disk, and two supervisors at once."""

import os
import random
import signal
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest
from deadly_tools import HOG
from forest import PLANTED, SEED, grown, strike_all

from supervisor.chaos.check import check_tree
from supervisor.chaos.life import begin
from supervisor.chaos.plan import BYTES, Plan, draw, parse
from supervisor.chaos.session import Session
from supervisor.chaos.world import Home

pytestmark = pytest.mark.chaos

HERE = "tests/chaos_tree/test_deadly_trees.py"
ROUNDS = 14
DISK_BYTES = 2_000_000


def test_a_tool_that_blocks_in_a_thread():
    """Only the end of its process stops it; whoever is killed beside, its call is told."""
    with grown("agents.scout.model=wedged_scout") as session:
        plans = draw(session.boundaries, ROUNDS, random.Random(SEED))
        strike_all(session, plans, f"{HERE}::test_a_tool_that_blocks_in_a_thread")


@pytest.fixture(scope="module")
def hogging() -> Generator[Session]:
    with grown("agents.scout.model=hog", "supervision.stop_grace_s=0.3") as session:
        yield session


HOG_STARTED = 8
"""The frame of a scout's journal after which it hogs: its trace line never leaves the process."""


@pytest.mark.parametrize(
    "strikes",
    [
        ("kill/actor/2.0", "kill/actor/2.1"),
        ("freeze-kill/actor/2.1", "kill/actor/2.0"),
        ("kill/root/2.0",),
        ("kill/zygote/2.1",),
        ("kill/supervisor/2.0",),
        ("kill/tree/2.0",),
    ],
    ids="+".join,
)
def test_a_tool_that_holds_the_interpreters_lock(hogging: Session, strikes: tuple[str, ...]):
    """Its actor hears of no Stop, and not that its supervisor is gone; it ends all the same."""
    sizes = sorted(
        one.number for one in hogging.boundaries if (one.run, one.event) == ("2.0", BYTES)
    )
    plan = parse(",".join(f"{strike}/bytes/{sizes[HOG_STARTED - 1]}/80" for strike in strikes))
    PLANTED.append(lambda: os.environ.update({HOG: "1"}))
    try:
        (one,) = strike_all(
            hogging, [plan], f"{HERE}::test_a_tool_that_holds_the_interpreters_lock"
        )
    finally:
        PLANTED.clear()
    assert one.struck == len(strikes)
    assert one.status == "completed"


def test_a_tool_that_leaves_daemons():
    """What has left its group, its session and its parents is gone with the tree."""
    with grown("agents.scout.model=daemons") as session:
        plans = draw(session.boundaries, ROUNDS, random.Random(SEED + 1))
        strike_all(session, plans, f"{HERE}::test_a_tool_that_leaves_daemons")


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """A disk of its own that is small enough to be filled."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    mounted = subprocess.run(["mount", *options], check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("room", [9000, 14_000, 20_000, 27_000])
def test_a_full_disk_loses_nothing_that_was_saved(small_disk: Path, tmp_path: Path, room: int):
    """The tree stops wherever the disk has no room; with room again, it goes on to its end.

    It comes to the same answer as with room from the start.
    """

    def fill(home: Path) -> None:
        """Leave little room for the first life, and all there is for the next."""
        filling, seen = home / "filling", home / "seen"
        if seen.exists():
            filling.unlink(missing_ok=True)
            return
        seen.touch()
        # The tools have another disk, or they would fail, which the model reads.
        for run in ("", ".2.0", ".2.1"):
            name = f"effects-{Home.run_id}{run}"
            (home / name).symlink_to(tmp_path / f"{home.name}-{name}")
        free = os.statvfs(home).f_bavail * os.statvfs(home).f_frsize
        filling.write_bytes(b"\0" * (free - room))

    with grown(where=small_disk, crashes=1) as session:
        PLANTED.append(lambda: fill(Path(os.environ["CHAOS_EFFECTS"])))
        try:
            (one,) = strike_all(session, [Plan()], HERE)
        finally:
            PLANTED.clear()
    assert one.lives > 1
    assert one.status == "completed"


def test_a_second_supervisor_is_refused(hogging: Session):
    """In words that name the process that holds the run, also when the first one is frozen."""
    home = hogging.home()
    config = home.make()
    first = begin(home.state_dir, home.run_id, config, home.prepare)
    while not any(heard.type == "child_started" for heard in first.listen(5.0)):
        assert not first.over
    os.kill(first.pid, signal.SIGSTOP)
    try:
        second = begin(home.state_dir, home.run_id, None, home.prepare)
        while not second.over:
            second.listen(5.0)
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert second.end
    assert "is held by process" in second.end.refused
    while not first.over:
        first.listen(5.0)
    assert first.end
    assert first.end.report
    assert first.end.report.status == "completed"
    check_tree(home, 0, hogging.reference)
    home.remove()
