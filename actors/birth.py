"""What a new process does to itself before it is an actor, and how it leaves.

Both spawners end here: the zygote's child right after the fork, the plain one right after the
exec. From here on nothing tells them apart: the channel is descriptor 3, output goes to the log,
and the process leads a session of its own.
"""

import contextlib
import gc
import importlib
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import NoReturn

from actors import custodian, prctl

CHANNEL_FD = 3
"""Where a main finds its stream socket to the supervisor."""

UNCAUGHT_STATUS = 70
"""Exit status after an exception that a main let through; the traceback is in the log."""

ROLES = {"actor": "actors.actor:main", "provider": "actors.testing.provider:main"}

_FILES_MAX = 1 << 20

Main = Callable[[int], int]


def main_path(role: str) -> str:
    """Where a role's main is, as ``module:function``; raises ValueError for an unknown role."""
    path = ROLES.get(role, role)
    if ":" not in path:
        raise ValueError(f"unknown role {role!r}; known roles: {', '.join(ROLES)}")
    return path


def find(path: str) -> Callable[..., int]:
    """Import the function that ``module:function`` names."""
    module, _, function = path.partition(":")
    return getattr(sys.modules.get(module) or importlib.import_module(module), function)


def prepare() -> None:
    """Settle what this process and all that it forks have in common.

    Whatever is done here once need not be done in each actor, where it costs memory of its own.
    """
    _default_signals()
    custodian.find_marker()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Last of the settings: afterwards /proc/self belongs to root. Whoever could look into this
    # process would see what is handed to all that it forks.
    prctl.forbid_dumps()


def live(
    role: str,
    name: str,
    channel_fd: int,
    log_fd: int,
    zygote_pid: int | None = None,
    env: Mapping[str, str] | None = None,
) -> NoReturn:
    """Become the process that a role names, run its main, and exit with what it returns.

    It, or the zygote it was forked from, has called ``prepare``. With ``zygote_pid`` it dies with
    that zygote, which sweeps its tools. Without one nobody would, so it lives on to end them itself
    when it finds its channel closed.
    """
    status: object = UNCAUGHT_STATUS
    try:
        if env:
            os.environ.update(env)
        _settle(name, channel_fd, log_fd, zygote_pid)
        status = find(main_path(role))(CHANNEL_FD)
    except SystemExit as leaving:
        status = leaving.code
    # The process's own border: above it a fork of the zygote would go on as a second zygote.
    except BaseException:
        with contextlib.suppress(OSError, ValueError):
            traceback.print_exc()
    finally:
        _leave(status)


def _settle(name: str, channel_fd: int, log_fd: int, zygote_pid: int | None) -> None:
    if zygote_pid is not None:
        prctl.die_with_parent(signal.SIGKILL)
        # The zygote may have died before the line above. Compared with its own pid, never with 1:
        # in a container its heir may have any number.
        if os.getppid() != zygote_pid:
            os._exit(0)
    if os.getsid(0) != os.getpid():
        os.setsid()
    _place_descriptors(channel_fd, log_fd)
    prctl.rename(name)
    custodian.mark()
    gc.enable()


def _default_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    # These two as a fresh interpreter has them: trio looks for the first, and a closed pipe shall
    # be an error in a task, not the end of the process.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _place_descriptors(channel_fd: int, log_fd: int) -> None:
    # The lower numbers are taken already, so no source is overwritten before its turn.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    if channel_fd != CHANNEL_FD:
        os.dup2(channel_fd, CHANNEL_FD)
    # A tool shall not inherit the channel.
    os.set_inheritable(CHANNEL_FD, False)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.closerange(CHANNEL_FD + 1, min(soft, _FILES_MAX) if soft > 0 else _FILES_MAX)


def _leave(status: object) -> NoReturn:
    """Flush and go at once: a hung worker thread must not hold the exit."""
    try:
        if status is not None and not isinstance(status, int):
            sys.stderr.write(f"{status}\n")
            status = 1
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    finally:
        os._exit(status & 0xFF if isinstance(status, int) else 0)
