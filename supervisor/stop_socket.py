"""How another terminal reaches a running supervisor: a socket in the root run's directory.

One request a connection: a JSON object and a newline; the answer is a line too. The directory is
private, so whoever can connect may stop the run.
"""

import contextlib
import os
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Protocol

import msgspec
import trio

from actors.journal import disk_failed

SOCKET = "control.sock"
REQUEST_MAX = 16 * 1024
SECONDS_MAX = 5.0


class StopRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="stop"):
    """Stop a run and everything below it, because of ``reason``, on behalf of ``who``."""

    run_id: str
    reason: str
    who: str = "user"


class TellRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="tell"):
    """Pass a person's message on to a run, for its next turn."""

    run_id: str
    text: str
    who: str = "user"


Request = StopRequest | TellRequest


class Reached(Protocol):
    """What can be reached from another terminal."""

    def stop_run(self, run_id: str, reason: str, who: str) -> bool:
        """Stop one run and what is below it; False when it is not under way."""
        ...

    def tell(self, run_id: str, text: str, who: str) -> bool:
        """Pass a message to a run; False when it is not under way."""
        ...


_decoder: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)


@contextlib.contextmanager
def _short_path(run_dir: Path) -> Generator[str, None, None]:
    """A path to the socket that fits the kernel's 108 bytes, however deep the directory is."""
    fd = os.open(run_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        near = Path(f"/proc/self/fd/{fd}")
        yield str((near if near.exists() else run_dir) / SOCKET)
    finally:
        os.close(fd)


async def listen(
    run_dir: Path,
    tree: Reached,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Take requests until cancelled; the socket is removed at the end.

    For the one supervisor that has the lock of the tree: what it finds there is of the past.
    Raises DiskFailed when there can be no socket.
    """
    path = run_dir / SOCKET
    server = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        try:
            path.unlink(missing_ok=True)
            with _short_path(run_dir) as short:
                await server.bind(short)
            path.chmod(0o600)
        except OSError as error:
            raise disk_failed(path, error) from error
        server.listen(8)
        task_status.started()

        async def answer(stream: trio.SocketStream) -> None:
            # Whoever hangs up, as one who only looks does, must not end the tree that is asked.
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                async with stream:
                    with trio.move_on_after(SECONDS_MAX):
                        await stream.send_all(await _handle(stream, tree))

        await trio.serve_listeners(answer, [trio.SocketListener(server)])
    finally:
        server.close()
        with contextlib.suppress(OSError):
            path.unlink()


async def _handle(stream: trio.SocketStream, tree: Reached) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        part = await stream.receive_some(4096)
        if not part or len(data) > REQUEST_MAX:
            return b"refused\n"
        data += part
    try:
        request: Request = _decoder.decode(data)
    except msgspec.MsgspecError:
        return b"refused\n"
    match request:
        case StopRequest(run_id, reason, who):
            taken = tree.stop_run(run_id, reason, who)
        case TellRequest(run_id, text, who):
            taken = tree.tell(run_id, text, who)
    return b"taken\n" if taken else b"not under way\n"


def ask(run_dir: Path, request: Request) -> bool:
    """Ask the supervisor of a root; False when none listens or the run is not under way.

    ``run_dir`` is the root's. For plain processes.
    """
    try:
        with (
            _short_path(run_dir) as short,
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel,
        ):
            channel.settimeout(SECONDS_MAX)
            channel.connect(short)
            channel.sendall(msgspec.json.encode(request) + b"\n")
            return channel.recv(64).startswith(b"taken")
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
