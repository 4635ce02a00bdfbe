"""The live view: trace lines as people see them, on terminals and elsewhere."""

import contextlib
import io
import json
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.progress import Progress


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def show(progress: Progress, what: str, run_id: str = "r1", **fields: Any) -> None:
    progress.take(run_id, json.dumps({"run_id": run_id, "type": what, **fields}).encode())


def call(progress: Progress, name: str = "read_file", ref: str = "1.0", **args: Any) -> None:
    show(progress, "tool_start", tool_name=name, call=ref, args=args)


def result(progress: Progress, ref: str = "1.0", **fields: Any) -> None:
    line: dict[str, Any] = {"tool_name": "read_file", "call": ref, "ms": 0.2, "ok": True} | fields
    show(progress, "tool_result", **line)


TURN: dict[str, Any] = {
    "turn": 2,
    "input_tokens": 1246,
    "output_tokens": 11,
    "cost_usd": 0.0006,
    "total_cost_usd": 0.00113,
    "finish": "tool_calls",
}


def test_a_run_is_told_line_by_line() -> None:
    """Header, turn with its tokens and the cost so far, and each tool with how it went."""
    stream = io.StringIO()
    progress = Progress(stream)
    progress.header("r1", "lead", "scripted:plan")
    show(progress, "turn", **TURN)
    call(progress, path="errors.log")
    result(progress)
    call(progress, ref="1.1", path="x")
    result(progress, ref="1.1", ok=False, ms=1500.0, error="error: there is no x")
    assert stream.getvalue().splitlines() == [
        "run r1  agent lead  scripted:plan",
        "turn 2  1,246 in  11 out  $0.001130",
        '  read_file {"path":"errors.log"}  ok 0.2 ms',
        '  read_file {"path":"x"}  error 1.5 s  error: there is no x',
    ]


def test_a_wait_for_the_provider_says_how_long_and_why() -> None:
    """A retry is no silence."""
    stream = io.StringIO()
    show(Progress(stream), "turn_failed", turn=2, kind="rate", error="rate limited", retry_in_s=1.0)
    assert stream.getvalue() == "turn 2  waits 1.0 s: rate limited\n"


def test_children_are_told_apart() -> None:
    """A line of a child begins with the child's name."""
    stream = io.StringIO()
    progress = Progress(stream)
    show(progress, "child_started", child_id="r1.2.0", agent="researcher")
    show(progress, "turn", run_id="r1.2.0", **TURN)
    show(progress, "child_stopped", child_id="r1.2.0", status="completed")
    assert stream.getvalue().splitlines() == [
        "  r1.2.0 started: researcher",
        "r1.2.0  turn 2  1,246 in  11 out  $0.001130",
        "  r1.2.0 completed",
    ]


def test_progress_overwrites_itself_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a tool reports stands on one line, which its result takes the place of."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    progress = Progress(stream)
    call(progress)
    show(progress, "tool_progress", tool_name="read_file", call="1.0", label="half")
    result(progress)
    progress.close()
    clear = "\r\x1b[K"
    assert stream.getvalue() == (
        f"{clear}  read_file  ...{clear}  read_file  half{clear}  read_file {{}}  ok 0.2 ms\n"
    )


def test_progress_comes_once_a_second_elsewhere() -> None:
    """A log is not flooded by a tool that reports often."""
    stream, clock = io.StringIO(), Clock()
    progress = Progress(stream, clock)
    call(progress)
    for number in range(25):
        show(progress, "tool_progress", tool_name="t", call="1.0", label=f"step {number}")
        clock.now += 0.125
    assert stream.getvalue().split() == "t step 0 t step 8 t step 16 t step 24".split()  # noqa: SIM905


def test_a_terminal_without_abilities_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """TERM=dumb neither overwrites nor colours."""
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    progress = Progress(stream)
    show(progress, "turn", **TURN)
    call(progress)
    result(progress)
    assert "\x1b" not in stream.getvalue()


def test_lines_that_are_no_trace_lines_are_left_out() -> None:
    """Garbage, missing keys and types of a later version do not end the view."""
    stream = io.StringIO()
    progress = Progress(stream)
    for line in (b"", b"{", b"[]", b'{"type":"turn"}', b'{"type":"later"}', b'{"type":1}'):
        progress.take("r1", line)
    show(progress, "turn", **(TURN | {"input_tokens": "many"}))
    assert stream.getvalue() == ""


@given(text=st.text(alphabet=st.characters(), max_size=60))
def test_nothing_that_a_model_or_tool_says_reaches_the_terminal_unescaped(text: str) -> None:
    """Names, arguments, labels, errors: only our own line ends are left of what is no letter."""
    stream = io.StringIO()
    progress = Progress(stream, Clock())
    progress.header("r1", text, text)
    show(progress, "tool_start", tool_name=text, call="1.0", args={text: text})
    show(progress, "tool_progress", tool_name=text, call="1.0", label=text)
    show(progress, "tool_result", tool_name=text, call="1.0", ms=1, ok=False, error=text)
    show(progress, "approval_required", tool_name=text, call="1.0", args={})
    show(progress, "turn_failed", turn=1, error=text, retry_in_s=0)
    show(progress, "child_started", child_id=text, agent=text)
    show(progress, "child_stopped", child_id=text, status=text)
    progress.note(text)
    shown = stream.getvalue().replace("\n", "")
    assert all(char.isprintable() or char == "\u3000" or char.isspace() for char in shown)
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in shown)


def test_a_reader_that_has_stopped_does_not_stop_the_run() -> None:
    """With the pipe full a line is left out, and the writer goes on."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 65536)
    os.set_blocking(writing, True)
    with open(reading, "rb"), open(writing, "w") as stream:
        progress = Progress(stream)
        for _ in range(100):
            show(progress, "turn", **TURN)


def test_a_reader_that_is_gone_does_not_end_the_run() -> None:
    """A closed pipe is met once; what comes after it goes nowhere."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as stream:
        progress = Progress(stream)
        for _ in range(3):
            show(progress, "turn", **TURN)
