"""Approval is a return: the run ends as interrupted, and a verdict is used once, for one call."""

from typing import Any

import msgspec
import pytest
from world import World

from actors import tool
from actors.messages import ResultKind
from actors.outcome import Approval, InDoubt, Outcome, PendingCall, Status
from actors.testing.scripts import Call, Say
from actors.tool_context import ToolContext
from actors.tools import Tool

DONE = Say("done")


class Deleter:
    """A tool under approval, and what was done with it."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    def tool(self, description: str = "Delete a file.") -> Tool:
        @tool(needs_approval=True, description=description)
        async def delete(path: str) -> str:
            self.deleted.append(path)
            return f"{path} was deleted."

        return delete


@pytest.fixture
def deleter() -> Deleter:
    return Deleter()


async def test_a_call_that_needs_approval_ends_the_run_resumably(world: World) -> None:
    """What a person needs to decide is in the ending; the process may be gone by then."""
    await world.provide("destructive")
    outcome = await world.perform()
    assert outcome == Outcome(
        Status.INTERRUPTED,
        Approval("r1", "2.0", "delete_file", {"path": "access.log"}, ("r1",)),
    )
    assert (world.workspace / "access.log").exists()
    (line,) = world.lines("approval_required")
    assert (line["tool_name"], line["call"]) == ("delete_file", "2.0")
    assert line["args"] == {"path": "access.log"}
    assert world.lines()[-1]["reason"] == "approval needed for delete_file (call 2.0)"


async def test_resuming_without_a_verdict_waits_again(world: World) -> None:
    """Nothing is run, nothing is asked, and nobody is asked twice for the same call."""
    await world.provide("destructive")
    first = await world.perform()
    assert await world.perform("resume") == first
    assert len(world.lines("approval_required")) == 1
    assert len(world.bills()) == 2


async def test_an_approved_call_runs(world: World) -> None:
    """The same run goes on, without repeating an earlier step."""
    await world.provide("destructive")
    await world.perform()
    await world.answer("2.0", True)
    outcome = await world.perform("resume")
    assert outcome == Outcome(Status.COMPLETED, output="Deleted access.log to free space.")
    assert not (world.workspace / "access.log").exists()
    assert world.state.head.tool_runs == 2
    assert len(world.bills()) == 3


async def test_a_rejected_call_is_told_in_words(world: World) -> None:
    """Rejected with nothing, a model reports a deletion that never happened."""
    await world.provide("destructive")
    await world.perform()
    await world.answer("2.0", False, reason="The log is evidence.")
    outcome = await world.perform("resume")
    assert outcome.output == "I did not delete anything: you declined the deletion."
    assert (world.workspace / "access.log").exists()
    assert "The reason: The log is evidence." in world.results()[-1]
    assert world.lines("tool_result")[-1]["outcome"] == "rejected"


async def test_a_rejection_without_a_reason_has_words_too(world: World) -> None:
    await world.provide("destructive")
    await world.perform()
    await world.answer("2.0", False)
    outcome = await world.perform("resume")
    assert outcome.output == "I did not delete anything: you declined the deletion."


async def test_edited_arguments_are_the_ones_that_run(world: World, deleter: Deleter) -> None:
    """A person may approve something else than was asked, and the model is told."""
    await world.provide([Call("delete", {"path": "a"}), DONE])
    world.offer(deleter.tool())
    await world.perform()
    await world.answer("1.0", True, args='{"path": "b"}')
    await world.perform("resume")
    assert deleter.deleted == ["b"]
    assert world.lines("tool_start")[0]["args"] == {"path": "b"}
    assert world.lines("tool_result")[0]["notes"] == ["arguments edited"]
    assert world.results() == [
        '[A person changed the arguments of this call to {"path": "b"}]\nb was deleted.'
    ]


async def test_edited_arguments_are_checked_again(world: World, deleter: Deleter) -> None:
    """An edit that does not fit is not run."""
    await world.provide([Call("delete", {"path": "a"}), DONE])
    world.offer(deleter.tool())
    await world.perform()
    await world.answer("1.0", True, args='{"path": 5}')
    await world.perform("resume")
    assert deleter.deleted == []
    assert "do not fit" in world.results()[0]


@pytest.mark.parametrize("args", [None, '{"path": "b"}'], ids=["as asked", "edited"])
async def test_an_approval_is_void_when_the_tool_has_changed(
    world: World, deleter: Deleter, args: str | None
) -> None:
    """What was approved is not what would run now, so the person is asked again."""
    await world.provide([Call("delete", {"path": "a"}), DONE])
    world.offer(deleter.tool())
    await world.perform()
    await world.answer("1.0", True, args=args)
    world.offer(deleter.tool("Delete a file, and everything that links to it."))
    outcome = await world.perform("resume")
    assert isinstance(outcome.interruption, Approval)
    assert deleter.deleted == []
    await world.answer("1.0", True)
    await world.perform("resume")
    assert deleter.deleted == ["a" if args is None else "b"]


async def test_a_tool_that_is_gone_is_answered_in_words(world: World, deleter: Deleter) -> None:
    """A pending call of a tool that vanished does not hold up the run."""
    await world.provide([Call("delete", {"path": "a"}), DONE])
    world.offer(deleter.tool())
    await world.perform()
    await world.answer("1.0", True)
    world.offer()
    assert (await world.perform("resume")).status is Status.COMPLETED
    assert world.results() == ["error: the tool delete no longer exists. Available: none"]


async def test_a_verdict_is_used_once(world: World, deleter: Deleter) -> None:
    """The same call asked again, in a later turn, needs a verdict of its own."""
    await world.provide([*[Call("delete", {"path": "a"}, id="same")] * 2, DONE])
    world.offer(deleter.tool())
    await world.perform()
    await world.answer("1.0", True)
    outcome = await world.perform("resume")
    assert isinstance(outcome.interruption, Approval)
    assert outcome.interruption.call == "2.0"
    assert deleter.deleted == ["a"]


async def test_all_waiting_calls_are_listed_and_answered_one_by_one(
    world: World, deleter: Deleter
) -> None:
    """Each verdict carries its call, in any order; the rest waits on."""
    calls = [Call("delete", {"path": path}) for path in ("a", "b")]
    await world.provide([calls, DONE])
    world.offer(deleter.tool())
    outcome = await world.perform()
    assert isinstance(outcome.interruption, Approval)
    assert [pending.call for pending in outcome.interruption.pending] == ["1.0", "1.1"]
    assert isinstance(outcome.interruption.pending[0], PendingCall)
    await world.answer("1.1", False)
    outcome = await world.perform("resume")
    assert isinstance(outcome.interruption, Approval)
    assert (outcome.interruption.call, outcome.interruption.pending) == ("1.0", ())
    await world.answer("1.0", True)
    assert (await world.perform("resume")).status is Status.COMPLETED
    assert deleter.deleted == ["a"]
    assert world.results()[0] == "a was deleted."


async def test_what_needs_no_person_is_done_before_one_is_asked(
    world: World, deleter: Deleter
) -> None:
    """Reads in front of the call are answered; what stands behind it waits with it."""
    looked: list[int] = []

    @tool(read_only=True)
    async def look(at: int) -> str:
        """Look."""
        looked.append(at)
        return "seen"

    calls = [Call("look", {"at": 1}), Call("delete", {"path": "a"}), Call("look", {"at": 2})]
    await world.provide([calls, DONE])
    world.offer(look, deleter.tool())
    await world.perform()
    assert looked == [1]
    await world.answer("1.1", True)
    await world.perform("resume")
    assert looked == [1, 2]


async def test_arguments_of_any_type_can_be_asked_about(world: World) -> None:
    """What a person is shown is what the model wrote, and is read back as it was written."""

    class Target(msgspec.Struct):
        path: str
        tags: set[str]

    @tool(needs_approval=True)
    async def delete(target: Target, sizes: dict[int, str]) -> str:
        """Delete."""
        return f"{target.path} {sizes}"

    arguments: dict[str, Any] = {"target": {"path": "a", "tags": ["x"]}, "sizes": {"1": "b"}}
    await world.provide([Call("delete", arguments), DONE])
    world.offer(delete)
    outcome = await world.perform()
    assert isinstance(outcome.interruption, Approval)
    assert outcome.interruption.args == arguments


async def test_a_write_in_doubt_is_put_to_a_person(world: World, deleter: Deleter) -> None:
    """A call under approval that a process died in is not run again without a word."""
    await died_in_it(world, deleter)
    outcome = await world.perform("restart")
    assert outcome == Outcome(
        Status.INTERRUPTED, InDoubt("r1", "1.0", "delete", {"path": "a"}, ("r1",))
    )
    assert deleter.deleted == []


async def died_in_it(world: World, deleter: Deleter, args: str | None = None) -> None:
    """A run whose process died while an approved call was running."""

    class Death(BaseException):
        pass

    @tool(needs_approval=True, name="delete", description="Delete a file.")
    async def die(path: str) -> str:
        raise Death

    await world.provide([Call("delete", {"path": "a"}), DONE])
    world.offer(deleter.tool())
    await world.perform()
    await world.answer("1.0", True, args=args)
    world.offer(die)
    with pytest.raises(BaseExceptionGroup):
        await world.perform("resume")
    world.offer(deleter.tool())


@pytest.mark.parametrize(("yes", "words"), [(True, "it happened"), (False, "it did not happen")])
async def test_a_person_may_say_what_happened(
    world: World, deleter: Deleter, yes: bool, words: str
) -> None:
    """The answer goes to the model in words, and the call is not run."""
    await died_in_it(world, deleter)
    await world.perform("restart")
    await world.answer("1.0", yes, reason="I looked", happened=yes or None)
    assert (await world.perform("resume")).status is Status.COMPLETED
    assert f"{words} (I looked)" in world.results()[0]
    assert deleter.deleted == []


@pytest.mark.parametrize("args", [None, '{"path": "b"}'], ids=["as asked", "edited"])
async def test_a_person_may_have_it_run_again(
    world: World, deleter: Deleter, args: str | None
) -> None:
    """Once, and with the arguments that were approved, edited ones included."""
    await died_in_it(world, deleter, args)
    await world.perform("restart")
    await world.answer("1.0", True)
    assert (await world.perform("resume")).status is Status.COMPLETED
    assert deleter.deleted == ["a" if args is None else "b"]
    assert world.state.head.tool_runs == 2


async def test_running_again_is_allowed_once(world: World, deleter: Deleter) -> None:
    """A process that dies in it again leaves the call in doubt again."""
    await died_in_it(world, deleter)
    await world.perform("restart")
    await world.answer("1.0", True)

    class Death(BaseException):
        pass

    @tool(needs_approval=True, name="delete", description="Delete a file.")
    async def die(path: str) -> str:
        raise Death

    world.offer(die)
    with pytest.raises(BaseExceptionGroup):
        await world.perform("resume")
    world.offer(deleter.tool())
    assert isinstance((await world.perform("restart")).interruption, InDoubt)
    assert deleter.deleted == []


async def test_a_plain_write_in_doubt_is_told_in_words(world: World) -> None:
    """It is not run again, the model is told, and the run goes on."""
    runs = 0

    class Death(BaseException):
        pass

    @tool
    async def write() -> str:
        """Write."""
        nonlocal runs
        runs += 1
        raise Death

    await world.provide([Call("write"), DONE])
    world.offer(write)
    with pytest.raises(BaseExceptionGroup):
        await world.perform()
    assert (await world.perform("restart")).status is Status.COMPLETED
    assert "It was NOT run again" in world.results()[0]
    assert runs == 1
    (line,) = world.lines("tool_result")
    assert line["outcome"] == "in_doubt"


@pytest.mark.parametrize(
    ("answer", "runs", "kind"),
    [
        ("done", 1, ResultKind.OK),
        ("not_done", 2, ResultKind.OK),
        ("unknown", 1, ResultKind.IN_DOUBT),
    ],
)
async def test_a_probe_finds_out_what_happened(
    world: World, answer: str, runs: int, kind: ResultKind
) -> None:
    """A write with a probe is run again only if it has not happened."""
    keys: list[str] = []

    class Death(BaseException):
        pass

    def probe(key: str) -> str:
        assert [key] == keys
        return answer

    @tool(probe=probe)
    async def write(context: ToolContext) -> str:
        """Write."""
        keys.append(context.key)
        if context.attempt == 1:
            raise Death
        return "written"

    await world.provide([Call("write"), DONE])
    world.offer(write)
    with pytest.raises(BaseExceptionGroup):
        await world.perform()
    await world.perform("restart")
    assert len(keys) == runs
    assert len(set(keys)) == 1
    (call,) = world.state.turns[0].calls
    assert call.result
    assert call.result.outcome is kind


@pytest.mark.parametrize("keyed", [False, True], ids=["read_only", "keyed"])
async def test_reads_and_keyed_writes_run_again(world: World, keyed: bool) -> None:
    """With the same key; and after three processes that died in it, no more."""
    keys: list[str] = []

    class Death(BaseException):
        pass

    @tool(read_only=not keyed, keyed=keyed)
    async def work(context: ToolContext) -> str:
        """Work."""
        keys.append(context.key)
        raise Death

    await world.provide([Call("work"), DONE])
    world.offer(work)
    for why in ("start", "restart", "restart"):
        with pytest.raises(BaseExceptionGroup):
            await world.perform(why)
    assert (await world.perform("restart")).status is Status.COMPLETED
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert world.results() == ["This call ended the process 3 times and was not run again."]


CHANGED: dict[str, dict[str, Any]] = {
    "now plain": {"needs_approval": True},
    "now a read": {"read_only": True},
    "other words": {"keyed": True, "needs_approval": True, "description": "Delete for good."},
    "other schema": {"keyed": True, "needs_approval": True},
    "gone": {},
}


@pytest.mark.parametrize("change", CHANGED)
async def test_a_keyed_call_whose_tool_changed_after_a_crash_is_put_to_a_person(
    world: World, change: str
) -> None:
    """What was approved may have happened, and what the tool is now was approved by nobody."""
    deleted: list[str] = []

    class Death(BaseException):
        pass

    @tool(keyed=True, needs_approval=True, name="delete", description="Delete a file.")
    async def die(path: str) -> str:
        deleted.append("half")
        raise Death

    async def delete(path: str) -> str:
        deleted.append(path)
        return f"{path} was deleted."

    async def delete_all(path: str, folder: str) -> str:
        deleted.append(folder)
        return f"{folder} was deleted."

    await world.provide([Call("delete", {"path": "a"}), DONE])
    world.offer(die)
    await world.perform()
    await world.answer("1.0", True)
    with pytest.raises(BaseExceptionGroup):
        await world.perform("resume")
    function = delete_all if change == "other schema" else delete
    flags: dict[str, Any] = {"description": "Delete a file.", **CHANGED[change]}
    now = tool(name="delete", **flags)(function)
    world.offer(*([] if change == "gone" else [now]))
    outcome = await world.perform("restart")
    in_doubt = InDoubt("r1", "1.0", "delete", {"path": "a"}, ("r1",))
    assert outcome == Outcome(Status.INTERRUPTED, in_doubt)
    assert deleted == ["half"]
    await world.answer("1.0", True, happened=True)
    assert (await world.perform("resume")).status is Status.COMPLETED
    assert "it happened" in world.results()[0]
    assert deleted == ["half"]
