"""Tools as people write them: whatever they raise, return or outlast, the call has its answer."""

import sys
import threading
from typing import Any

import pytest
import trio
from world import World

from actors import tool
from actors.opening import OpenRun
from actors.outcome import Status
from actors.testing.scripts import Call, Say
from actors.tool_calls import PROGRESS_SECONDS_MIN, RESULT_MAX, MustLeave
from actors.tool_context import ToolContext
from actors.tool_errors import ToolError

DONE = Say("done")


def raised(error: BaseException) -> Any:
    @tool(read_only=True)
    async def explode() -> str:
        """Explode."""
        raise error

    return explode


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (SystemExit(3), "the tool tried to end the process"),
        (ExceptionGroup("two", [ValueError("a"), KeyError("b")]), "ValueError: a; KeyError: 'b'"),
        (MemoryError(), "memory"),
        (RecursionError("deep"), "RecursionError: deep"),
        (FileNotFoundError(2, "No such file", "x"), "no such file or directory: x (ENOENT)"),
        (ValueError("\ud800 and \x00"), "ValueError: \ufffd and \x00"),
        (ToolError(""), "ToolError"),
    ],
    ids=["exit", "group", "memory", "recursion", "os", "surrogate", "empty"],
)
async def test_whatever_a_tool_raises_becomes_words(
    world: World, error: BaseException, words: str
) -> None:
    """One call's failure is that call's answer, whatever its kind."""
    await world.provide([Call("explode"), DONE])
    world.offer(raised(error))
    assert (await world.perform()).status is Status.COMPLETED
    assert words.lower() in world.results()[0].lower()
    assert world.lines("tool_result")[0]["ok"] is False


async def test_a_plain_tool_that_raises_is_answered_too(world: World) -> None:
    """What leaves a thread is the same as what leaves a task."""

    @tool(read_only=True)
    def leave() -> str:
        """Try to leave."""
        sys.exit(1)

    await world.provide([Call("leave"), DONE])
    world.offer(leave)
    await world.perform()
    assert world.results() == ["error: the tool tried to end the process"]


HUGE = "🦆" + "x" * 5_000_000


@pytest.mark.parametrize(
    ("value", "content", "notes"),
    [
        ("\ud83d alone", "\ufffd alone", ["cleaned"]),
        ("a\x00b", "a\x00b", None),
        ({"n": 10**400}, '{"n":"1' + "0" * 400 + '"}', None),
        ([2**63, -(2**64)], '["9223372036854775808","-18446744073709551616"]', None),
        (None, "(no output)", None),
        ("", "(empty)", None),
        (b"\xff\xfe", "\ufffd\ufffd", None),
        (float("nan"), "null", None),
        ("<|endoftext|>", "<|endoftext|>", None),
    ],
    ids=["surrogate", "nul", "huge", "wide", "none", "empty", "bytes", "nan", "special"],
)
async def test_whatever_a_tool_returns_is_saved(
    world: World, value: object, content: str, notes: list[str] | None
) -> None:
    """A result can always be saved, read back and sent; what was mended is said in the trace."""

    @tool(read_only=True)
    async def give() -> object:
        """Give something."""
        return value

    await world.provide([Call("give"), DONE])
    world.offer(give)
    assert (await world.perform()).status is Status.COMPLETED
    assert world.results() == [content]
    assert world.lines("tool_result")[0].get("notes") == notes
    assert world.asked[-1].results == (content,)


async def test_a_result_of_five_megabytes_is_capped_and_said(world: World) -> None:
    """Head and tail are kept, what is missing is told, and the trace has a note."""

    @tool(read_only=True)
    async def give() -> str:
        """Give much."""
        return HUGE

    await world.provide([[Call("give"), Call("explode")], DONE])
    # The cap in the record is what this is about, so no second turn is asked.
    world.limit(max_turns=1)
    world.change(prices=None)
    world.offer(give, raised(ToolError(HUGE)))
    await world.perform()
    content, failure = world.results()
    assert len(content) < RESULT_MAX + 100
    assert f"[... {len(HUGE) - RESULT_MAX} characters left out ...]" in content
    assert len(failure) < RESULT_MAX + 100
    notes = [line.get("notes") for line in world.lines("tool_result")]
    assert [f"capped: {len(HUGE)} characters"] in notes


async def test_an_async_tool_that_overruns_is_stopped(world: World) -> None:
    """Its time is up, the model is told, and the run goes on."""

    @tool(read_only=True, timeout_s=0.02)
    async def hang() -> str:
        """Hang."""
        await trio.sleep_forever()
        return ""

    await world.provide([Call("hang"), DONE])
    world.offer(hang)
    assert (await world.perform()).status is Status.COMPLETED
    assert world.results() == ["error: hang did not end within 0.02 s and was stopped"]


async def test_a_write_that_overruns_is_not_called_undone(world: World) -> None:
    """Whether it took effect is not known, and that is what is said."""

    @tool(timeout_s=0.02)
    async def hang() -> str:
        """Hang."""
        await trio.sleep_forever()
        return ""

    await world.provide([Call("hang"), DONE])
    world.offer(hang)
    await world.perform()
    assert "Whether it took effect is not known" in world.results()[0]


async def test_a_blocking_tool_that_overruns_needs_another_process(world: World) -> None:
    """Its thread cannot be stopped, so this process leaves; the next one has the answer."""
    release = threading.Event()

    @tool(read_only=True, timeout_s=0.02)
    def block() -> str:
        """Block."""
        release.wait(5)
        return ""

    await world.provide([Call("block"), DONE])
    world.offer(block)
    try:
        with pytest.raises(MustLeave):
            await world.perform()
    finally:
        release.set()
    assert world.state.outcome is None
    assert (await world.perform("resume")).status is Status.COMPLETED
    assert world.results() == ["error: block did not end within 0.02 s and was stopped"]
    assert world.state.head.tool_runs == 1
    assert world.state.head.stalled_opens == 0


async def test_a_stop_in_a_blocking_tool_needs_another_process(world: World) -> None:
    """The Stop is on record before the process leaves, so the next one ends the run."""
    release = threading.Event()

    @tool
    def block() -> str:
        """Block."""
        release.wait(5)
        return ""

    await world.provide([Call("block"), DONE])
    world.offer(block)

    async def press(run: OpenRun) -> None:
        await world.reached("tool:block:before")
        run.request_stop("enough", "user")

    try:
        with pytest.raises(MustLeave):
            await world.perform(meanwhile=press)
    finally:
        release.set()
    outcome = await world.perform("resume")
    assert outcome.status is Status.INTERRUPTED
    assert outcome.reason == "enough"
    assert world.results() == [
        "stopped while it ran: cancelled, enough. Whether it took effect is not known. "
        "Check before you ask for it again."
    ]


async def test_progress_is_traced_while_a_tool_runs(world: World) -> None:
    """From a task and from a thread; what nobody could read is dropped, not queued."""

    @tool(read_only=True)
    async def walk(context: ToolContext) -> str:
        """Walk."""
        for step in range(1000):
            context.progress(f"step {step}\n\x1b[31m")
        await trio.sleep(PROGRESS_SECONDS_MIN + 0.01)
        context.progress("last step")
        return "walked"

    await world.provide([Call("walk"), DONE])
    world.offer(walk)
    await world.perform()
    labels = [line["label"] for line in world.lines("tool_progress")]
    assert [label.split()[0] for label in labels] == ["step", "last"]
    assert all("\n" not in label for label in labels)
