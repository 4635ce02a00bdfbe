"""Tools that try their limits and their sandbox, and say in words what each try came to."""

import contextlib
import errno
import json
import os
import resource
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from actors import tool
from actors.tool_context import ToolContext

MIB = 1 << 20


def _try(act: Callable[[], object]) -> str:
    try:
        act()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "ok"


def connect(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=1):
        pass


def listen() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))


@tool
async def break_out(context: ToolContext) -> str:
    """Try to change what is outside the workspace, and what is inside."""
    root = context.require_workspace().root
    outside = root.parent / "outside"
    inside = root / "inside"
    inside.write_text("ours")
    (root / "link").symlink_to(outside / "file")
    return json.dumps(
        {
            "write": _try(lambda: (outside / "new").write_text("x")),
            "append": _try(lambda: os.open(outside / "file", os.O_WRONLY | os.O_APPEND)),
            "truncate": _try(lambda: os.truncate(outside / "file", 0)),
            "remove": _try((outside / "file").unlink),
            "rename": _try(lambda: (outside / "file").rename(outside / "other")),
            "take in": _try(lambda: (outside / "file").rename(root / "taken")),
            "bring out": _try(lambda: inside.rename(outside / "brought")),
            "hard link": _try(lambda: (root / "hard").hardlink_to(outside / "file")),
            "make folder": _try((outside / "folder").mkdir),
            "make pipe": _try(lambda: os.mkfifo(outside / "pipe")),
            "through link": _try(lambda: (root / "link").write_text("x")),
            "own journal": _try(
                lambda: os.open(root.parent / "runs" / "r1" / "journal.x1", os.O_RDWR)
            ),
            "workspace": _try(lambda: (root / "inside").rename(root / "moved")),
            "null device": _try(lambda: Path(os.devnull).write_text("x")),
            "read": _try((outside / "file").read_text),
        }
    )


@tool
async def grandchild(context: ToolContext) -> str:
    """Try the same from a program's program, in a session of its own."""
    script = "setsid sh -c 'echo x >../outside/new; echo ours >made; cat made 2>/dev/null'"
    result = await context.run_process(["sh", "-c", script])
    return f"{result.stdout}{result.stderr}"


@tool(read_only=True)
async def call_out(context: ToolContext) -> str:
    """Try to reach the port that the workspace names, to listen, and to signal the parent."""
    port = int((context.require_workspace().root / "port").read_text())
    return json.dumps(
        {
            "connect": _try(lambda: connect(port)),
            "listen": _try(listen),
            "signal": _try(lambda: os.kill(os.getppid(), 0)),
            "signal self": _try(lambda: os.kill(os.getpid(), 0)),
        }
    )


@tool(read_only=True)
async def look_out(context: ToolContext) -> str:
    """Try to read the machine, and to run programs."""
    root = context.require_workspace().root
    python = await context.run_process([sys.executable, "-c", "import json, ssl; print('runs')"])
    return json.dumps(
        {
            "outside": _try((root.parent / "outside" / "file").read_text),
            "list outside": _try(lambda: list((root.parent / "outside").iterdir())),
            "own journal": _try((root.parent / "runs" / "r1" / "journal.x1").read_bytes),
            "given": _try((root.parent / "given" / "file").read_text),
            "workspace": _try((root / "errors.log").read_text),
            "hosts": _try(lambda: socket.getaddrinfo("localhost", 80)),
            "python": python.stdout.strip() or python.stderr,
        }
    )


@tool(read_only=True)
async def allocate() -> str:
    """Ask for ten gigabytes."""
    return str(len(bytearray(10_240 * MIB)))


@tool(read_only=True)
async def open_many() -> str:
    """Open files without end."""
    with contextlib.ExitStack() as stack:
        while True:
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))


@tool
async def write_long(context: ToolContext) -> str:
    """Make a file of ten gigabytes, holes and all."""
    root = context.require_workspace().root
    os.truncate(root / "errors.log", 10_240 * MIB)
    return "written"


@tool
async def burn() -> str:
    """Change who knows what, and let nothing else in the process have a turn."""
    while True:
        pass


@tool(read_only=True)
async def spin() -> str:
    """Compute without end, in the process's only thread."""
    while True:
        pass


@tool(read_only=True)
async def tell_limits(context: ToolContext) -> str:
    """Tell the limits of this process, and of a program that it starts."""
    result = await context.run_process(
        [sys.executable, "-c", "import caged_tools as c; print(c.limits())"],
        cwd=Path(__file__).parent,
    )
    return json.dumps([limits(), json.loads(result.stdout)])


def limits() -> str:
    """The soft limits of this process, as JSON."""
    kinds = ("AS", "CPU", "NOFILE", "FSIZE", "CORE")
    soft = {kind: resource.getrlimit(getattr(resource, f"RLIMIT_{kind}"))[0] for kind in kinds}
    return json.dumps({**soft, "xfsz": signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN})


@tool(read_only=True)
async def search(context: ToolContext) -> str:
    """Read the environment and command line of every process, as far as this one may."""
    script = 'for f in /proc/[0-9]*/environ /proc/[0-9]*/cmdline; do echo "$f"; cat "$f"; done'
    result = await context.run_process(
        ["sh", "-c", f"env; ({script}) 2>/dev/null | tr '\\0' '\\n'"],
        max_output_bytes=16 * MIB,
    )
    return result.stdout.replace(shutil.which("sh") or "", "")


def no_landlock() -> None:
    """A preload that makes this machine an old one."""
    from actors import landlock

    landlock.abi = lambda: 1


def open_landlock() -> None:
    """A preload after which the sandbox is none."""
    from actors import landlock

    landlock.restrict = lambda **_: None
