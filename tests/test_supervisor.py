"""Whole runs through a supervisor: configuration in, report out, and one Stop for everything."""

import os
import signal
from pathlib import Path

import pytest
import trio
from premises import HEAD, Premises, hosted, ignore
from run_tools import is_alive

from actors.spec import LimitChange
from supervisor import ConfigError, RunRefused, StateError, Supervisor
from supervisor.stop_socket import StopRequest, ask


@pytest.fixture
def premises(tmp_path: Path) -> Premises:
    """A folder with configurations and a state directory."""
    return Premises(tmp_path)


@pytest.mark.slow
async def test_a_run_is_reported_as_its_journal_has_it(premises: Premises) -> None:
    """Figures, answer, trace and files; afterwards nothing is left running."""
    async with premises.supervisor() as supervisor:
        report = await supervisor.run(premises.config("plan"), "r1")
        assert supervisor.children() == []
    assert (report.status, report.exit_code) == ("completed", 0)
    assert report.output == "errors.log mentions a timeout: worker 7 timed out after 30000 ms."
    assert (report.turns, report.tool_runs) == (3, 2)
    expected = report.input_tokens * 2e-6 + report.output_tokens * 12e-6
    assert report.cost_usd == pytest.approx(expected) == report.tree.cost_usd
    assert premises.lines["r1"][-1]["type"] == "run_stopped"
    assert not any(map(is_alive, premises.pids("r1")))
    run_dir = premises.state_dir / "runs" / "r1"
    assert {path.stat().st_mode & 0o077 for path in run_dir.iterdir()} == {0}
    assert not (run_dir / "control.sock").exists()


@hosted
async def test_a_killed_run_ends_as_one_that_never_was(premises: Premises) -> None:
    """The actor is killed in its second turn: the same answer, cost and number of tool runs."""
    async with premises.supervisor() as supervisor:
        whole = await supervisor.run(premises.config("plan"), "r1")

        async def kill() -> None:
            await premises.told["tool_result"].wait()
            (child,) = supervisor.children()
            assert child.pid
            os.kill(child.pid, signal.SIGKILL)

        premises.told.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            killed = await supervisor.run(premises.config("plan", latency=50), "r2")
    assert (killed.output, killed.turns, killed.tool_runs) == (
        whole.output,
        whole.turns,
        whole.tool_runs,
    )
    assert killed.cost_usd == whole.cost_usd
    assert 0 < killed.possibly_spent_usd < 0.1
    assert len(premises.pids("r2")) == 2


@hosted
async def test_a_run_over_two_supervisors_is_one_run(premises: Premises) -> None:
    """The first stops it, the second goes on; its trace is one query."""
    async with premises.supervisor() as supervisor:
        async with trio.open_nursery() as nursery:

            async def stop() -> None:
                await premises.told["tool_result"].wait()
                supervisor.stop("good night")

            nursery.start_soon(stop)
            report = await supervisor.run(premises.config("plan", latency=50), "r1")
        assert (report.status, report.exit_code) == ("interrupted", 6)
        assert report.interruption["reason"] == "good night"
        late = await supervisor.run(premises.config("plan"), "r2")
        assert late.interruption["reason"] == "good night"
    async with premises.supervisor() as supervisor:
        report = await supervisor.resume("r1")
        assert report.status == "completed"
        assert (report.turns, report.tool_runs) == (3, 2)
        again = await supervisor.resume("r1")
        assert again == report
    seqs = [line["seq"] for line in premises.lines["r1"]]
    assert seqs == list(range(1, len(seqs) + 1))


@hosted
async def test_stop_from_another_terminal_reaches_a_tool(premises: Premises) -> None:
    """Through the socket in the run's directory: private, and gone with the run."""
    async with premises.supervisor() as supervisor:
        run_dir = premises.state_dir / "runs" / "r1"
        taken: list[bool] = []

        async def stop() -> None:
            await premises.told["tool_progress"].wait()
            assert (run_dir / "control.sock").stat().st_mode & 0o077 == 0
            for run_id in ("r9", "r1"):
                request = StopRequest(run_id, "stopped from afar", "somebody")
                taken.append(await trio.to_thread.run_sync(ask, run_dir, request))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop)
            report = await supervisor.run(premises.config("waits", "wait"), "r1")
    assert taken == [False, True]
    assert report.interruption == {
        "type": "cancelled",
        "reason": "stopped from afar",
        "who": "somebody",
    }
    assert not ask(run_dir, StopRequest("r1", "too late"))


