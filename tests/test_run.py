"""Whole runs in this process: what the specification's tables promise, as relations."""

import os
import shutil
from collections.abc import Callable

import pytest
import trio
from world import World

from actors import file_tools, tool
from actors.events import Asked, Opened
from actors.journal import Corrupt, Held
from actors.opening import OpenRun, Unusable
from actors.outcome import Cancelled, Outcome, Status
from actors.spec import LimitChange
from actors.testing.scripts import Call, Say
from actors.tool_context import ToolContext

MakeWorld = Callable[[], World]
LIST = Call("list_files")


async def test_plan_answers_in_three_turns(world: World) -> None:
    """The demonstration: list, read, answer; money is tokens times prices."""
    await world.provide("plan")
    outcome = await world.perform()
    assert outcome.status is Status.COMPLETED
    assert outcome.output == "errors.log mentions a timeout: worker 7 timed out after 30000 ms."
    head = world.state.head
    assert (head.turns, head.tool_runs) == (3, 2)
    assert head.cost_nusd == 2000 * head.input_tokens + 12000 * head.output_tokens
    assert head.cost_nusd == world.billed_nusd()
    turns = [line["input_tokens"] for line in world.lines("turn")]
    assert turns == sorted(turns)
    assert turns[0] < turns[2]


async def test_the_runs_own_count_is_the_bill(world: World) -> None:
    """What a budget reckons with before a call is what the provider charges for its input."""
    await world.provide("plan")
    await world.perform()
    asked = [event.input_estimate for event in world.events if isinstance(event, Asked)]
    assert asked == [line["input_tokens"] for line in world.lines("turn")]


async def test_only_being_told_recovers(make_world: MakeWorld) -> None:
    """``tell`` answers the question at a price; ``hide`` gives up politely; ``fatal`` fails."""
    found: dict[str, tuple[Status, str | None, int]] = {}
    for policy in ("tell", "hide", "fatal"):
        world = make_world()
        await world.provide("recover")
        world.forgive(tool_errors=policy)
        outcome = await world.perform()
        found[policy] = (outcome.status, outcome.output, world.state.head.cost_nusd)
        if policy == "hide":
            assert world.results() == ["the tool failed"]
        if policy == "fatal":
            assert "timeout.log" in (outcome.error or "")
    assert found["tell"][0] is Status.COMPLETED
    assert "worker 7 timed out" in (found["tell"][1] or "")
    assert found["hide"][:2] == (
        Status.COMPLETED,
        "I am sorry, I could not find a file that mentions a timeout.",
    )
    assert found["fatal"][:2] == (Status.FAILED, None)
    assert found["tell"][2] > 3 * found["fatal"][2]


@pytest.mark.parametrize("policy", ["tell", "hide", "fatal"])
async def test_a_permanent_error_stops_the_run_at_once(world: World, policy: str) -> None:
    """No message mends a denied permission, so ``forbidden`` ends after one tool run."""

    @tool(read_only=True)
    async def read_file(path: str) -> str:
        """Read a file."""
        raise PermissionError(13, "Permission denied", path)

    await world.provide("forbidden")
    world.offer(read_file)
    world.forgive(tool_errors=policy)
    outcome = await world.perform()
    assert outcome.status is Status.FAILED
    assert outcome.error == "read_file: error: permission denied: secret.txt (EACCES)"
    assert (world.state.head.turns, world.state.head.tool_runs) == (1, 1)


async def test_duplicate_reads_run_once_and_are_answered_twice(world: World) -> None:
    """A cached result saves the tool run, but not the turn."""
    await world.provide("duplicate")
    await world.perform()
    assert world.state.head.tool_runs == 1
    assert world.state.head.turns == 3
    first, second = world.results()
    assert first == second
    assert [line["ok"] for line in world.lines("tool_result")] == [True, True]


async def test_writes_always_run_and_each_has_its_own_key(world: World) -> None:
    """Two call ids are two calls: ``double_delete`` runs twice, with two keys."""
    keys: list[str] = []

    @tool
    async def delete_file(context: ToolContext, path: str) -> str:
        """Delete a file."""
        keys.append(context.key)
        return f"{path} was deleted."

    await world.provide("double_delete")
    world.offer(delete_file)
    await world.perform()
    assert world.state.head.tool_runs == 2
    assert len(set(keys)) == 2


async def test_a_write_makes_the_reads_before_it_stale(world: World) -> None:
    """List, delete, list: the second list is run again and shows what is left."""

    @tool
    async def remove(context: ToolContext, path: str) -> str:
        """Remove a file."""
        context.require_workspace().unlink(path)
        return "removed"

    await world.provide([LIST, Call("remove", {"path": "access.log"}), LIST, Say("done")])
    world.offer(file_tools.list_files, remove, workspace=True)
    await world.perform()
    first, _, second = world.results()
    assert "access.log" in first
    assert "access.log" not in second


