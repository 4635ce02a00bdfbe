"""A person's verdict on a call: recorded once, for a call that waits, by whoever has the lock."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from world import World

from actors.epoch import begin
from actors.events import ApprovalGiven, Opened, Started
from actors.journal import Held
from actors.messages import Nature
from actors.outcome import Status
from actors.record import Record
from actors.testing.scripts import Call, Say
from actors.verdict import Verdict, VerdictRefused, record_verdict

NOTES = Call("delete_file", {"path": "notes.txt"})
LOG = Call("delete_file", {"path": "access.log"})


async def interrupted(world: World, *calls: Call) -> None:
    """A run that waits for a verdict on these calls."""
    await world.provide([list(calls), Say("done")])
    assert (await world.perform()).status is Status.INTERRUPTED


def yes(ref: str = "1.0", **fields: Any) -> Verdict:
    return Verdict(ref=ref, yes=True, who="tester", **fields)


def no(ref: str = "1.0", **fields: Any) -> Verdict:
    return Verdict(ref=ref, yes=False, who="tester", **fields)


async def cut_off_in_a_write(world: World) -> None:
    """A run whose process died while a write ran: started, and nothing after it."""
    await interrupted(world, NOTES)
    assert await record_verdict(world.run_dir, yes(args='{"path":"access.log"}'))
    record = Record(world.run_dir)
    state = record.state
    opened = begin(
        record,
        why="resume",
        run_id="r1",
        root="r1",
        agent="lead",
        durability="process",
        config_digest="",
        limits=state.limits,
        tools=state.tools,
        prices=state.prices,
    )
    digest = state.call("1.0").asked
    assert digest
    started = Started(
        ref="1.0", name="delete_file", nature=Nature.WRITE, key="k", attempt=1, digest=digest
    )
    record.write(opened, started)
    record.close()


async def test_a_verdict_is_one_epoch_and_changes_nothing_else(world: World) -> None:
    """The journal grows by an opening that copies the run's terms, and by the verdict."""
    await interrupted(world, NOTES)
    before, terms = len(world.events), world.state
    assert await record_verdict(world.run_dir, no(reason="keep it"))
    opened, given = world.events[before:]
    assert isinstance(opened, Opened)
    assert (opened.why, opened.epoch, opened.prompts) == ("verdict", 2, ())
    assert (opened.limits, opened.tools, opened.prices) == (terms.limits, terms.tools, terms.prices)
    assert isinstance(given, ApprovalGiven)
    assert (given.verdict, given.who, given.reason) == ("reject", "tester", "keep it")
    assert given.digest == terms.call("1.0").asked
    assert world.state.outcome == terms.outcome


async def test_the_second_time_is_without_effect(world: World) -> None:
    """The same verdict again writes nothing, another one is refused: the first counts."""
    await interrupted(world, NOTES)
    assert await record_verdict(world.run_dir, yes())
    before = len(world.events)
    assert not await record_verdict(world.run_dir, yes())
    with pytest.raises(VerdictRefused, match=r"has a verdict by tester already \(approve\)"):
        await record_verdict(world.run_dir, no())
    with pytest.raises(VerdictRefused, match="the first one counts"):
        await record_verdict(world.run_dir, yes(args='{"path":"access.log"}'))
    assert len(world.events) == before


async def test_a_call_that_does_not_wait_is_refused_and_the_waiting_ones_named(
    world: World,
) -> None:
    """Unknown names, names that Python would take for one, and calls with an answer."""
    await interrupted(world, Call("list_files"), NOTES, LOG)
    for ref, words in (
        ("9.9", "there is no call '9.9'"),
        ("1.-1", "there is no call"),
        ("01.1", "there is no call"),
        ("x\x1b", "there is no call"),
        ("1.0", "call 1.0 has its answer already"),
    ):
        with pytest.raises(VerdictRefused) as refused:
            await record_verdict(world.run_dir, yes(ref))
        assert words in str(refused.value)
        assert "waiting for a verdict: 1.1, 1.2" in str(refused.value)


async def test_a_run_that_has_ended_takes_no_verdict(world: World) -> None:
    """Approving twice, the second time after the run went on, says so and does nothing."""
    await interrupted(world, NOTES)
    assert await record_verdict(world.run_dir, yes())
    assert (await world.perform("resume")).status is Status.COMPLETED
    with pytest.raises(VerdictRefused, match=r"the run has ended \(completed\)"):
        await record_verdict(world.run_dir, yes())


async def test_what_may_have_happened_is_asked_of_started_calls_alone(world: World) -> None:
    """``--done`` and ``--not-done`` make no sense for a call that only waits."""
    await interrupted(world, NOTES)
    for verdict in (yes(happened=True), no(happened=False)):
        with pytest.raises(VerdictRefused, match="was not started"):
            await record_verdict(world.run_dir, verdict)


@pytest.mark.parametrize(
    ("verdict", "word"),
    [(yes(), "run_again"), (yes(happened=True), "done"), (no(happened=False), "not_done")],
)
async def test_a_call_in_doubt_is_run_again_or_told_as_it_was(
    make_world: Callable[[], World], verdict: Verdict, word: str
) -> None:
    """The verdict names the digest that was started, and a person's edit of before stays."""
    world = make_world()
    await cut_off_in_a_write(world)
    with pytest.raises(VerdictRefused, match="its arguments stay as they are"):
        await record_verdict(world.run_dir, yes(args="{}"))
    assert await record_verdict(world.run_dir, verdict)
    call = world.state.call("1.0")
    assert call.verdict
    assert (call.verdict.verdict, call.verdict.digest) == (word, call.digest)
    assert call.arguments == '{"path":"access.log"}'
    assert not await record_verdict(world.run_dir, verdict)
    assert (await world.perform("resume")).status is Status.COMPLETED
    assert (world.workspace / "notes.txt").exists()
    assert (world.workspace / "access.log").exists() == (word != "run_again")


async def test_a_held_run_takes_no_verdict(world: World, tmp_path: Path) -> None:
    """Whoever performs the run has its lock; nothing is written beside them."""
    await interrupted(world, NOTES)
    record = Record(world.run_dir)
    try:
        with pytest.raises(Held):
            await record_verdict(world.run_dir, yes())
    finally:
        record.close()
    assert await record_verdict(world.run_dir, yes())
