"""The live view of a run on standard error: its trace lines as they come, in words.

It runs in the supervisor, so it never waits: a line that the terminal or pipe has no room for now
is left out, as a reader that has stopped reading must not stop the run.
"""

import os
import select
import time
from collections.abc import Callable
from typing import Any, TextIO

import msgspec

from supervisor import output
from supervisor.terminal import Style, one_line, visible
from supervisor.words import colour, duration, money, short

PROGRESS_SECONDS_MIN = 1.0
"""Between two lines of a tool's progress where they cannot overwrite each other."""
_WIDTH = 100
_WIDTH_MIN = 40
_CLEAR = "\r\x1b[K"

Line = dict[str, Any]


class Progress:
    """Shows the trace lines of a root run and its children on one stream."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        """On a terminal a tool's progress overwrites itself; ``clock`` is in seconds."""
        self.style = Style(stream)
        self._stream = stream
        self._clock = clock
        self._overwrites = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._over = False
        """The cursor stands on a line that is to be overwritten."""
        self._last_progress = -PROGRESS_SECONDS_MIN
        self._arguments: dict[tuple[str, str], Any] = {}
        """Those of the calls that run now."""

    def header(self, run_id: str, agent: str, model: str) -> None:
        """Say which run this is."""
        style = self.style
        self._print(
            f"{style.bold('run')} {run_id}  {style.dim(visible(f'agent {agent}  {model}'))}"
        )

    def note(self, words: str) -> None:
        """Say something else."""
        self._print(visible(words))

    def take(self, run_id: str, line: bytes) -> None:
        """Show one trace line; what cannot be understood is left out."""
        try:
            found = msgspec.json.decode(line, type=dict[str, Any])
            self._take(run_id, found)
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
            pass  # The trace on disk has it.

    def close(self) -> None:
        """Take away a line that was to be overwritten; nothing runs any more, so this may wait."""
        if self._over:
            output.write_note(self._stream, _CLEAR, end="")
            self._over = False

    def _take(self, run_id: str, line: Line) -> None:
        match line["type"]:
            case "turn":
                self._print(self._indent(run_id) + self._turn(line))
            case "turn_failed":
                self._print(self._indent(run_id) + self._turn_failed(line))
            case "tool_start":
                self._arguments[run_id, line["call"]] = line["args"]
                self._show_running(run_id, line, "")
            case "tool_progress":
                self._show_progress(run_id, line)
            case "tool_result":
                right = self._result(line)
                self._print(self._tool(run_id, line, len(right[0])) + "  " + right[1])
                self._arguments.pop((run_id, line["call"]), None)
            case "approval_required":
                words = one_line(f"{line['tool_name']} waits for approval", self._width())
                self._print(f"{self._indent(run_id)}  {self.style.bold(words)}")
            case "run_resumed":
                self._print(
                    self._indent(run_id) + self.style.dim(f"resumed, epoch {line['epoch']}")
                )
            case "child_started":
                words = visible(f"{line['child_id']} started: {line['agent']}")
                self._print(f"{self._indent(run_id)}  {words}")
            case "child_stopped":
                status = colour(self.style, visible(line["status"]))
                self._print(f"{self._indent(run_id)}  {visible(line['child_id'])} {status}")
            case "run_stopped":
                for key in [key for key in self._arguments if key[0] == run_id]:
                    del self._arguments[key]
            case _:
                pass  # A type of a later version: the trace on disk has it.

    def _turn(self, line: Line) -> str:
        style = self.style
        amounts = f"{line['input_tokens']:,} in  {line['output_tokens']:,} out"
        if line["total_cost_usd"]:
            amounts += f"  {money(line['total_cost_usd'])}"
        cut = f"  {style.red('cut at the output limit')}" if line["finish"] == "length" else ""
        return f"{style.bold('turn')} {line['turn']}  {style.dim(amounts)}{cut}"

    def _turn_failed(self, line: Line) -> str:
        wait = line["retry_in_s"]
        head = f"turn {line['turn']}  " + (f"waits {wait:.1f} s: " if wait else "")
        return self.style.red(head + one_line(line["error"], self._width() - len(head)))

    def _result(self, line: Line) -> tuple[str, str]:
        """How a call ended, plain and in colour."""
        style, took = self.style, duration(line["ms"])
        if line["ok"]:
            word = line.get("outcome", "ok")
            return f"{word} {took}", f"{style.green(visible(word))} {style.dim(took)}"
        word = visible(line.get("outcome", "error"))
        what = one_line(line.get("error", ""), self._width() // 2)
        return f"{word} {took}  {what}", f"{style.red(word)} {style.dim(took)}  {what}"

    def _tool(self, run_id: str, line: Line, taken: int) -> str:
        """A call's name and arguments, so short that ``taken`` columns are left beside them."""
        indent = self._indent(run_id) + "  "
        name = one_line(line["tool_name"], _WIDTH_MIN)
        key = (run_id, line["call"])
        if key not in self._arguments:
            return f"{indent}{name}"  # It was answered without being run.
        room = self._width() - len(indent) - len(name) - taken - 3
        return f"{indent}{name} {short(self._arguments[key], max(room, 10))}"

    def _show_progress(self, run_id: str, line: Line) -> None:
        now = self._clock()
        if not self._overwrites and now - self._last_progress < PROGRESS_SECONDS_MIN:
            return
        self._last_progress = now
        self._show_running(run_id, line, line["label"])

    def _show_running(self, run_id: str, line: Line, label: str) -> None:
        head = f"{self._indent(run_id)}  {one_line(line['tool_name'], _WIDTH_MIN)}  "
        words = head + one_line(label or "...", max(self._width() - len(head) - 1, 10))
        if self._overwrites:
            self._write(_CLEAR + self.style.dim(words))
            self._over = True
        elif label:
            self._print(words)

    def _indent(self, run_id: str) -> str:
        return f"{run_id}  " if "." in run_id else ""

    def _width(self) -> int:
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns
        except (OSError, ValueError):
            columns = 0
        # Terminals that do not know their width say 0.
        return max(_WIDTH_MIN, columns) if columns else _WIDTH

    def _print(self, words: str) -> None:
        self._write(f"{_CLEAR if self._over else ''}{words}\n")
        self._over = False

    def _write(self, words: str) -> None:
        if self._has_room():
            output.write_note(self._stream, words, end="")

    def _has_room(self) -> bool:
        try:
            poll = select.poll()
            poll.register(self._stream.fileno(), select.POLLOUT)
            return bool(poll.poll(0))
        except (OSError, ValueError):
            return True  # It is no file but a buffer in memory.
