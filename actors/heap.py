"""This process's heap, arranged so that what is forked from it shares more and copies less."""

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

HUGE_PAGE = 2 * 1024 * 1024
_MADV_COLLAPSE = 25  # Linux 6.1; a kernel without it refuses, and nothing is lost.

# CPython's Objects/obmalloc.c, since 3.10: objects of up to 512 bytes lie in pools of one size.
_POOL = 16 * 1024
_POOL_HEADER = 48
_SIZES = range(48, 513, 16)
_BYTES_OVERHEAD = 33
_TRIES_MAX = 2_000
_SURE = 8

_filling: list[bytes] = []


def fill_gaps() -> None:
    """Take for ever what is free between living objects: a quarter of a MiB in a warm zygote.

    A fork's new objects come to lie side by side then; each of them in a gap of its own would copy
    a page of its own, as much again in every fork.
    """
    for size in _SIZES:
        in_fresh_pool = 0
        for _ in range(_TRIES_MAX):
            _filling.append(bytes(size - _BYTES_OVERHEAD))
            place = id(_filling[-1])
            if place % _POOL == _POOL_HEADER:
                in_fresh_pool = 1
            elif in_fresh_pool and place == id(_filling[-2]) + size:
                in_fresh_pool += 1
            else:
                in_fresh_pool = 0
            # All older pools are full once a new one is begun; one that lost its first object
            # seems new for a moment.
            if in_fresh_pool == _SURE:
                break
        else:
            # There is another allocator, in which nothing is gained by this.
            _filling.clear()
            return


def collapse() -> Iterator[bool]:
    """Put this process's own memory into huge pages; each step is one, takes 4 ms, is True.

    A fork of a warm zygote spends most of its time on page tables, and an actor's end on taking
    them down: this way both take about half.
    """
    if sys.platform != "linux":
        return
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for start in _places():
        if madvise(start, HUGE_PAGE, _MADV_COLLAPSE) != 0:
            return
        yield True


def _places() -> list[int]:
    """Where a whole huge page lies within private memory that no file is behind."""
    found: list[int] = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights, _, _, inode, *name = line.split()
        if rights == "rw-p" and inode == "0" and name in ([], ["[heap]"]):
            start, end = (int(word, 16) for word in span.split("-"))
            found += range(-(-start // HUGE_PAGE) * HUGE_PAGE, end - HUGE_PAGE + 1, HUGE_PAGE)
    return found
