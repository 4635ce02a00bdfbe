"""The trace: lines as the contract has them, each once, whatever was lost of the file."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from story import Story, call

from actors import trace
from actors.events import Opened, UserMessage
from actors.journal import DiskFailed
from actors.messages import Nature, ResultKind
from actors.money import Prices, Usage
from actors.outcome import Cancelled, Outcome, Status
from actors.record import Record
from actors.spec import Limits
from actors.trace import TEXT_MAX, TRACE

FRAME = {"run_id", "root_id", "seq", "at", "type"}
KEYS = {
    "turn": {
        *("turn", "input_tokens", "output_tokens", "cached_input_tokens"),
        *("cost_usd", "total_cost_usd", "finish"),
    },
    "turn_failed": {"turn", "kind", "error", "retry_in_s"},
    "tool_start": {"tool_name", "call", "args"},
    "tool_progress": {"tool_name", "call", "label"},
    "tool_result": {"tool_name", "call", "ms", "ok"},
    "approval_required": {"tool_name", "call", "args"},
    "run_resumed": {"epoch"},
    "told": {"who", "text"},
    "run_stopped": {"status", "reason", "turns", "cost_usd"},
}
MAY = {
    "turn": {"estimated"},
    "tool_start": {"attempt"},
    "tool_result": {"outcome", "error", "notes"},
    "run_resumed": {"dropped_bytes"},
    "run_stopped": {"possibly_spent_usd", "who"},
}


@pytest.fixture
def story() -> Story:
    """A run in which every kind of line is written."""
    story = Story(Limits(), Prices(2_000_000, 200_000, 12_000_000))
    story.ask()
    story.fail(retry_at=story.now + 2.0)
    story.ask()
    story.reply(call("look", '{"at": 1}'), call("delete"), call("look", "{"), cost_nusd=320_000)
    story.run("1.0", Nature.READ_ONLY)
    story.finish("1.2", "error: half", ResultKind.ERROR)
    story.ask_person("1.1", b"d")
    story.end(Outcome(Status.INTERRUPTED, Cancelled("waits", "boss")))
    story.open("verdict")
    story.verdict("1.1", "reject", b"d")
    story.open("verdict")
    story.tell(UserMessage(text="keep\nit" + "x" * 1000, who="p"))
    story.open("resume")
    story.finish("1.1", "rejected: no", ResultKind.REJECTED)
    story.ask()
    story.reply(text="done", usage=Usage(200, 5, 128), cost_nusd=430_000)
    story.end(Outcome(Status.COMPLETED, output="done"))
    return story


async def record_of(
    run_dir: Path, story: Story, follow: Callable[[bytes], None] | None = None
) -> Record:
    """Record a whole story, one process after the other, with a progress line in a call."""
    record = Record(run_dir, follow=follow)
    for event in story.events:
        if isinstance(event, Opened):
            record.journal.begin(event)
        await record.add(event)
        if type(event).__name__ == "Started":
            record.progress(record.state.call("1.0"), "half of it")
    return record


def lines(run_dir: Path) -> list[dict[str, Any]]:
    data = (run_dir / TRACE).read_bytes()
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


async def test_lines_are_as_the_contract_has_them(tmp_path: Path, story: Story) -> None:
    """Every line has its frame, its type's keys, and no others."""
    (await record_of(tmp_path, story)).close()
    told = lines(tmp_path)
    assert [line["type"] for line in told] == [
        *("turn_failed", "turn", "tool_start", "tool_progress", "tool_result", "tool_result"),
        *("approval_required", "run_stopped", "told", "run_resumed"),
        *("tool_result", "turn", "run_stopped"),
    ]
    for line in told:
        assert (line["run_id"], line["root_id"]) == ("r1", "r1")
        keys = set(line) - FRAME - {"frame"} - MAY.get(line["type"], set())
        assert keys == KEYS[line["type"]], line
    assert [line["seq"] for line in told] == list(range(1, len(told) + 1))
    assert [line["at"] for line in told] == sorted(line["at"] for line in told)