@hosted
async def test_a_run_under_way_is_refused_to_a_second_resume(premises: Premises) -> None:
    """In words, from this program and from another one; the first is not disturbed."""
    async with premises.supervisor() as supervisor:
        # Another program, of which only the tree matters here.
        other = Supervisor(supervisor.state_dir, supervisor.spawner, supervisor._nursery, ignore)

        async def intrude() -> None:
            await premises.told["tool_progress"].wait()
            with pytest.raises(RunRefused, match=f"is held by process {os.getpid()} that"):
                await other.resume("r1")
            with pytest.raises(RunRefused, match="under way in this program"):
                await supervisor.resume("r1")
            supervisor.stop("enough")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(intrude)
            report = await supervisor.run(premises.config("waits", "wait"), "r1")
    assert report.interruption["reason"] == "enough"


@hosted
async def test_kill_leaves_everything_resumable(premises: Premises) -> None:
    """No ending is recorded; raised limits come with the resume."""
    async with premises.supervisor() as supervisor:

        async def kill() -> None:
            await premises.told["tool_progress"].wait()
            supervisor.kill()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            report = await supervisor.run(premises.config("waits", "wait"), "r1")
        assert (report.status, report.exit_code) == (None, 6)
    async with premises.supervisor() as supervisor:
        report = await supervisor.resume("r1", LimitChange(max_turns=5))
    assert report.status == "completed"


@hosted
async def test_a_provider_that_dies_comes_back_at_its_address(premises: Premises) -> None:
    """The scripted provider keeps nothing of a run, so the run only asks again."""
    async with premises.supervisor() as supervisor:

        async def kill() -> None:
            await premises.told["tool_result"].wait()
            for pid in providers():
                os.kill(pid, signal.SIGKILL)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            report = await supervisor.run(premises.config("plan", latency=30), "r1")
    assert report.status == "completed"
    assert any(line["type"] == "turn_failed" for line in premises.lines["r1"])


def providers() -> list[int]:
    """The scripted providers that this process's zygote has made."""
    found = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/comm")]
    return [
        pid
        for pid in found
        if (fields := stat_of(pid)) and fields[0] == "exeunt-provider" and ours(int(fields[2]))
    ]


def ours(zygote: int) -> bool:
    fields = stat_of(zygote)
    return bool(fields) and int(fields[2]) == os.getpid()


def stat_of(pid: int) -> list[str]:
    """Name, state and parent of a process; nothing when it is gone."""
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
    except OSError:
        return []
    return [name, *rest.split()]


@pytest.mark.slow
async def test_mistakes_are_told_as_what_they_are(premises: Premises) -> None:
    """A run that cannot start leaves as the error that it is, alone and in words."""
    served = HEAD.format(tools="[]") + (
        '[provider]\nkind = "openai"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n'
        'api_key_env = "A_MISSING_KEY"\n'
    )
    async with premises.supervisor() as supervisor:
        await supervisor.run(premises.config("plan"), "r1")
        with pytest.raises(StateError, match="there is a run r1 already"):
            await supervisor.run(premises.config("plan"), "r1")
        with pytest.raises(StateError, match="there is no run r9"):
            await supervisor.resume("r9")
        with pytest.raises(StateError, match="is no run id"):
            await supervisor.run(premises.config("plan"), "../r9")
        with pytest.raises(ConfigError, match="A_MISSING_KEY is not set"):
            await supervisor.run(premises.config_of(served), "r2")
        assert not supervisor.state_dir.exists("r2")


@pytest.mark.slow
async def test_a_program_that_fails_leaves_no_process(premises: Premises) -> None:
    """An exception in the block passes as it is; its runs are stopped and recorded first."""

    class Mistake(Exception):
        pass

    async def fail() -> None:
        await premises.told["tool_progress"].wait()
        raise Mistake

    async def program() -> None:
        async with premises.supervisor() as supervisor, trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            await supervisor.run(premises.config("waits", "wait"), "r1")

    with pytest.raises(BaseExceptionGroup) as caught:
        await program()
    assert caught.group_contains(Mistake)
    assert not any(map(is_alive, premises.pids("r1")))
    async with premises.supervisor() as supervisor:
        report = await supervisor.resume("r1")
    assert report.status == "completed"
