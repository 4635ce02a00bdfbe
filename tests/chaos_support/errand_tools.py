"""Tools whose every effect goes into a ledger outside the run, which no crash takes back."""

import os
import signal
import threading
from pathlib import Path

import msgspec
import trio

from actors import ToolContext, ToolError, tool
from actors.testing.evidence import Effect, read_effects

LEDGERS = "CHAOS_EFFECTS"
"""The environment variable that names the folder of the ledgers."""

BIG_CHARS = 9000
"""More than two pages of the disk, so that half a frame can be written."""


def ledger(run_id: str) -> Path:
    return Path(os.environ[LEDGERS]) / f"effects-{run_id}"


def happen(kind: str, context: ToolContext) -> None:
    effect = Effect(kind=kind, ref=context.call, key=context.key, attempt=context.attempt)
    fd = os.open(
        ledger(context.run_id), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    os.write(fd, msgspec.json.encode(effect) + b"\n")
    os.close(fd)


@tool(read_only=True)
async def look(place: str, context: ToolContext) -> str:
    """Look at a place."""
    await trio.lowlevel.checkpoint()
    happen("read", context)
    return f"{place} is as it was."


@tool(read_only=True)
def survey(place: str, context: ToolContext) -> str:
    """Look at all of a place, in a thread."""
    happen("read", context)
    return "".join(f"{place} {number:05};" for number in range(BIG_CHARS // (len(place) + 7)))


@tool(read_only=True)
async def stumble(context: ToolContext) -> str:
    """Fail."""
    happen("read", context)
    raise ToolError("there is nothing to stand on")


@tool
async def put(text: str, context: ToolContext) -> str:
    """Put a text down: a plain write."""
    await trio.lowlevel.checkpoint()
    happen("write", context)
    await trio.lowlevel.checkpoint()
    return f"{text} was put down."


@tool(keyed=True)
async def pay(amount: int, context: ToolContext) -> str:
    """Pay an amount; the bank does what bears one key only once."""
    happen("keyed", context)
    await trio.lowlevel.checkpoint()
    return f"{amount} was paid."


def was_sent(to: str, key: str) -> str:
    """Look in the ledger whether a letter went out."""
    ledgers = Path(os.environ[LEDGERS]).glob("effects-*")
    sent = any(effect.key == key for ledger in ledgers for effect in read_effects(ledger))
    return "done" if sent else "not_done"


@tool(probe=was_sent)
async def send(to: str, context: ToolContext) -> str:
    """Send a letter: a write that can be looked for afterwards."""
    happen("probed", context)
    await trio.lowlevel.checkpoint()
    return f"A letter went to {to}."


@tool(needs_approval=True)
async def demolish(place: str, context: ToolContext) -> str:
    """Tear a place down: a plain write that a person must approve."""
    await trio.lowlevel.checkpoint()
    happen("write", context)
    return f"{place} is gone."


@tool(read_only=True)
async def poison(context: ToolContext) -> str:
    """End the process, as a bug in some library might."""
    happen("read", context)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@tool(timeout_s=0.05)
def wedge(context: ToolContext) -> str:
    """Block for good, in a thread."""
    happen("write", context)
    threading.Event().wait()
    return "never"


@tool
async def hammer(seconds: float, context: ToolContext) -> str:
    """Work in a subprocess, which outlives an actor that is killed."""
    effect = msgspec.json.encode(Effect(kind="write", ref=context.call)).decode()
    script = f"echo '{effect}' >> $0; sleep {seconds}; echo ended >> $0.ended"
    await context.run_process(["sh", "-c", script, str(ledger(context.run_id))])
    return "It holds."