async def test_lines_say_what_happened(tmp_path: Path, story: Story) -> None:
    """The figures are those of the run."""
    (await record_of(tmp_path, story)).close()
    told = lines(tmp_path)
    by_type = {line["type"]: line for line in told}
    assert by_type["turn"]["cost_usd"] == 0.00043
    assert by_type["turn"]["total_cost_usd"] == 0.00075
    assert by_type["turn"]["cached_input_tokens"] == 128
    assert by_type["tool_start"]["args"] == {"at": 1}
    assert by_type["approval_required"]["call"] == "1.1"
    assert by_type["run_resumed"]["epoch"] == 4
    assert by_type["run_stopped"]["turns"] == 2
    assert [line.get("who") for line in told if line["type"] == "run_stopped"] == ["boss", None]
    assert by_type["told"]["who"] == "p"
    assert by_type["told"]["text"].startswith("keep it")
    assert len(by_type["told"]["text"]) == TEXT_MAX
    results = [line for line in told if line["type"] == "tool_result"]
    assert [(line["ok"], line.get("outcome"), line.get("error")) for line in results] == [
        (True, None, None),
        (False, None, "error: half"),
        (False, "rejected", "rejected: no"),
    ]


async def test_whoever_follows_gets_the_lines_that_are_written(
    tmp_path: Path, story: Story
) -> None:
    """The same bytes, in the same order, each once."""
    followed: list[bytes] = []
    (await record_of(tmp_path, story, followed.append)).close()
    assert b"\n".join(followed) + b"\n" == (tmp_path / TRACE).read_bytes()


async def test_a_lost_trace_is_written_again(tmp_path: Path, story: Story) -> None:
    """At the next open, from the journal; only progress is gone for good."""
    (await record_of(tmp_path, story)).close()
    before = lines(tmp_path)
    (tmp_path / TRACE).unlink()
    Record(tmp_path).close()
    again = lines(tmp_path)
    expected = [line for line in before if line["type"] != "tool_progress"]
    for one in expected + again:
        del one["seq"]
    assert again == expected


async def test_a_torn_line_is_cut_and_written_again(tmp_path: Path, story: Story) -> None:
    """Wherever the last line was torn, the file ends up as it was."""
    (await record_of(tmp_path, story)).close()
    whole = (tmp_path / TRACE).read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for cut in range(last, len(whole), 9):
        (tmp_path / TRACE).write_bytes(whole[:cut])
        Record(tmp_path).close()
        assert (tmp_path / TRACE).read_bytes() == whole


async def test_a_kill_between_two_lines_of_one_event_loses_neither(tmp_path: Path) -> None:
    """A child's call starts with two lines and ends with two; each is there once in the end."""
    story = Story(Limits())
    story.ask()
    story.reply(call("research"))
    story.run("1.0", Nature.CHILD)
    (await record_of(tmp_path, story)).close()
    whole = (tmp_path / TRACE).read_bytes()
    kinds = [line["type"] for line in lines(tmp_path)]
    assert kinds[1:3] == ["tool_start", "child_started"]
    assert kinds[-2:] == ["tool_result", "child_stopped"]
    (tmp_path / TRACE).write_bytes(whole[: whole.rindex(b"\n", 0, -1) + 1])
    Record(tmp_path).close()
    assert (tmp_path / TRACE).read_bytes() == whole
    parts = whole.splitlines(keepends=True)
    (tmp_path / TRACE).write_bytes(b"".join(parts[:2]))
    Record(tmp_path).close()
    assert [line["type"] for line in lines(tmp_path)] == [
        kind for kind in kinds if kind != "tool_progress"
    ]


async def test_opening_again_adds_nothing(tmp_path: Path, story: Story) -> None:
    (await record_of(tmp_path, story)).close()
    whole = (tmp_path / TRACE).read_bytes()
    for _ in range(2):
        Record(tmp_path).close()
    assert (tmp_path / TRACE).read_bytes() == whole


async def test_what_the_journal_lost_never_happened(tmp_path: Path, story: Story) -> None:
    """A trace that outran its journal over a power cut is written anew."""
    (await record_of(tmp_path, story)).close()
    before = lines(tmp_path)
    (tmp_path / "journal.x1").write_bytes(b"")
    Record(tmp_path).close()
    assert (tmp_path / TRACE).read_bytes() == b""
    record = await record_of(tmp_path, story)
    record.close()
    assert [line["type"] for line in lines(tmp_path)] == [line["type"] for line in before]


