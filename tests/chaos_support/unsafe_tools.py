"""Tools whose flags are not true, each in a way that only a repetition shows."""

import ctypes
import faulthandler
import os
import subprocess
import time

import trio

from actors import ToolContext, tool

FILE = "log.txt"


def append(context: ToolContext, line: str) -> int:
    """Append a line to the file; returns how many there are."""
    file = context.require_workspace().root / FILE
    lines = [*(file.read_text().splitlines() if file.exists() else []), line]
    file.write_text("".join(f"{one}\n" for one in lines))
    return len(lines)


@tool(read_only=True)
def note(line: str, context: ToolContext) -> str:
    """Say that nothing is changed, and append a line."""
    append(context, line)
    return "noted"


@tool(read_only=True)
async def note_too(line: str, context: ToolContext) -> str:
    """Do as ``note``, and take a little longer."""
    append(context, line)
    await trio.sleep(0.05)
    return "noted too"


@tool(read_only=True)
async def note_last(line: str, context: ToolContext) -> str:
    """Do as ``note``, and answer when others have."""
    append(context, line)
    await trio.sleep(0.5 if context.attempt == 1 else 0.0)
    return "noted last"


@tool(keyed=True)
async def pay(amount: int, context: ToolContext) -> str:
    """Pay again under a key that was paid under before."""
    await trio.lowlevel.checkpoint()
    append(context, f"paid {amount}")
    return f"{amount} was paid"


@tool(keyed=True)
async def pay_once(amount: int, context: ToolContext) -> str:
    """Pay once under a key."""
    await trio.lowlevel.checkpoint()
    (context.require_workspace().root / f"paid-{amount}").write_text(context.call)
    return f"{amount} was paid"


@tool(keyed=True)
def scribble() -> str:
    """Append to a file of the directory that it is in."""
    with open(FILE, "a") as file:
        file.write("scribbled\n")
    return "scribbled"


@tool(keyed=True)
async def enter(context: ToolContext) -> str:
    """Keep a record under its key, as one does, and say where."""
    await trio.lowlevel.checkpoint()
    file = context.require_workspace().root / f"{context.key}.txt"
    file.write_text(f"{context.run_id} {context.call} {context.key}")
    return f"entered at {file}"


@tool(keyed=True)
async def enter_again(context: ToolContext) -> str:
    """Append its key without a look at whether it is there."""
    await trio.lowlevel.checkpoint()
    append(context, context.key)
    return f"entered as {context.key}"


@tool(keyed=True)
async def count(context: ToolContext) -> str:
    """Answer with how often it was called, kept outside of the workspace."""
    await trio.lowlevel.checkpoint()
    file = context.require_workspace().root.parent / "counted"
    times = len(file.read_text()) + 1 if file.exists() else 1
    file.write_text("x" * times)
    return f"called {times} times"


@tool
def leave(context: ToolContext) -> str:
    """Answer at once, and let a program write later."""
    root = context.require_workspace().root
    script = f"sleep 0.4; echo left >> {FILE}"
    subprocess.Popen(["sh", "-c", script], cwd=root, stdin=subprocess.DEVNULL)
    return "it is being written"


@tool(keyed=True)
async def wait(seconds: float, context: ToolContext) -> str:
    """Wait."""
    await trio.sleep(seconds)
    return "waited"


@tool
def die_plain() -> str:
    """End the process."""
    os._exit(3)


@tool(keyed=True)
def die_keyed() -> str:
    """End the process at every attempt."""
    os._exit(3)


@tool(read_only=True)
def die_native() -> str:
    """Read where nothing is."""
    faulthandler.disable()
    return str(ctypes.string_at(0))


@tool(keyed=True)
def escape() -> str:
    """Start a program that nobody finds again."""
    quiet = subprocess.DEVNULL
    subprocess.Popen(
        ["/bin/sleep", "60"], env={}, start_new_session=True, stdin=quiet, stdout=quiet
    )
    return "it sleeps"


@tool(keyed=True)
async def sleep_on() -> str:
    """Never answer."""
    await trio.sleep_forever()
    return "awake"


@tool(keyed=True)
async def stamp(context: ToolContext) -> str:
    """Write the time into a file."""
    await trio.lowlevel.checkpoint()
    (context.require_workspace().root / "stamp.txt").write_text(str(time.time_ns()))
    return "stamped"


@tool(keyed=True)
async def tell_time(context: ToolContext) -> str:
    """Answer with the time."""
    await trio.lowlevel.checkpoint()
    return str(time.time_ns())
