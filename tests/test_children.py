"""A run's children as their parent asks for them, with a supervisor that is played."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from golden_runs import journal_bytes
from story import Story

from actors.children import MARK, Children, child_tools
from actors.decision import Run
from actors.epoch import begin
from actors.events import Replied, Started, UserMessage
from actors.fan_out import FanOut
from actors.journal import JOURNAL
from actors.messages import Assistant, Nature, ToolCall
from actors.money import Usage
from actors.outcome import Outcome, Status
from actors.record import Record
from actors.reserve import ALIKE_MAX, no_child, reserve_nusd
from actors.spec import AgentTool, Limits
from actors.wire import ChildEnded, StartChild, StopChild

SECONDS = 5.0
(RESEARCH,) = child_tools([AgentTool(name="research", agent="researcher", description="Ask.")])


def child_journal(run_dir: Path, outcome: Outcome | None, cost_nusd: int = 5) -> None:
    """A child that has come to this ending."""
    story = Story()
    story.reply(text="x", cost_nusd=cost_nusd)
    if outcome:
        story.end(outcome)
    run_dir.mkdir(exist_ok=True)
    (run_dir / JOURNAL).write_bytes(journal_bytes(story.events))


class Played:
    """A supervisor: it notes what it is asked, and ends each child as it is told to."""

    def __init__(self, folder: Path, ending: Callable[[str], Outcome | None] | None = None) -> None:
        self.run_dir = folder / "r1"
        self.frames: list[StartChild | StopChild] = []
        self.news = trio.Event()
        self.live = self.most = 0
        self._ending = ending
        self.children = Children(self.run_dir, self.send, stop_seconds=0.2)

    async def send(self, frame: StartChild | StopChild) -> None:
        await trio.lowlevel.checkpoint()
        self.frames.append(frame)
        self.news.set()
        if isinstance(frame, StartChild) and self._ending:
            self.live += 1
            self.most = max(self.most, self.live)
            token = trio.lowlevel.current_trio_token()
            token.run_sync_soon(self.end, frame.ref, self._ending(frame.ref))

    def end(self, ref: str, outcome: Outcome | None, refused: str = "") -> None:
        if outcome:
            child_journal(self.run_dir.parent / f"r1.{ref}", outcome)
        self.live -= 1
        self.children.ended(ChildEnded(ref, refused))

    @property
    def started(self) -> list[str]:
        return [frame.ref for frame in self.frames if isinstance(frame, StartChild)]


COMPLETED = Outcome(Status.COMPLETED, output="It was 7.")


async def test_a_child_is_asked_for_and_read_when_it_has_ended(tmp_path: Path) -> None:
    """What the supervisor says is only that; what became of it stands in its journal."""
    played = Played(tmp_path, lambda ref: COMPLETED)
    report = await played.children.run("1.0", "researcher", "who?", 1000)
    assert played.frames == [StartChild("1.0", "researcher", "who?", 1000)]
    assert (report.words, report.spent_nusd) == ("completed: It was 7.", 5)


@pytest.mark.parametrize("there", [True, False], ids=["there before", "never there"])
async def test_a_child_that_is_refused_is_told_in_words(tmp_path: Path, there: bool) -> None:
    """One that never was has not failed."""
    played = Played(tmp_path)
    if there:
        (tmp_path / "r1.1.0").mkdir()
    async with trio.open_nursery() as nursery:

        async def refuse() -> None:
            await played.news.wait()
            played.end("1.0", None, "the tree is full")

        nursery.start_soon(refuse)
        report = await played.children.run("1.0", "researcher", "who?", None)
    failed = ("failed: the tree is full; no result so far", "failed")
    assert (report.words, report.status) == (
        failed if there else ("not run: the tree is full", "not run")
    )


async def test_without_a_supervisor_there_is_no_child(tmp_path: Path) -> None:
    report = await Children(tmp_path / "r1").run("1.0", "researcher", "who?", None)
    assert report.words == "not run: there is no supervisor to start a child"


async def test_a_child_that_nobody_can_start_any_more_is_not_refused(tmp_path: Path) -> None:
    """The supervisor is gone and the run stops, so its call stays open: a resume starts it."""
    children = Children(tmp_path / "r1")
    children.forsaken()
    with trio.CancelScope() as stopping:
        stopping.cancel()
        report = await children.run("1.0", "researcher", "who?", None)
        pytest.fail(f"the model would be told {report.words!r}")
    assert stopping.cancelled_caught


async def test_of_a_journal_that_cannot_be_read_all_that_was_reserved_is_spent(
    tmp_path: Path,
) -> None:
    """Nobody knows better, and a budget is no guess."""
    played = Played(tmp_path, lambda ref: COMPLETED)
    report_dir = tmp_path / "r1.1.0"
    report_dir.mkdir()
    (report_dir / JOURNAL).write_bytes(b"not a journal at all")
    report = played.children.report("1.0", reserve_nusd=700)
    assert (report.status, report.spent_nusd) == ("failed", 700)
    assert report.words.startswith("failed: ")


@pytest.mark.parametrize(
    ("deadline", "reason"),
    [(True, "its parent has reached its deadline"), (False, "its parent stops: lunch")],
    ids=["deadline", "reason"],
)
async def test_a_parent_that_is_cancelled_stops_its_child_and_says_why(
    tmp_path: Path, deadline: bool, reason: str
) -> None:
    """It waits until the child's ending is on record, and then passes the cancel on."""
    played = Played(tmp_path)
    async with trio.open_nursery() as nursery:

        async def end() -> None:
            while len(played.frames) < 2:  # noqa: ASYNC110  # bounded by the test's own time
                await trio.sleep(0.001)
            played.end("1.0", COMPLETED)

        nursery.start_soon(end)
        with trio.CancelScope(deadline=trio.current_time() + (0.02 if deadline else 9)) as scope:
            async with trio.open_nursery() as inner:
                inner.start_soon(played.children.run, "1.0", "researcher", "who?", None)
                await played.news.wait()
                if not deadline:
                    scope.cancel(reason="lunch")
    assert scope.cancelled_caught
    assert played.frames[1] == StopChild("1.0", reason)
    assert played.children.report("1.0").words == "completed: It was 7."


