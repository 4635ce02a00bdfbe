"""Landlock by plain system calls: rights that this process, and all it starts, give up for good.

Linux binds them to the calling thread and to what that thread starts later, so they are given up
before there is another thread. What was opened before stays open. Not covered, as Landlock does
not know it: UDP, Unix sockets that have a path, chmod, utime, and reads without ``readable``.
"""

import ctypes
import functools
import os
import stat
import struct
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from actors import prctl

ABI_FILES, ABI_NETWORK, ABI_SIGNALS = 3, 4, 6
"""The version that knows all ways to change a file (Linux 6.2), TCP (6.7), signals (6.12)."""

# The same numbers on all machines that Python 3.11 runs on, but for Alpha.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_TELL_VERSION = 1
_PATH_BENEATH, _NET_PORT = 1, 2

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_WRITE = (1 << 15) - 1 - _READ
"""All the rest up to version 3: write, truncate, make and remove anything, move between folders."""
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1
_ABSTRACT_SOCKET, _SIGNAL = 1 << 0, 1 << 1


@functools.cache
def abi() -> int:
    """The version of Landlock that this kernel has; 0 when it has none or it is switched off."""
    if sys.platform != "linux":
        return 0
    try:
        return _call(_CREATE_RULESET, None, 0, _TELL_VERSION)
    except OSError:
        return 0


def restrict(
    *,
    writable: Iterable[Path],
    readable: Iterable[Path] | None = None,
    listable: Iterable[Path] = (),
    ports: Iterable[int] | None = None,
) -> None:
    """Give up all writing but below ``writable``; None leaves reading, or TCP, as it is.

    What is writable is readable too; of what is ``listable``, and of all folders below it, only the
    names are. ``ports`` are those that TCP may connect to, at any address; none may be listened on.
    Signals to processes outside are given up where the kernel can. Raises OSError: then nothing is
    given up, or a path is not there.
    """
    files = _WRITE if readable is None else _WRITE | _READ
    network = 0 if ports is None else _BIND_TCP | _CONNECT_TCP
    scope = 0
    if abi() >= ABI_SIGNALS:
        scope = _SIGNAL if ports is None else _SIGNAL | _ABSTRACT_SOCKET
    attributes = ctypes.create_string_buffer(struct.pack("=QQQ", files, network, scope), 24)
    ruleset = _call(_CREATE_RULESET, attributes, 24, 0)
    try:
        for path in writable:
            _allow(ruleset, path, files)
        for path in readable or ():
            _allow(ruleset, path, _READ)
        for path in listable if readable is not None else ():
            _allow(ruleset, path, _READ_DIR)
        for port in ports or ():
            rule = ctypes.create_string_buffer(struct.pack("=QQ", _CONNECT_TCP, port), 16)
            _call(_ADD_RULE, ruleset, _NET_PORT, rule, 0)
        # Without it a program with the set-user-id bit could step out again.
        prctl.forbid_new_privileges()
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _OF_A_FILE
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, fd), 12)
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(fd)


@functools.cache
def _syscall() -> Callable[..., int]:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    return function


def _call(number: int, *arguments: int | ctypes.Array[ctypes.c_char] | None) -> int:
    # The kernel reads whole registers, so a number is passed as a long.
    passed = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result = _syscall()(ctypes.c_long(number), *passed)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
