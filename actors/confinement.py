"""Confines an actor before any code of the user's runs in it: resource limits, then Landlock.

It fails closed. A run whose sandbox cannot be had, or does not hold when it is tried, does not run.
"""

import errno
import os
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

from actors import landlock, resources
from actors.code_files import code_files
from actors.notes import FOLDER, NOTE_TOOLS
from actors.spec import RunSpec, Sandbox
from actors.wire import Start

_PROBE = "sandbox-probe"
_SYSTEM = (
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr", "/etc", "/etc/resolv.conf", "/proc"),
    *("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"),
)
"""What programs need to run at all, and what may always be read."""


class ConfinementError(Exception):
    """The limits or the sandbox of a run cannot be had, in words; the operator must act."""


def confine(start: Start) -> None:
    """Limit this process, and all it will start, as the run's specification says.

    To be called once the run's files are open, as its directory is not writable from then on, and
    before there is a second thread. Raises ConfinementError.
    """
    spec = start.spec
    try:
        resources.limit(spec.resources)
    except (OSError, ValueError) as error:
        raise ConfinementError(f"the resource limits cannot be set: {error}") from error
    if spec.sandbox is None:
        return
    if words := missing(spec.sandbox):
        raise ConfinementError(words)
    _refuse_open_cage(start)
    ports = None if spec.sandbox.network else _ports(start.base_url)
    writable = [Path(os.devnull)]
    if spec.tools.workspace is not None:
        writable.append(Path(spec.tools.workspace))
    if NOTE_TOOLS.intersection(spec.tools.names):
        writable.append(Path(start.run_dir) / FOLDER)
    try:
        landlock.restrict(
            writable=writable,
            readable=_readable(start, spec.sandbox),
            listable=_listable(spec),
            ports=ports,
        )
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        raise ConfinementError(f"the sandbox cannot be set up: {name}{error.strerror}") from error
    _prove(Path(start.run_dir), ports)


def missing(sandbox: Sandbox) -> str:
    """What this machine lacks for a sandbox, in words; empty when it lacks nothing."""
    needed, since = (
        (landlock.ABI_FILES, "6.2") if sandbox.network else (landlock.ABI_NETWORK, "6.7")
    )
    found = landlock.abi()
    if found >= needed:
        return ""
    here = f"has version {found}" if found else "has none"
    return (
        f"the sandbox needs Landlock version {needed} (Linux {since}), and this machine {here}; "
        "run it on another, or set landlock = false"
    )


def _refuse_open_cage(start: Start) -> None:
    """Refuse what would make the sandbox a promise that it does not keep."""
    # Threads that are there already would stay free.
    if (threads := sum(1 for _ in Path("/proc/self/task").iterdir())) != 1:
        raise ConfinementError(f"the sandbox is not set up, as {threads} threads run already")
    workspace = start.spec.tools.workspace
    if workspace and Path(start.run_dir).resolve().is_relative_to(Path(workspace).resolve()):
        raise ConfinementError(
            f"the workspace {workspace} holds the state directory, so that a sandboxed tool could "
            "rewrite its own run; name another with --state-dir"
        )


def _readable(start: Start, sandbox: Sandbox) -> list[Path] | None:
    """What may be read if not everything: what the run names, and what it needs to run at all."""
    if sandbox.read is None:
        return None
    needed = [*_SYSTEM, *sys.path, sys.prefix, sys.base_prefix, *code_files(start.spec)]
    if start.spec.tools.agents:
        # A parent reads its children's journals.
        needed.append(str(Path(start.run_dir).parent))
    return [*map(Path, sandbox.read), *(Path(one) for one in needed if os.access(one, os.F_OK))]


def _listable(spec: RunSpec) -> list[Path]:
    """Where an import looks for a run's own modules: in the listings of these folders."""
    folders = map(Path, spec.tools.search_path) if code_files(spec) else ()
    return [folder for folder in folders if folder.is_dir()]


def _ports(base_url: str) -> tuple[int, ...]:
    """Where the provider listens; nowhere, for a process that has none."""
    if not base_url:
        return ()
    parts = urlsplit(base_url)
    return (parts.port or (443 if parts.scheme == "https" else 80),)


def _prove(run_dir: Path, ports: tuple[int, ...] | None) -> None:
    """Try what is forbidden now; a kernel that lets it through is not relied on."""
    probe = run_dir / _PROBE
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        if error.errno != errno.EACCES:
            raise ConfinementError(f"the sandbox cannot be tried: {error.strerror}") from error
    else:
        probe.unlink()
        raise ConfinementError("the sandbox does not hold: a write outside of it succeeded")
    if ports is None:
        return
    with socket.socket() as connection:
        forbidden = next(port for port in (1, 2) if port not in ports)
        if connection.connect_ex(("127.0.0.1", forbidden)) != errno.EACCES:
            raise ConfinementError("the sandbox does not hold: a connection was not forbidden")