async def test_a_stubborn_child_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    played = Played(tmp_path)
    with trio.fail_after(SECONDS), trio.move_on_after(0.01) as scope:
        await played.children.run("1.0", "researcher", "who?", None)
    assert scope.cancelled_caught


async def test_the_end_of_the_supervisor_is_no_childs_end(tmp_path: Path) -> None:
    """Nobody is waited for any more, and nobody is said to have ended."""
    played = Played(tmp_path)
    reports: list[Any] = []

    async def ask() -> None:
        reports.append(await played.children.run("1.0", "researcher", "who?", None))

    began = trio.current_time()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await played.news.wait()
            scope.cancel(reason="gone")
            played.children.forsaken()
    assert reports == []
    assert trio.current_time() - began < 0.15
    assert len(played.frames) == 1


async def test_word_of_a_child_that_nobody_waits_for_changes_nothing(tmp_path: Path) -> None:
    played = Played(tmp_path, lambda ref: COMPLETED)
    played.children.ended(ChildEnded("7.7", "nobody asked"))
    report = await played.children.run("7.7", "researcher", "who?", None)
    assert report.status == "completed"


def test_a_childs_tool_says_that_its_result_is_data() -> None:
    """And its schema asks for one question, which may not be empty."""
    assert RESEARCH.nature is Nature.CHILD
    assert RESEARCH.description == f"Ask. {MARK}"


# Fan-outs: which of the children of one message start, and with how much.


def fan_out(folder: Path, many: int, limits: Limits) -> tuple[Record, list[Run]]:
    """A run whose model has just asked so many questions."""
    run_dir = folder / "r1"
    run_dir.mkdir()
    record = Record(run_dir)
    opened = begin(
        record, why="start", run_id="r1", root="r1", agent="lead", durability="process",
        config_digest="", limits=limits, tools={}, prices=None,
    )  # fmt: skip
    record.write(opened)
    calls = tuple(ToolCall("x", "research", f'{{"question": "{n}"}}') for n in range(many))
    message = Assistant(None, calls)
    record.write(Replied(turn=1, message=message, usage=Usage(1, 1), cost_nusd=0, finish="stop"))
    runs = [
        Run(call, RESEARCH, RESEARCH.parse(call.arguments), call.ref.encode(), 1)
        for call in record.state.pending
    ]
    return record, runs


async def perform(record: Record, runs: list[Run], played: Played) -> list[str]:
    with trio.fail_after(SECONDS):
        await FanOut(record, played.children).perform(runs)
    results = [call.result.content for call in record.state.turns[0].calls if call.result]
    record.close()
    return results


