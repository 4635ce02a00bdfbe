"""What Linux offers a process about its parent, orphans and name; elsewhere nothing happens."""

import ctypes
import functools
import os
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

_NAME_MAX_BYTES = 15
# One for all names: ctypes makes a type for each length of a buffer.
_name = ctypes.create_string_buffer(_NAME_MAX_BYTES + 1)


@functools.cache
def _libc_prctl() -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    function = ctypes.CDLL(None, use_errno=True).prctl
    # The kernel reads four longs whatever the option is.
    function.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    function.restype = ctypes.c_int
    return function


def _prctl(option: int, argument: int) -> bool:
    function = _libc_prctl()
    if function is None:
        return False
    if function(option, argument, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl option {option}: {os.strerror(number)}")
    return True


def die_with_parent(signal_number: int) -> bool:
    """Have this signal sent when the thread that forked us ends; False: not on Linux."""
    return _prctl(_PR_SET_PDEATHSIG, signal_number)


def adopt_orphans() -> bool:
    """Become the parent of every descendant whose own parent dies; False: not on Linux."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def forbid_dumps() -> bool:
    """Keep memory, and the keys in it, from core files and the same user's other processes."""
    return _prctl(_PR_SET_DUMPABLE, 0)


def forbid_new_privileges() -> bool:
    """Let no program that is started from here gain rights, whatever its file says."""
    return _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def rename(name: str) -> bool:
    """Show at most 15 bytes of this name in ``ps`` and ``top``; False: not on Linux."""
    raw = name.encode(errors="replace").replace(b"\0", b"?")[:_NAME_MAX_BYTES]
    _name.value = raw
    return _prctl(_PR_SET_NAME, ctypes.addressof(_name))
