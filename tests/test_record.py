"""The record: journal, state and trace move forward together, or not at all."""

import errno
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from story import Story, call

from actors.events import Finished, Opened, Replied, RunStopped
from actors.fs import Fs
from actors.journal import DiskFailed, Held, read_events
from actors.messages import Nature, ResultKind
from actors.outcome import Outcome, Status
from actors.record import Record


class Full(Fs):
    """A disk that has no room from some moment on."""

    full = False

    def write(self, fd: int, data: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(fd, data)


@pytest.fixture
def story() -> Story:
    """A whole run: two calls and an answer."""
    story = Story()
    story.ask(7)
    story.reply(call("look"), call("write"))
    story.run("1.0", Nature.READ_ONLY)
    story.run("1.1")
    story.reply(text="done", cost_nusd=3)
    story.end(Outcome(Status.COMPLETED, output="done"))
    return story


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    """A record whose next event is the first ``run.opened``."""
    record = Record(tmp_path)
    yield record
    record.close()


async def tell(record: Record, story: Story, upto: int | None = None) -> None:
    """Record a story, as a process does that performs it."""
    for event in story.events[:upto]:
        if isinstance(event, Opened):
            record.journal.begin(event)
        await record.add(event)


async def test_a_record_read_back_is_the_record(tmp_path: Path, record: Record, story: Story):
    """The state from the journal is the state that was in memory."""
    await tell(record, story)
    record.close()
    again = Record(tmp_path)
    assert again.state == record.state
    assert again.journal.events == []
    again.close()


async def test_heads_stand_with_replies_results_and_endings(
    tmp_path: Path, record: Record, story: Story
):
    """Each is the state at that frame, so that a reader of the end knows the whole."""
    await tell(record, story)
    events = read_events(tmp_path)
    heads = [e.head for e in events if isinstance(e, Replied | Finished | RunStopped)]
    assert all(heads)
    assert len(heads) == 5
    assert [head.turns for head in heads if head] == [1, 1, 1, 2, 2]
    assert heads[-1] == record.state.head


async def test_time_never_runs_backwards(tmp_path: Path, record: Record, story: Story):
    """A clock that is set back makes no event earlier than the one before it."""
    await tell(record, story, 3)
    record.state.last_at += 1000.0
    record.write(story.events[3])
    stamps = [event.at for event in read_events(tmp_path)]
    assert stamps == sorted(stamps)
    assert stamps[-1] == record.state.last_at


async def test_a_record_that_is_held_is_refused(tmp_path: Path, record: Record):
    with pytest.raises(Held):
        Record(tmp_path)


async def test_an_append_that_fails_leaves_the_last_whole_event(tmp_path: Path, story: Story):
    """Nothing is acknowledged, nothing more is taken, and the trace tells no more than that."""
    fs = Full()
    record = Record(tmp_path, fs)
    await tell(record, story, 4)
    fs.full = True
    for _ in range(2):
        with pytest.raises(DiskFailed, match="disk full"):
            await record.add(story.events[4], barrier=True)
    record.close()
    assert len(read_events(tmp_path)) == 4
    lines = (tmp_path / "trace.jsonl").read_bytes().splitlines()
    assert msgspec.json.decode(lines[-1])["type"] == "tool_start"
    again = Record(tmp_path)
    assert again.state.pending[0].attempts == 1
    again.close()


async def test_events_of_one_step_are_one_write(tmp_path: Path, story: Story):
    """Answers in words are recorded together: a kill leaves all or none."""
    written: list[int] = []

    class Counting(Fs):
        def write(self, fd: int, data: bytes) -> None:
            written.append(len(data))
            super().write(fd, data)

    record = Record(tmp_path, Counting())
    await tell(record, story, 3)
    written.clear()
    await record.add(
        *(Finished(ref=ref, outcome=ResultKind.OK, content="x") for ref in ("1.0", "1.1"))
    )
    record.close()
    assert len(written) == 1
    assert record.state.pending == []
