"""One supervisor a tree: whoever comes second is refused, and harms nothing of the first."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trio
from premises import HEAD, Premises, hosted, ignore

from supervisor import RunRefused, StateDir, Supervisor
from supervisor.cli import main
from supervisor.stop_socket import StopRequest, ask, listens
from supervisor.tree_lock import LOCK, lock_tree


@pytest.fixture
def premises(tmp_path: Path) -> Premises:
    """A folder with configurations and a state directory."""
    return Premises(tmp_path)


def test_a_lock_is_held_once_and_free_again(tmp_path: Path) -> None:
    """The words name who holds it; the file is private, and what stands in it is only for words."""
    (tmp_path / LOCK).write_bytes(b"\xff not a number, and far too long for one " * 10)
    with lock_tree(tmp_path) as refused:
        assert refused is None
        with lock_tree(tmp_path) as other:
            assert other
            assert other.kind == "held"
            assert f"is held by process {os.getpid()} that" in other.words
    with lock_tree(tmp_path) as refused:
        assert refused is None


def test_no_program_inherits_the_lock(tmp_path: Path) -> None:
    """It ends with the supervisor, although what it started lives on."""
    with lock_tree(tmp_path):
        child = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False
        )
    try:
        # Whatever else this process starts at this moment has the descriptor until it executes.
        deadline = time.monotonic() + 10
        held = True
        while held and time.monotonic() < deadline:
            with lock_tree(tmp_path) as refused:
                held = refused is not None
        assert not held
    finally:
        child.communicate(b"\n")


def test_exeunt_resume_of_a_tree_that_is_held_is_refused(
    premises: Premises, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence and exit code 2, as for everything that must be done otherwise."""
    monkeypatch.setenv("EXEUNT_SPAWN", "subprocess")
    served = '[provider]\nkind = "openai"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n'
    state_dir = StateDir(premises.state_dir)
    state_dir.create(premises.config_of(HEAD.format(tools="[]") + served), "r1")
    with lock_tree(state_dir.run_dir("r1")):
        assert main(["resume", "r1", "--state-dir", str(premises.state_dir)]) == 2
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    assert f"exeunt: run r1 is held by process {os.getpid()} that supervises it" in shown.err
    assert state_dir.events("r1") == []


@pytest.mark.parametrize("how", ["missing", "link", "folder"])
def test_a_lock_that_cannot_be_opened_is_told_in_words(tmp_path: Path, how: str) -> None:
    """No traceback; a link is not followed."""
    folder = tmp_path / "r1"
    if how != "missing":
        folder.mkdir()
    if how == "link":
        (folder / LOCK).symlink_to(tmp_path / "elsewhere")
    if how == "folder":
        (folder / LOCK).mkdir()
    with lock_tree(folder) as refused:
        assert refused
        assert str(folder / LOCK) in refused.words
    assert not (tmp_path / "elsewhere").exists()


@hosted
async def test_a_second_supervisor_leaves_the_first_reachable(premises: Premises) -> None:
    """It is refused in words, starts nothing, and takes no socket away."""
    async with premises.supervisor() as supervisor:
        run_dir = premises.state_dir / "runs" / "r1"
        other = Supervisor(supervisor.state_dir, supervisor.spawner, supervisor._nursery, ignore)

        async def intrude() -> None:
            await premises.told["tool_progress"].wait()
            for _ in range(3):
                with pytest.raises(RunRefused, match=f"held by process {os.getpid()}") as caught:
                    await other.resume("r1")
                assert caught.value.kind == "held"
            assert listens(run_dir)
            assert await trio.to_thread.run_sync(ask, run_dir, StopRequest("r1", "enough"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(intrude)
            report = await supervisor.run(premises.config("waits", "wait"), "r1")
    assert report.interruption["reason"] == "enough"
    assert len(premises.pids("r1")) == 1


@hosted
async def test_of_two_supervisors_at_once_one_goes_on(premises: Premises) -> None:
    """Both resume the same run in the same moment."""
    async with premises.supervisor() as supervisor:

        async def kill() -> None:
            await premises.told["tool_progress"].wait()
            supervisor.kill()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            await supervisor.run(premises.config("waits", "wait"), "r1")
    async with premises.supervisor() as supervisor:
        make = supervisor.spawner, supervisor._nursery, ignore
        both = [Supervisor(supervisor.state_dir, *make) for _ in range(2)]
        found: list[str] = []

        async def go_on(one: Supervisor) -> None:
            try:
                found.append(str((await one.resume("r1")).status))
            except RunRefused as refused:
                found.append(refused.kind)

        async with trio.open_nursery() as nursery:
            for one in both:
                nursery.start_soon(go_on, one)
    assert sorted(found) == ["completed", "held"]
