"""Tools for trees of runs in real processes."""

import errno
import os
import signal

import trio

from actors import tool
from actors.fs import REAL
from actors.tool_context import ToolContext


@tool(read_only=True)
async def dawdle(context: ToolContext) -> str:
    """Say that it waits, then wait without end."""
    context.progress("waiting")
    await trio.sleep_forever()
    return ""


@tool(read_only=True)
async def pause(context: ToolContext) -> str:
    """Wait until a file called go is there."""
    root = context.require_workspace().root
    (root / "pausing").touch()
    context.progress("waiting")
    while not (root / "go").exists():  # noqa: ASYNC110  # no other sign
        await trio.sleep(0.005)
    return "went on"


@tool(read_only=True)
async def crash() -> str:
    """End the process as a bad pointer would."""
    os.kill(os.getpid(), signal.SIGSEGV)
    await trio.sleep_forever()
    return ""


@tool(read_only=True)
async def forbid(words: str) -> str:
    """Fail with these words, in a way that no message can mend."""
    raise PermissionError(words)


@tool(read_only=True)
async def forbid_later(context: ToolContext) -> str:
    """Wait until a file called go is there, then fail in a way that no message can mend."""
    while not (context.require_workspace().root / "go").exists():  # noqa: ASYNC110  # no other sign
        await trio.sleep(0.005)
    raise PermissionError("not yours")


@tool(read_only=True)
async def spin_later(context: ToolContext) -> str:
    """Wait until a file called go is there, then let nothing else in the process have a turn."""
    while not (context.require_workspace().root / "go").exists():  # noqa: ASYNC110  # no other sign
        await trio.sleep(0.005)
    while True:
        pass


@tool(needs_approval=True)
async def remove(context: ToolContext, name: str) -> str:
    """Note a name as removed."""
    with (context.require_workspace().root / "removed").open("a") as file:
        file.write(f"{context.run_id} {name}\n")
    return f"removed {name}"


@tool
async def note(context: ToolContext, text: str) -> str:
    """Note a text, then wait until a file called go is there."""
    root = context.require_workspace().root
    with (root / "notes").open("a") as file:
        file.write(f"{text}\n")
    context.progress("written")
    while not (root / "go").exists():  # noqa: ASYNC110  # no other sign
        await trio.sleep(0.005)
    return "noted"


@tool(read_only=True)
async def nap(context: ToolContext, seconds: float) -> str:
    """Sleep for a while."""
    context.progress("asleep")
    await trio.sleep(seconds)
    return f"slept {context.call}"


@tool(read_only=True)
async def chatter(context: ToolContext) -> str:
    """Print without end, until a file called go is there."""
    context.progress("printing")
    while not (context.require_workspace().root / "go").exists():
        print("x" * 99, flush=True)
        await trio.lowlevel.checkpoint()
    return "said it all"


def _no_room(fd: int, data: bytes) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@tool(read_only=True)
async def fill_disk(context: ToolContext, after: str = "", and_wait: bool = False) -> str:
    """Leave this process no room to save anything, unless a file called room is there."""
    root = context.require_workspace().root
    if (root / "room").exists():
        return "there is room"
    while not (root / after).exists():  # noqa: ASYNC110  # no other sign
        await trio.sleep(0.005)
    setattr(REAL, "write", _no_room)  # noqa: B010 - what the disk is for this process
    context.progress("no room")
    if and_wait:
        await trio.sleep_forever()
    return "never saved"
