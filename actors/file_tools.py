"""The shipped tools over the files of a workspace."""

import codecs
import os
from typing import Annotated

import msgspec
import trio

from actors.tool_context import ToolContext
from actors.tools import tool
from actors.workspace import MAX_ENTRIES, Entry, shown

MAX_READ_BYTES = 256 * 1024
SCANNED_FILES = 1200
SCAN_STEP = 200
SCAN_SECONDS = 3.0
"""How long a scan takes; the environment variable ``EXEUNT_SCAN_SECONDS`` says otherwise."""

FilePath = Annotated[str, msgspec.Meta(description="Relative to the workspace.")]
Offset = Annotated[int, msgspec.Meta(ge=0, description="The byte to start at.")]
Limit = Annotated[
    int, msgspec.Meta(ge=1, le=MAX_READ_BYTES, description="How many bytes at the most.")
]


@tool(read_only=True)
async def list_files(context: ToolContext) -> str:
    """List the files of the workspace with their sizes in bytes, one a line."""
    await trio.lowlevel.checkpoint()
    entries, more = context.require_workspace().entries()
    lines = [_line(entry) for entry in entries]
    if more:
        lines.append(f"[only the first {MAX_ENTRIES} found are shown]")
    return "\n".join(lines) or "(the workspace is empty)"


def _line(entry: Entry) -> str:
    if entry.is_folder:
        return f"{entry.path}/"
    if entry.is_link:
        return f"{entry.path} (a link)"
    return f"{entry.path} {entry.size}"


@tool(read_only=True)
async def read_file(
    context: ToolContext, path: FilePath, offset: Offset = 0, limit: Limit = MAX_READ_BYTES
) -> str:
    """Read a text file of the workspace; a long one in parts, by offset."""
    await trio.lowlevel.checkpoint()
    with context.require_workspace().open_read(path) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(offset)
        data = file.read(limit)
    if not data:
        return f"({shown(path)} has {size} bytes, and nothing from byte {offset} on)"
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=offset + len(data) >= size)
    # A character that the limit cut in two is left for the next part, unless it is all there is.
    end = offset + len(data) - len(decoder.getstate()[0])
    if end == offset:
        text, end = data.decode("utf-8", "replace"), offset + len(data)
    if end >= size:
        return text
    return (
        f"{text}\n[bytes {offset} to {end} of {size};"
        f" call read_file with offset={end} for what follows]"
    )


@tool(needs_approval=True)
async def delete_file(context: ToolContext, path: FilePath) -> str:
    """Delete one file of the workspace, for good."""
    # No checkpoint after the deletion: a cancel must not hide that it happened.
    await trio.lowlevel.checkpoint()
    context.require_workspace().unlink(path)
    return f"{shown(path)} was deleted."


@tool(read_only=True)
async def scan_archive(context: ToolContext, path: FilePath = ".") -> str:
    """Scan the archive below a folder of the workspace, which takes a few seconds."""
    context.require_workspace().entries(path)
    seconds = float(os.environ.get("EXEUNT_SCAN_SECONDS", SCAN_SECONDS))
    for scanned in range(SCAN_STEP, SCANNED_FILES + 1, SCAN_STEP):
        await trio.sleep(seconds * SCAN_STEP / SCANNED_FILES)
        context.progress(f"scanned {scanned} of {SCANNED_FILES} files")
    return f"Scanned {SCANNED_FILES} files below {shown(path)}: nothing is damaged."
