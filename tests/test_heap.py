"""The heap of a zygote: what is in it stays, and its forks copy less of it."""

import os
import subprocess
import sys

import pytest

COLLAPSE = """
import re
from pathlib import Path
from actors import heap

def in_huge_pages():
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return int(re.search(r"AnonHugePages:\\s+(\\d+)", rollup)[1]) * 1024

held = [bytes([n % 251]) * 100_000 for n in range(200)]
before = in_huge_pages()
steps = list(heap.collapse())
assert all(held[n] == bytes([n % 251]) * 100_000 for n in range(200))
print(len(steps) * heap.HUGE_PAGE, in_huge_pages() - before)
"""

FILL = """
from actors import heap

def pages():
    return len({id(one) // 4096 for one in [bytes(n % 31 + 1) for n in range(60)]})

held = [bytes(n % 31 + 1) for n in range(100_000)]
# Every 127th is freed: gaps that are a page apart.
del held[::127]
before = pages()
heap.fill_gaps()
print(before, pages())
"""


def printed(script: str, **environment: str) -> list[int]:
    """The numbers that a process of its own prints."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return [int(word) for word in done.stdout.split()]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has it")
def test_each_step_is_a_huge_page_and_nothing_in_it_changes():
    """What the kernel counts in huge pages grows by as much as was collapsed."""
    collapsed, counted = printed(COLLAPSE)
    if collapsed == 0:
        pytest.skip("this kernel collapses nothing")
    assert collapsed >= 10 * 2**20
    assert 0 < counted <= collapsed


def test_new_objects_lie_side_by_side_once_the_gaps_are_filled():
    """Sixty small objects touch a tenth of the pages that they touched before."""
    before, after = printed(FILL)
    assert after * 10 <= before


@pytest.mark.parametrize("allocator", ["malloc", "debug", "malloc_debug"])
def test_another_allocator_is_left_as_it_is(allocator: str):
    """Where objects lie otherwise nothing is taken."""
    script = "from actors import heap; heap.fill_gaps(); print(len(heap._filling))"
    assert printed(script, PYTHONMALLOC=allocator) == [0]