async def test_no_more_run_at_once_than_may(tmp_path: Path) -> None:
    """In the order of their calls."""
    record, runs = fan_out(tmp_path, 7, Limits(children_at_once=2))
    played = Played(tmp_path, lambda ref: COMPLETED)
    results = await perform(record, runs, played)
    assert results == ["completed: It was 7."] * 7
    assert played.started == [f"1.{number}" for number in range(7)]
    assert played.most <= 2


async def test_children_that_fail_alike_are_the_last_ones(tmp_path: Path) -> None:
    """Three of them, and not one more; each of the others is told why in words."""
    record, runs = fan_out(tmp_path, 9, Limits(children_at_once=1))
    played = Played(tmp_path, lambda ref: Outcome(Status.FAILED, error="no key"))
    results = await perform(record, runs, played)
    assert len(played.started) == ALIKE_MAX
    assert results[ALIKE_MAX:] == [
        "not run: the first 3 calls of research in this message failed alike, so the others were "
        "not started. failed: no key"
    ] * (9 - ALIKE_MAX)
    assert record.state.head.children == ALIKE_MAX


async def test_children_that_fail_in_different_ways_go_on(tmp_path: Path) -> None:
    record, runs = fan_out(tmp_path, 6, Limits(children_at_once=1))
    # Other numbers alone would be the same failure.
    words = dict(zip((run.call.ref for run in runs), "abcdef", strict=True))
    played = Played(tmp_path, lambda ref: Outcome(Status.FAILED, error=f"no {words[ref]}"))
    await perform(record, runs, played)
    assert len(played.started) == 6


@pytest.mark.parametrize(
    ("budget", "own", "waiting", "reserve"),
    [
        (None, None, 3, None),
        (None, 50, 3, 50),
        (900, None, 3, 300),
        (900, 50, 3, 50),
        (900, 500, 3, 300),
        (900, None, 1, 900),
        (2, None, 3, 0),
    ],
)
def test_a_reserve_is_the_smaller_of_limit_and_share(
    budget: int | None, own: int | None, waiting: int, reserve: int | None
) -> None:
    story = Story(Limits(max_budget_nusd=budget))
    agent = AgentTool(name="research", agent="researcher", description="", max_budget_nusd=own)
    (tool,) = child_tools([agent])
    assert reserve_nusd(story.state, tool, waiting) == reserve


async def test_too_small_a_share_starts_no_child(tmp_path: Path) -> None:
    """Nothing reserved would mean no limit at all."""
    record, runs = fan_out(tmp_path, 4, Limits(max_budget_nusd=3))
    played = Played(tmp_path, lambda ref: COMPLETED)
    results = await perform(record, runs, played)
    limits = [frame.limit_nusd for frame in played.frames if isinstance(frame, StartChild)]
    assert None not in limits
    assert any("too little for so many children" in result for result in results)


def test_a_spent_budget_starts_no_child() -> None:
    story = Story(Limits(max_budget_nusd=5))
    story.reply(ToolCall("x", "research", "{}"), cost_nusd=5)
    assert no_child(story.state, RESEARCH) == "not run: the budget has nothing left for a child"


def test_a_tree_is_no_deeper_than_it_may_be() -> None:
    """Known before anything is started: the limit is that of the whole tree."""
    for depth, words in (
        (1, None),
        (0, "not run: the tree's depth below its root is limited to 0"),
    ):
        story = Story(Limits(max_depth=depth))
        story.reply(ToolCall("x", "research", "{}"))
        assert no_child(story.state, RESEARCH) == words


async def test_a_child_that_goes_on_keeps_what_was_reserved(tmp_path: Path) -> None:
    """It is started once on record, however often its parent's process changes."""
    record, runs = fan_out(tmp_path, 1, Limits(max_budget_nusd=1000))
    started = Started(
        ref="1.0", name="research", nature=Nature.CHILD, key="", attempt=1, digest=b"",
        agent="researcher", reserve_nusd=400,
    )  # fmt: skip
    record.write(started, UserMessage(text="x", who="y"))
    played = Played(tmp_path, lambda ref: COMPLETED)
    await perform(record, [msgspec.structs.replace(runs[0], attempt=2)], played)
    (frame,) = played.frames
    assert isinstance(frame, StartChild)
    assert frame.limit_nusd == 400
    assert record.state.head.children == 1
