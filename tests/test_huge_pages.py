"""Memory in huge pages: what is in it stays, and the kernel says where it lies."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import re
from pathlib import Path
from actors import huge_pages

def in_huge_pages():
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return int(re.search(r"AnonHugePages:\\s+(\\d+)", rollup)[1]) * 1024

held = [bytes([n % 251]) * 100_000 for n in range(200)]
before = in_huge_pages()
steps = list(huge_pages.collapse())
assert all(held[n] == bytes([n % 251]) * 100_000 for n in range(200))
print(len(steps) * huge_pages.SIZE, in_huge_pages() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has it")
def test_each_step_is_a_huge_page_and_nothing_in_it_changes():
    """What the kernel counts in huge pages grows by as much as was collapsed."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT],
        env=os.environ,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    collapsed, counted = map(int, done.stdout.split())
    if collapsed == 0:
        pytest.skip("this kernel collapses nothing")
    assert collapsed >= 10 * 2**20
    assert 0 < counted <= collapsed