async def test_stop_ends_the_scan_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One signal reaches the tool: no wait for its end, a reason, and every call answered."""
    monkeypatch.setenv("EXEUNT_SCAN_SECONDS", "0.6")
    await world.provide("slow")
    world.offer(file_tools.scan_archive, workspace=True)
    pressed = 0.0

    async def press(run: OpenRun) -> None:
        nonlocal pressed
        await world.reached("tool:scan_archive:before")
        await trio.sleep(0.11)
        pressed = trio.current_time()
        run.request_stop("user pressed Stop", "user")

    outcome = await world.perform(meanwhile=press)
    assert trio.current_time() - pressed < 0.1
    assert outcome == Outcome(Status.INTERRUPTED, Cancelled("user pressed Stop", "user"))
    assert world.lines("tool_progress")[0]["label"] == "scanned 200 of 1200 files"
    assert world.results() == ["stopped before it ended: cancelled, user pressed Stop"]
    assert world.lines()[-1]["reason"] == "user pressed Stop"


async def test_stop_cancels_the_request_in_flight(world: World) -> None:
    """The model's answer is not waited for, and what it may cost is said."""
    await world.provide("plan", latency_ms=5000)

    async def press(run: OpenRun) -> None:
        await world.reached("model:before")
        run.request_stop("enough", "user")

    outcome = await world.perform(meanwhile=press)
    assert outcome == Outcome(Status.INTERRUPTED, Cancelled("enough", "user"))
    assert world.state.head.maybe_nusd > 0
    assert world.bills() == []


async def test_a_stopped_run_goes_on_when_resumed(world: World) -> None:
    """Cancelled is an interruption: the answered call is in the transcript, the model goes on."""
    stops = 0

    @tool(read_only=True)
    async def wait() -> str:
        """Wait."""
        if stops == 0:
            await trio.sleep_forever()
        return "waited"

    await world.provide([Call("wait"), Call("wait"), Say("done")])
    world.offer(wait)

    async def press(run: OpenRun) -> None:
        nonlocal stops
        await world.reached("tool:wait:before")
        run.request_stop("lunch", "user")

    await world.perform(meanwhile=press)
    stops = 1
    outcome = await world.perform("resume")
    assert outcome == Outcome(Status.COMPLETED, output="done")
    assert world.results() == ["stopped before it ended: cancelled, lunch", "waited"]


async def test_resuming_a_completed_run_asks_nobody(world: World) -> None:
    """The outcome is on record; not even the journal grows."""
    await world.provide("plan")
    first = await world.perform()
    size = (world.run_dir / "journal.x1").stat().st_size
    assert await world.perform("resume") == first
    assert len(world.bills()) == 3
    assert (world.run_dir / "journal.x1").stat().st_size == size


async def test_a_run_in_two_parts_costs_what_one_costs(make_world: MakeWorld) -> None:
    """The same final cost and the same requests as the run that was never interrupted."""
    whole, parts = make_world(), make_world()
    for world in (whole, parts):
        await world.provide("plan")
    await whole.perform()
    parts.limit(max_turns=2)
    await parts.perform()
    await parts.perform("resume", raised=LimitChange(max_turns=20))
    head, other = parts.state.head, whole.state.head
    assert (head.cost_nusd, head.input_tokens, head.tool_runs) == (
        other.cost_nusd,
        other.input_tokens,
        other.tool_runs,
    )
    assert head.maybe_nusd == 0


async def test_a_failure_is_final(world: World) -> None:
    """A failed run cannot be resumed: its ending is returned as it stands."""
    await world.provide([Say("")])
    first = await world.perform()
    assert first == Outcome(Status.FAILED, error="the model sent an answer with nothing in it")
    assert await world.perform("resume") == first
    assert len(world.bills()) == 1


async def test_a_workspace_that_is_gone_is_said(world: World) -> None:
    """A resume is refused in words and changes nothing; a new run is recorded as failed."""
    await world.provide("runaway")
    world.limit(max_turns=1)
    await world.perform()
    size = (world.run_dir / "journal.x1").stat().st_size
    world.workspace.rename(world.workspace.with_name("elsewhere"))
    with pytest.raises(Unusable, match=r"workspace .* cannot be opened: No such file"):
        await world.perform("resume")
    assert (world.run_dir / "journal.x1").stat().st_size == size


async def test_a_journal_of_another_run_is_refused(make_world: MakeWorld) -> None:
    """It is not gone on with under another name."""
    one, other = make_world(), make_world()
    await one.provide("runaway")
    one.limit(max_turns=1)
    await one.perform()
    other.run_id = "r2"
    await other.provide("plan")
    shutil.copy(one.run_dir / "journal.x1", other.run_dir)
    before = (other.run_dir / "journal.x1").read_bytes()
    with pytest.raises(Corrupt, match="holds the journal of run r1, not of r2"):
        await other.perform("resume")
    assert (other.run_dir / "journal.x1").read_bytes() == before
    assert other.bills() == []


async def test_two_processes_cannot_perform_one_run(world: World) -> None:
    """The second is refused with the owner's pid, and asks and appends nothing."""
    await world.provide("plan", latency_ms=2000)

    async def intrude(run: OpenRun) -> None:
        await world.reached("model:before")
        with pytest.raises(Held, match=f"process {os.getpid()} on"):
            await world.perform("resume")
        run.request_stop("enough", "user")

    await world.perform(meanwhile=intrude)
    assert [event.epoch for event in world.events if isinstance(event, Opened)] == [1]
