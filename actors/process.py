"""A tool's subprocess: it dies with its whole group, its output is bounded, its wait has an end.

There are three cases in which the group is killed: the leader exits, a limit of time or output is
passed, or the task is cancelled. Each time the leader is still unreaped, so its group id cannot
belong to anybody else. PR_SET_PDEATHSIG is not used: trio starts processes from a worker thread,
the signal follows that thread, and idle threads end after ten seconds.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import trio

from actors.text import clean, excerpt
from actors.tool_errors import PermanentError, ToolError

MARKER = "EXEUNT_ACTOR"
MAX_OUTPUT_BYTES = 1024 * 1024
OVERFLOW_FACTOR = 16
"""A process that writes this many times its output limit is killed: nobody will read that."""
DRAIN_SECONDS = 0.5
"""How long a pipe is read after its group is dead, should a process that left the group hold it."""
REAP_SECONDS = 2.0
"""How long a killed leader is waited for; the kernel may keep one in an uninterruptible sleep."""

_KEPT = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR"})
_CHUNK_BYTES = 64 * 1024


class ProcessResult(msgspec.Struct, frozen=True):
    """How a process ended: negative codes are signals; bytes that are no UTF-8 became U+FFFD."""

    returncode: int
    stdout: str
    stderr: str
    overflowed: bool = False
    """It was killed because it wrote more than ``OVERFLOW_FACTOR`` times the output limit."""


def tool_environment(names: Sequence[str] = (), marker: str = "") -> dict[str, str]:
    """What a tool's process may see: a short allow-list, the variables in ``names``, the marker."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or name.startswith("LC_") or name in names
    }
    if marker:
        environment[MARKER] = marker
    return environment


async def run_process(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    timeout_s: float = 60.0,
    input: bytes | str | None = None,  # noqa: A002  # the word of subprocess.run
    cwd: Path | str | None = None,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
    pass_fds: Sequence[int] = (),
) -> ProcessResult:
    """Run a program to its end and return what it wrote; whatever it started in its group dies.

    Of each output stream the first and last part are kept, ``max_output_bytes`` together.

    Raises:
        ToolError: it cannot be started, or did not end within ``timeout_s``.
        PermanentError: the program or the folder may not be used by this user.
    """
    data = input.encode("utf-8", "replace") if isinstance(input, str) else input
    process = await _start(argv, environment, cwd, pass_fds, piped_input=data is not None)
    assert process.stdout is not None
    assert process.stderr is not None
    stdout, stderr = _Output(max_output_bytes), _Output(max_output_bytes)
    reaped = False
    try:
        with trio.move_on_after(timeout_s) as limit:
            async with trio.open_nursery() as nursery:
                if data is not None and process.stdin is not None:
                    nursery.start_soon(_feed, process.stdin, data)
                nursery.start_soon(_read, process.stdout, stdout, nursery.cancel_scope)
                nursery.start_soon(_read, process.stderr, stderr, nursery.cancel_scope)
                reaped = await _leader_exits(process)
                if not reaped:
                    _kill_group(process)
                nursery.cancel_scope.deadline = trio.current_time() + DRAIN_SECONDS
    finally:
        await _end(process, reaped)
    if limit.cancelled_caught:
        raise ToolError(
            f"{argv[0]} did not end within {timeout_s:g} s and was stopped."
            f" Its last output: {excerpt(stderr.text() or stdout.text()) or '(none)'}"
        )
    if process.returncode is None:
        raise ToolError(f"{argv[0]} was killed and has not gone within {REAP_SECONDS:g} s.")
    overflowed = stdout.overflowed or stderr.overflowed
    return ProcessResult(process.returncode, stdout.text(), stderr.text(), overflowed)


class _Output:
    """The head and the tail of a stream, in bounded memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tail_limit = limit // 4
        self._head_limit = limit - self._tail_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._seen = 0

    @property
    def overflowed(self) -> bool:
        return self._seen > self._limit * OVERFLOW_FACTOR

    def add(self, data: bytes | bytearray) -> None:
        self._seen += len(data)
        room = self._head_limit - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        del self._tail[: max(0, len(self._tail) - self._tail_limit)]

    def text(self) -> str:
        missing = self._seen - len(self._head) - len(self._tail)
        if not missing:
            return clean((self._head + self._tail).decode("utf-8", "replace"))
        head, tail = self._head.decode("utf-8", "replace"), self._tail.decode("utf-8", "replace")
        return clean(f"{head}\n[... {missing} bytes left out ...]\n{tail}")


async def _start(
    argv: Sequence[str],
    environment: Mapping[str, str],
    cwd: Path | str | None,
    pass_fds: Sequence[int],
    *,
    piped_input: bool,
) -> trio.Process:
    """Start the leader of a new group, or say in words why not."""
    if not argv:
        raise ToolError("There is no program to run: argv is empty.")
    try:
        return await trio.lowlevel.open_process(
            list(argv),
            stdin=subprocess.PIPE if piped_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            cwd=cwd,
            close_fds=True,
            pass_fds=tuple(pass_fds),
            process_group=0,
        )
    except PermissionError as error:
        bare = error.filename == argv[0] and os.sep not in argv[0]
        if bare and not shutil.which(argv[0], path=environment.get("PATH")):
            # A folder of PATH was closed to us, and it is this refusal that the search ends with.
            raise ToolError(f"There is no {clean(argv[0])} to run.") from error
        raise PermanentError(f"permission denied: {clean(str(error.filename))}") from error
    except FileNotFoundError as error:
        raise ToolError(f"There is no {clean(str(error.filename))} to run.") from error
    except (OSError, ValueError) as error:
        raise ToolError(
            f"{excerpt(argv[0])} could not be started: {excerpt(str(error))}"
        ) from error


async def _leader_exits(process: trio.Process) -> bool:
    """Wait until the leader has exited; True if that reaped it, which happens only without pidfds.

    Then its group id is free, so a process that it left behind in the group is not killed with it.
    """
    if not hasattr(os, "pidfd_open"):
        await process.wait()
        return True
    pidfd = os.pidfd_open(process.pid)
    try:
        await trio.lowlevel.wait_readable(pidfd)
    finally:
        os.close(pidfd)
    return False


async def _feed(stream: trio.abc.SendStream, data: bytes) -> None:
    """Write all input; a process that does not want it is no error."""
    async with stream:
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.send_all(data)


async def _read(stream: trio.abc.ReceiveStream, output: _Output, scope: trio.CancelScope) -> None:
    """Read to the end of the stream, or cancel everything when there is far too much."""
    while data := await stream.receive_some(_CHUNK_BYTES):
        output.add(data)
        if output.overflowed:
            scope.cancel(reason="the process writes more than anybody will read")
            return


def _kill_group(process: trio.Process) -> None:
    """SIGKILL the group; only called while nobody has reaped its leader."""
    # A zombie alone in its group is reported as missing or forbidden by some systems.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


async def _end(process: trio.Process, reaped: bool) -> None:
    """Kill what is left of the group, stop reading, and reap the leader within ``REAP_SECONDS``."""
    if not reaped:
        _kill_group(process)
    with trio.move_on_after(REAP_SECONDS, shield=True):
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                await trio.aclose_forcefully(stream)
        await process.wait()
