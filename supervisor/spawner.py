"""How the supervisor gets a process: one interface, two ways.

``zygote`` forks from a warm process and is the default on Linux; ``subprocess`` starts a fresh
interpreter and works everywhere. ``EXEUNT_SPAWN`` chooses, and where a zygote cannot work the
plain way takes its place with a sentence in the log.
"""

import errno
import logging
import os
import resource
import sys
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import trio

from actors import custodian, prctl
from actors.birth import main_path
from supervisor.spawned import Exit as Exit
from supervisor.spawned import Process as Process
from supervisor.spawned import SpawnError as SpawnError
from supervisor.subprocess_spawner import SubprocessSpawner
from supervisor.zygote_process import StartZygote, start_zygote
from supervisor.zygote_spawner import ZygoteDied as ZygoteDied
from supervisor.zygote_spawner import ZygoteSpawner, ZygoteUnfit

PRELOAD = (
    "actors.actor",
    "actors.code_check",
    "actors.testing.provider",
    "actors.tokens:encoding",
    "actors.warm:prepare",
    "actors.rehearsal:rehearse",
)
"""What a zygote imports (``module``) or calls (``module:function``) before it forks anything."""

IN_FLIGHT_MAX = 8
"""Spawns under way at once: the kernel bounds the descriptors on their way to a process."""

SPAWN_SECONDS = 30.0
"""Longest time one spawn takes, a new zygote's warm-up included."""

CLOSE_SECONDS = 10.0

_log = logging.getLogger("exeunt.spawner")


class Spawner(Protocol):
    """Makes processes that are found dead, reaped and swept, whatever becomes of them."""

    async def spawn(
        self, role: str, name: str, log_fd: int, env: Mapping[str, str] | None = None
    ) -> Process:
        """Make the process that runs a role's main, with its output in ``log_fd``.

        ``name`` is shown by ``ps``, at most 15 bytes of it; ``env`` adds to the environment.
        ``log_fd`` stays the caller's. Waits for one of ``IN_FLIGHT_MAX`` places, then takes at most
        ``SPAWN_SECONDS``.

        Raises:
            SpawnError: no process was made, in words.
            ValueError: there is no such role.
        """
        ...


class _Way(Protocol):
    async def spawn(self, role: str, name: str, log_fd: int, env: Mapping[str, str]) -> Process: ...

    async def close(self) -> None: ...

    def abort(self) -> None: ...


class _BoundedSpawner:
    """The limits and the words that both ways share."""

    def __init__(self, way: _Way) -> None:
        self._way = way
        self._places = trio.Semaphore(IN_FLIGHT_MAX)

    async def spawn(
        self, role: str, name: str, log_fd: int, env: Mapping[str, str] | None = None
    ) -> Process:
        main_path(role)
        async with self._places:
            try:
                with trio.fail_after(SPAWN_SECONDS):
                    return await self._way.spawn(role, name, log_fd, env or {})
            except trio.TooSlowError as error:
                raise SpawnError(f"no process was made within {SPAWN_SECONDS:.0f} s") from error
            except OSError as error:
                raise SpawnError(_words(error)) from error


@asynccontextmanager
async def open_spawner(
    kind: str | None = None,
    *,
    preload: Sequence[str] = PRELOAD,
    drop_env: Collection[str] = (),
    start: StartZygote = start_zygote,
) -> AsyncGenerator[Spawner]:
    """Make this process fit to supervise and open what spawns for it; at exit all are killed.

    ``kind`` is ``zygote`` or ``subprocess``; None asks ``EXEUNT_SPAWN``, then the system. No
    process sees the environment variables that ``drop_env`` names. ``start`` makes the zygotes.

    Raises:
        SpawnError: a preload failed, or the system has no room for a zygote.
        ValueError: there is no such kind.
    """
    kind = kind or os.environ.get("EXEUNT_SPAWN") or _default_kind()
    if kind not in ("zygote", "subprocess"):
        raise ValueError(f"unknown kind of spawner {kind!r}; known: zygote, subprocess")
    env = {name: value for name, value in os.environ.items() if name not in drop_env}
    env[custodian.MARKER] = custodian.BLANK
    prctl.adopt_orphans()
    # A key stands in our environment, where the same user's other processes could read it.
    prctl.forbid_dumps()
    _raise_file_limit()
    only: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            way = await _open_way(kind, nursery, preload, env, start)
            try:
                yield _BoundedSpawner(way)
            finally:
                deadline = trio.current_time() + CLOSE_SECONDS
                with trio.CancelScope(shield=True, deadline=deadline) as limit:
                    await way.close()
                if limit.cancelled_caught:
                    way.abort()
    except BaseExceptionGroup as group:
        # The nursery is ours and unknown to the caller: what came from the body leaves as it came.
        only = group.exceptions[0] if len(group.exceptions) == 1 else group
    if only is not None:
        raise only


def _default_kind() -> str:
    return "zygote" if sys.platform == "linux" else "subprocess"


async def _open_way(
    kind: str,
    nursery: trio.Nursery,
    preload: Sequence[str],
    env: Mapping[str, str],
    start: StartZygote,
) -> _Way:
    if kind == "zygote":
        spawner = ZygoteSpawner(nursery, preload, env, start)
        try:
            await spawner.living()
        except ZygoteUnfit as reason:
            _log.warning(
                "Processes start plainly, taking about a second each, for lack of a zygote: %s.",
                reason,
            )
        except OSError as error:
            raise SpawnError(_words(error)) from error
        else:
            return spawner
    return SubprocessSpawner(nursery, env)


def _raise_file_limit() -> None:
    # The usual soft limit of 1,024 is met after 508 actors.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            _log.info("The limit of open files stays at %d.", soft)


def _words(error: OSError) -> str:
    if error.errno == errno.EMFILE:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"too many open files for another process (the limit is {soft})"
    return f"no process could be made: {error.strerror or error}"
