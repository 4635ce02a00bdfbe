"""Tools that hold on to things: processes that outlive their tool, and code that lets nobody in."""

import os
import re

from errand_tools import happen

from actors import ToolContext, tool

HOG = "CHAOS_HOG"
"""The environment variable without which ``hog`` is harmless."""


@tool(read_only=True)
async def daemonise(context: ToolContext) -> str:
    """Leave a process behind that has left its group, its session and its parents."""
    happen("read", context)
    script = "setsid sh -c 'sleep 60 & sleep 60' >/dev/null 2>&1 & echo begun"
    return (await context.run_process(["sh", "-c", script])).stdout


@tool(read_only=True, timeout_s=0.05)
def hog(context: ToolContext) -> str:
    """Hold the interpreter's lock in C, so that nothing else in the process runs; once a call."""
    happen("read", context)
    if HOG in os.environ and context.attempt == 1:
        re.fullmatch("(a*)*b", "a" * 64)
    return "that was a long time"