@pytest.mark.parametrize("kind", ["progress", "long"])
async def test_a_long_tail_hides_no_event(tmp_path: Path, story: Story, kind: str) -> None:
    """A megabyte of progress, or of one torn line, is read past."""
    record = await record_of(tmp_path, story)
    whole = (tmp_path / TRACE).read_bytes()
    if kind == "progress":
        one = record.state.call("1.0")
        for _ in range(2500):
            record.progress(one, "x" * TEXT_MAX)
        whole = (tmp_path / TRACE).read_bytes()
        record.close()
    else:
        record.close()
        with (tmp_path / TRACE).open("ab") as file:
            file.write(b'{"args": "' + b"x" * 3_000_000)
    Record(tmp_path).close()
    assert (tmp_path / TRACE).read_bytes() == whole


async def test_progress_has_a_limit_in_the_file_and_none_for_who_follows(
    tmp_path: Path, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line that is kept says so; what happens afterwards is told as ever."""
    monkeypatch.setattr(trace, "PROGRESS_MAX", 5)
    heard: list[bytes] = []
    record = await record_of(tmp_path, story, heard.append)
    one = record.state.call("1.0")
    for number in range(1, 20):
        record.progress(one, f"step {number}")
    story.open("resume")
    resumed = story.events[-1]
    assert isinstance(resumed, Opened)
    record.journal.begin(resumed)
    await record.add(resumed)
    record.close()
    labels = [line["label"] for line in lines(tmp_path) if line["type"] == "tool_progress"]
    assert labels[1:4] == ["step 1", "step 2", "step 3"]
    assert labels[4:] == ["step 4 [the last of 5 progress lines that are kept of a process]"]
    assert sum(b"tool_progress" in line for line in heard) == 20
    assert lines(tmp_path)[-1]["type"] == "run_resumed"
    again = Record(tmp_path)
    again.progress(one, "step 20")
    again.close()
    assert lines(tmp_path)[-1]["label"] == "step 20"


async def test_text_makes_no_second_line(tmp_path: Path) -> None:
    """Newlines and terminal codes of a model or a tool stand escaped in one line."""
    story = Story()
    evil = "a\nb\r\x1b[2J\u2028\u0085\x00"
    story.reply(call("look", json.dumps({"at": evil})), call(f"na{evil}me", evil))
    story.run("1.0", Nature.READ_ONLY, content=evil, outcome=ResultKind.ERROR)
    (await record_of(tmp_path, story)).close()
    raw = (tmp_path / TRACE).read_bytes()
    assert raw.count(b"\n") == len(lines(tmp_path)) == 4
    assert b"\x1b" not in raw
    assert lines(tmp_path)[1]["args"] == {"at": evil}


@pytest.mark.parametrize(
    ("arguments", "args"),
    [
        ("", {}),
        ('{"n": 1' + "0" * 400 + "}", {"n": int("1" + "0" * 400)}),
        ('{"n": 1e999}', '{"n": 1e999}'),
        ("{", "{"),
        ("[" * 5000, "[" * 199 + "…"),
        ("null", None),
    ],
    ids=["empty", "huge", "infinite", "half", "deep", "null"],
)
async def test_arguments_of_any_kind_are_shown(tmp_path: Path, arguments: str, args: Any) -> None:
    """As data where they are, else as an excerpt; a line never fails because of them."""
    story = Story()
    story.reply(call("look", arguments))
    story.start("1.0", Nature.READ_ONLY)
    record = Record(tmp_path)
    for event in story.events:
        if isinstance(event, Opened):
            record.journal.begin(event)
        await record.add(event)
    record.close()
    assert lines(tmp_path)[-1]["args"] == args


async def test_a_full_disk_stops_no_run_at_its_trace(tmp_path: Path, story: Story) -> None:
    """The trace is a view: the journal decides whether anything can be saved."""
    record = await record_of(tmp_path, story)
    os.close(record._trace._fd)
    record._trace._fd = os.open("/dev/full", os.O_WRONLY)
    record.progress(record.state.call("1.0"), "lost")
    record.close()


async def test_a_trace_behind_a_link_is_refused(tmp_path: Path) -> None:
    """Nothing is written through it or cut behind it, and the run's lock is free again."""
    (tmp_path / "elsewhere").write_bytes(b"no line")
    (tmp_path / TRACE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DiskFailed, match="symbolic link"):
        Record(tmp_path)
    assert (tmp_path / "elsewhere").read_bytes() == b"no line"
    (tmp_path / TRACE).unlink()
    Record(tmp_path).close()
