"""The shipped tools for an agent's own notes, which outlive whatever the window has no room for."""

from typing import Annotated

import msgspec
import trio

from actors.notes import NAME_PATTERN, NOTE_MAX_BYTES
from actors.tool_context import ToolContext
from actors.tools import tool

NoteName = Annotated[
    str,
    msgspec.Meta(pattern=NAME_PATTERN, description="Letters, digits, dots, - and _."),
]
Text = Annotated[str, msgspec.Meta(description=f"At most {NOTE_MAX_BYTES} bytes.")]
Offset = Annotated[int, msgspec.Meta(ge=0, description="The byte to start at.")]


# Keyed by its own arguments: the same call leaves the same note, however often it is made, and as
# no other write runs beside one, a call that a crash cut off can simply be made again.
@tool(keyed=True)
async def note_write(context: ToolContext, name: NoteName, text: Text) -> str:
    """Keep a note for yourself, in place of any note of that name. Notes stay as they are when old
    tool results are cleared, so write down what you found.
    """  # noqa: D205  # the model reads the first paragraph
    notes = context.require_notes()
    # It waits for the disk. The thread is seen to its end, so that a cancel hides no change.
    size = await trio.to_thread.run_sync(notes.write, name, text)
    return f"The note {name} was written, {size} bytes."


@tool(read_only=True)
async def note_read(context: ToolContext, name: NoteName, offset: Offset = 0) -> str:
    """Read one of your notes."""
    await trio.lowlevel.checkpoint()
    return context.require_notes().read(name, offset)


@tool(read_only=True)
async def note_list(context: ToolContext) -> str:
    """List your notes with their sizes in bytes, one a line."""
    await trio.lowlevel.checkpoint()
    sizes = context.require_notes().sizes()
    return "\n".join(f"{name} {size}" for name, size in sizes.items()) or "(there are no notes)"
