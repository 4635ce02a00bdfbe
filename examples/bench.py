"""Measures what the harness itself costs, and prints one table.

    python examples/bench.py [SECTION ...]

Method: the scripted provider runs in a process of its own over a loopback socket, with no latency;
each measured run is performed in a freshly forked process, so that nothing is warm but the code.
CPU is that process's own user and system time, wall is what passed. Every figure is the median of
``ROUNDS`` rounds; where two things are compared, they take turns within a round and the ratio is
the median of the rounds' ratios. ``power`` waits for the disk twice a turn, so its wall is the
disk's.
"""

import os
import platform
import resource
import sys
import tempfile
from pathlib import Path

import trio
from bench_journal import journal_section
from bench_measure import median as median
from bench_measure import memory_kib as memory_kib
from bench_measure import provider as provider
from bench_measure import row as row
from bench_processes import process_section
from bench_turns import turns_section

from actors.tokens import encoding

TOOLS = '''
import subprocess
import trio
from actors import tool, ToolContext

@tool
async def list_files() -> str:
    """List the files."""
    return "x" * 200

@tool(read_only=True, timeout_s=600)
async def scan_archive(context: ToolContext) -> str:
    """Wait in a process of its own."""
    context.progress("started")
    await context.run_process(["sleep", "600"], timeout_s=600)
    return ""
'''


def main() -> None:
    """Run the sections that were named, or all."""
    wanted = sys.argv[1:] or ["journal", "turns", "processes"]
    print(f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    encoding()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bench_tools.py").write_text(TOOLS)
        if "journal" in wanted:
            journal_section(folder)
        if "turns" in wanted:
            turns_section(folder)
        if "processes" in wanted:
            trio.run(process_section, folder)
    print(f"peak memory here: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")


if __name__ == "__main__":
    main()
