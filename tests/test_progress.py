"""The live view: trace lines as people see them, on terminals and elsewhere."""

import contextlib
import io
import json
import os
import pty
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.events import Head
from actors.outcome import Outcome, Status
from actors.state import State
from supervisor.progress import Progress

CLEAR = "\x1b[K"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True

    def take(self) -> str:
        """What was written since the last time."""
        words = self.getvalue()
        self.seek(0)
        self.truncate()
        return words


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


def test_a_fitting_says_what_was_taken_out() -> None:
    """Sizes before and after, and only what happened."""
    stream = io.StringIO()
    progress = Progress(stream)
    fitted: dict[str, Any] = {"before": 28228, "after": 6949, "why": "budget"}
    show(progress, "context_fitted", cleared=1, folded=0, **fitted)
    show(progress, "context_fitted", cleared=8, folded=11, **fitted)
    assert stream.getvalue().splitlines() == [
        "context 28,228 to 6,949 tokens, 1 result cleared",
        "context 28,228 to 6,949 tokens, 8 results cleared, 11 rounds folded",
    ]


def test_what_a_person_said_is_shown() -> None:
    """With who said it; of a child with its name."""
    stream = io.StringIO()
    progress = Progress(stream)
    show(progress, "told", who="ann", text="look at the \x1b[2Jlogs")
    show(progress, "told", "r1.1.0", who="ann", text="hurry")
    assert stream.getvalue().splitlines() == [
        "ann says: look at the \\x1b[2Jlogs",
        ".1.0  ann says: hurry",
    ]


def test_a_wait_for_the_provider_says_how_long_and_why() -> None:
    """A retry is no silence."""
    stream = io.StringIO()
    show(Progress(stream), "turn_failed", turn=2, kind="rate", error="rate limited", retry_in_s=1.0)
    assert stream.getvalue() == "turn 2  waits 1.0 s: rate limited\n"


def start(progress: Progress, number: int, question: str = "which file?") -> None:
    """A child starts, as its parent tells it."""
    ref, args = f"1.{number}", {"question": question}
    show(progress, "tool_start", tool_name="research", call=ref, args=args)
    show(progress, "child_started", child_id=f"r1.{ref}", call=ref, agent="researcher")


def end(
    progress: Progress, number: int, status: str = "completed", reason: str = "completed"
) -> None:
    """A child ends: first in its own words, then in its parent's."""
    child = f"r1.1.{number}"
    show(
        progress, "run_stopped", child, status=status, reason=reason, turns=3, cost_usd=0.002,
        possibly_spent_usd=0.0,
    )  # fmt: skip
    result(progress, f"1.{number}", tool_name="research", ok=status == "completed", error=reason)
    show(progress, "child_stopped", child_id=child, call=f"1.{number}", status=status)


def test_each_event_of_a_child_is_a_line_with_its_short_name() -> None:
    """Where nothing can be overwritten; the end of each says what the tree has come to."""
    stream = io.StringIO()
    progress = Progress(stream)
    start(progress, 0)
    start(progress, 1, "and who?")
    show(progress, "turn", "r1.1.0", **TURN)
    show(progress, "tool_start", "r1.1.0", tool_name="read_file", call="1.0", args={"path": "a"})
    show(progress, "tool_result", "r1.1.0", tool_name="read_file", call="1.0", ms=0.2, ok=True)
    end(progress, 0)
    end(progress, 1, "failed", "no such model")
    assert stream.getvalue().splitlines() == [
        ".1.0 started: researcher which file?",
        ".1.1 started: researcher and who?",
        ".1.0  turn 2  1,246 in  11 out  $0.001130",
        '.1.0    read_file {"path":"a"}  ok 0.2 ms',
        ".1.0  completed  3 turns  $0.002000  which file?  [1 of 2 ended  3 turns  $0.002000]",
        ".1.1  failed  3 turns  $0.002000  no such model  [2 of 2 ended  6 turns  $0.004000]",
    ]


def test_the_end_of_a_child_that_has_no_record_is_told_by_its_parent() -> None:
    """It crashed too often to open its journal: nobody else knows."""
    stream = io.StringIO()
    progress = Progress(stream)
    start(progress, 0)
    result(progress, "1.0", tool_name="research", ok=False, error="failed: it was killed")
    show(progress, "child_stopped", child_id="r1.1.0", call="1.0", status="failed")
    assert ".1.0  failed  0 turns  it was killed  [1 of 1 ended" in stream.getvalue()


