"""How another terminal reaches a running supervisor: a socket in the root run's directory.

One request a connection: a JSON object ``{"reason", "who"}`` and a newline; the answer is a line
too. The directory is private, so whoever can connect may stop the run.
"""

import contextlib
import os
import socket
from collections.abc import Callable, Generator
from pathlib import Path

import msgspec
import trio

SOCKET = "control.sock"
REQUEST_MAX = 16 * 1024
SECONDS_MAX = 5.0


class StopRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Stop the tree, because of ``reason``, on behalf of ``who``."""

    reason: str
    who: str = "user"


@contextlib.contextmanager
def _short_path(run_dir: Path) -> Generator[str]:
    """A path to the socket that fits the kernel's 108 bytes, however deep the directory is."""
    fd = os.open(run_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        near = Path(f"/proc/self/fd/{fd}")
        yield str((near if near.exists() else run_dir) / SOCKET)
    finally:
        os.close(fd)


async def listen(
    run_dir: Path,
    stop: Callable[[str, str], None],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Take Stop requests until cancelled; the socket is removed at the end."""
    path = run_dir / SOCKET
    path.unlink(missing_ok=True)
    server = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short_path(run_dir) as short:
            await server.bind(short)
        path.chmod(0o600)
        server.listen(8)
        task_status.started()

        async def answer(stream: trio.SocketStream) -> None:
            async with stream:
                with trio.move_on_after(SECONDS_MAX):
                    await stream.send_all(await _handle(stream, stop))

        await trio.serve_listeners(answer, [trio.SocketListener(server)])
    finally:
        server.close()
        path.unlink(missing_ok=True)


async def _handle(stream: trio.SocketStream, stop: Callable[[str, str], None]) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        part = await stream.receive_some(4096)
        if not part or len(data) > REQUEST_MAX:
            return b"refused\n"
        data += part
    try:
        request = msgspec.json.decode(data, type=StopRequest)
    except msgspec.MsgspecError:
        return b"refused\n"
    stop(request.reason, request.who)
    return b"stopping\n"


def ask_to_stop(run_dir: Path, reason: str, who: str = "user") -> bool:
    """Ask the supervisor of a run to stop it; False when none listens. For plain processes."""
    try:
        with (
            _short_path(run_dir) as short,
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel,
        ):
            channel.settimeout(SECONDS_MAX)
            channel.connect(short)
            channel.sendall(msgspec.json.encode(StopRequest(reason, who)) + b"\n")
            return channel.recv(64).startswith(b"stopping")
    except OSError:
        return False


def listens(run_dir: Path) -> bool:
    """Whether a supervisor listens for this run; a socket that was left behind does not."""
    try:
        with (
            _short_path(run_dir) as short,
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel,
        ):
            channel.settimeout(SECONDS_MAX)
            channel.connect(short)
    except OSError:
        return False
    return True
