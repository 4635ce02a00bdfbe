"""Tools for runs in real processes, which import this module; each test names those it needs."""

import os
import select
import signal
import threading
from pathlib import Path

import trio

from actors import tool
from actors.tool_context import ToolContext


def _first(context: ToolContext) -> bool:
    return context.attempt == 1


@tool(read_only=True)
async def wait(context: ToolContext) -> str:
    """Wait without end the first time; answer the second time."""
    context.progress("waiting")
    if _first(context):
        await trio.sleep_forever()
    return f"attempt {context.attempt}"


@tool
async def wait_and_write(context: ToolContext) -> str:
    """Write, then wait without end."""
    with (context.require_workspace().root / "written").open("a") as file:
        file.write(f"{context.key}\n")
    context.progress("written")
    await trio.sleep_forever()
    return ""


@tool
def block(context: ToolContext) -> str:
    """Block a thread without end."""
    context.progress("blocking")
    threading.Event().wait(60)
    return ""


@tool
async def hold(context: ToolContext) -> str:
    """Hold up the whole process in a system call."""
    (context.require_workspace().root / "pid").write_text(str(os.getpid()))
    await trio.lowlevel.checkpoint()
    select.select([], [], [], 60)
    return ""


@tool(read_only=True, timeout_s=0.1)
async def spin() -> str:
    """Think without end, and let nothing else in the process have a turn."""
    while True:
        pass


@tool(read_only=True)
async def die() -> str:
    """End the process."""
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


@tool(read_only=True)
async def spy(context: ToolContext) -> str:
    """Look for what a tool's process can see: its environment and its parent's."""
    script = (
        "tr '\\0' '\\n' </proc/self/environ; tr '\\0' '\\n' </proc/$PPID/environ;"
        "tr '\\0' ' ' </proc/$PPID/cmdline; ls /proc/self/fd"
    )
    result = await context.run_process(["sh", "-c", script])
    return result.stdout + result.stderr


@tool
async def linger(context: ToolContext) -> str:
    """Run a program without end, and say its pid."""
    root = context.require_workspace().root
    context.progress("running")
    await context.run_process(["sh", "-c", "echo $$ >pid; sleep 600 & wait"], cwd=root)
    return ""


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