def test_a_child_that_the_tree_had_no_room_for_is_no_failure() -> None:
    """It never was, so it made no turns either."""
    stream = io.StringIO()
    progress = Progress(stream)
    start(progress, 0)
    result(progress, "1.0", tool_name="research", ok=False, error="not run: the tree is full")
    show(progress, "child_stopped", child_id="r1.1.0", call="1.0", status="not run")
    assert "\n.1.0  not run  the tree is full  [1 of 1 ended" in stream.getvalue()
    assert "failed" not in stream.getvalue()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """One without colours, so that what is written can be read here."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    return Terminal()


def test_what_runs_stands_in_a_block_that_is_overwritten(terminal: Terminal) -> None:
    """What a tool reports stands on one line, which its result takes the place of."""
    clock = Clock()
    progress = Progress(terminal, clock)
    for act in (
        lambda: call(progress),
        lambda: show(progress, "tool_progress", tool_name="read_file", call="1.0", label="half"),
        lambda: result(progress),
    ):
        clock.now += 1.0
        act()
    progress.close()
    assert terminal.getvalue() == (
        f"  read_file {{}}{CLEAR}"
        f"\r  read_file half{CLEAR}\x1b[J"
        f"\r  read_file {{}}  ok 0.2 ms{CLEAR}\n  asks the model{CLEAR}\x1b[J"
        "\r\x1b[J"
    )


def test_the_block_has_a_line_for_each_child_under_way_and_the_totals(terminal: Terminal) -> None:
    """Endings stay above it; what children do in between is seen and leaves no trace."""
    clock = Clock()
    progress = Progress(terminal, clock)
    for number in range(3):
        start(progress, number, f"question {number}")
    clock.now += 5.0
    show(progress, "turn", "r1.1.1", **TURN)
    show(progress, "tool_start", "r1.1.1", tool_name="read_file", call="2.0", args={"path": "a"})
    show(progress, "turn_failed", "r1.1.2", turn=1, error="rate limited", retry_in_s=2.0)
    terminal.take()
    end(progress, 0)
    progress.draw()
    assert terminal.take().replace(CLEAR, "").split("\n") == [
        "\r\x1b[3A  .1.0  completed  3 turns  $0.002000  question 0",
        '  .1.1   2 turns  $0.001130   5s  read_file {"path":"a"}  question 1',
        "  .1.2   0 turns  $0.000000   5s  waits 2.0 s: rate limited  question 2",
        "  3 children: 2 under way, 1 completed  5 turns  $0.003130  5s\x1b[J",
    ]


def test_the_block_has_the_order_of_the_tree(terminal: Terminal) -> None:
    """A child stands behind its parent, however late it was heard of."""
    progress = Progress(terminal, Clock())
    names = ("r1.1.10", "r1.1.2", "r1.1.0", "r1.1.2.1.1", "r1.1.2.1.0")
    for name in names:
        show(progress, "turn", name, **TURN)
    terminal.take()
    progress.draw()
    shown = [line.split()[0] for line in terminal.take().split("\n")[:5]]
    assert [name.split("[")[-1] for name in shown][1:] == [".1.2", ".1.2.1.0", ".1.2.1.1", ".1.10"]


def test_a_tree_of_many_children_fits_on_the_screen(terminal: Terminal) -> None:
    """So many lines and no more; who has none is counted, and so are endings that are alike."""
    clock = Clock()
    progress = Progress(terminal, clock)
    for number in range(64):
        start(progress, number)
    clock.now += 1.0
    progress.draw()
    assert terminal.take().count("under way") == 2
    progress.draw()
    lines = terminal.take().split("\n")
    assert len(lines) == 13
    assert "and 53 more under way" in lines[-2]
    for number in range(64):
        end(progress, number, "interrupted", "cancelled: ctrl-c")
    progress.close()
    shown = terminal.take().replace(CLEAR, "").splitlines()
    assert sum("interrupted  3 turns" in line for line in shown) == 3
    assert "  61 more interrupted  cancelled: ctrl-c" in shown


def test_lines_are_drawn_together_so_that_a_burst_costs_little(terminal: Terminal) -> None:
    """Between two drawings nothing is written, however much happens."""
    clock = Clock()
    progress = Progress(terminal, clock)
    start(progress, 0)
    clock.now += 1.0
    show(progress, "turn", "r1.1.0", **TURN)
    terminal.take()
    for _ in range(1000):
        show(progress, "turn", "r1.1.0", **TURN)
    assert terminal.take() == ""
    clock.now += 0.125
    show(progress, "turn", "r1.1.0", **TURN)
    assert terminal.take() != ""


def test_a_resumed_tree_counts_what_it_had_before(terminal: Terminal) -> None:
    """The totals are those of the tree, not of this process."""
    progress = Progress(terminal, Clock())
    for run_id, status in (("r1", None), ("r1.1.0", Status.COMPLETED), ("r1.1.1", None)):
        head = Head(turns=2, cost_nusd=1_000_000)
        outcome = Outcome(status) if status else None
        progress.know(State(run_id=run_id, epoch=1, head=head, outcome=outcome))
    show(progress, "run_resumed", "r1.1.1", epoch=2)
    terminal.take()
    progress.draw()
    assert "2 children: 1 under way, 1 completed  6 turns  $0.003000" in terminal.take()


def test_the_same_words_for_many_calls_are_told_a_few_times(terminal: Terminal) -> None:
    """A fan-out that was cut short does not fill the screen."""
    progress = Progress(terminal, Clock())
    for number in range(20):
        words = "not run: the first 3 calls failed alike"
        result(progress, f"1.{number}", tool_name="research", ok=False, ms=0.0, error=words)
    progress.close()
    shown = terminal.take()
    assert shown.count("error 0.0 ms  not run") == 3
    assert "17 more research error  not run: the first 3 calls failed alike" in shown


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
    hostile(io.StringIO(), text)


@given(text=st.text(alphabet=st.characters(), max_size=60))
def test_nothing_that_a_model_or_tool_says_gets_out_of_the_block(text: str) -> None:
    """On a terminal there are our own movements of the cursor, and nothing else."""
    hostile(Terminal(), text)


def hostile(stream: io.StringIO, text: str) -> None:
    """Show this text wherever a model, a tool or a configuration has a say."""
    progress = Progress(stream, Clock())
    progress.header("r1", text, text)
    show(progress, "tool_start", tool_name=text, call="1.0", args={text: text})
    show(progress, "tool_progress", tool_name=text, call="1.0", label=text)
    show(progress, "tool_result", tool_name=text, call="1.0", ms=1, ok=False, error=text)
    show(progress, "approval_required", tool_name=text, call="1.0", args={})
    show(progress, "turn_failed", turn=1, error=text, retry_in_s=0)
    for child in ("r1.1.0", text):
        show(progress, "child_started", child_id=child, call="1.0", agent=text)
        show(progress, "tool_start", child, tool_name=text, call="1.0", args={"question": text})
        show(progress, "tool_progress", child, tool_name=text, call="1.0", label=text)
        show(progress, "turn_failed", child, turn=1, error=text, retry_in_s=1)
        show(progress, "child_started", child, child_id=f"{child}.1.0", call="1.0", agent=text)
        progress.draw()
        result(progress, ok=False, error=text)
        show(progress, "child_stopped", child_id=child, call="1.0", status=text)
        show(progress, "run_stopped", child, status=text, reason=text, turns=1, cost_usd=0)
    progress.note(text)
    progress.close()
    shown = re.sub(r"\r|\x1b\[(\d*A|[JK]|\d+m)", "", stream.getvalue().replace("\n", ""))
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


def test_a_terminal_that_has_stopped_does_not_stop_the_run() -> None:
    """With the room it has left too small for a drawing, the rest is written when it goes on."""
    master, slave = pty.openpty()
    with open(slave, "w") as stream:
        os.set_blocking(slave, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(slave, b"x")
        os.set_blocking(slave, True)
        os.read(master, 300)
        progress = Progress(stream, Clock())
        for number in range(64):
            start(progress, number)
            progress.draw()
        os.set_blocking(master, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.read(master, 65536)
        progress.draw()
        assert b"64 children: 64 under way" in os.read(master, 65536)
        progress.close()
    os.close(master)
