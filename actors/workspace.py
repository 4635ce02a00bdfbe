"""The folder that file tools may touch: every path is resolved beneath one open directory.

Nothing is checked first and opened later, because whoever shares the folder could swap a directory
for a link in between. Where the kernel has openat2 it refuses by itself what leads out; elsewhere
each component is opened without following links, which also refuses links that stay inside.
"""

import ctypes
import errno
import functools
import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import msgspec

from actors.text import clean
from actors.tool_errors import PermanentError, ToolError

MAX_PATH_BYTES = 4096
MAX_ENTRIES = 1000
LOOK = "Call list_files to see what is there."

_SYS_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08
_RACE_TRIES = 16
# With O_NONBLOCK a FIFO without a writer opens at once and is then refused by its type.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Entry(msgspec.Struct, frozen=True):
    """One name in the workspace: its path from the root, cleaned for showing, and its bytes."""

    path: str
    size: int
    mode: int

    @property
    def is_folder(self) -> bool:
        """Whether it is a directory."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link, wherever that leads."""
        return stat.S_ISLNK(self.mode)


class Workspace:
    """An open folder; paths are relative to it and nothing outside it can be named.

    Use it as a context manager, or ``close`` it. Raises OSError when the root cannot be opened.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self._fd = os.open(self.root, _FOLDER)
        self._open = _open_by_kernel if kernel_resolves(self._fd) else _open_by_walk

    def close(self) -> None:
        """Close the folder; closing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def open_read(self, path: str) -> BinaryIO:
        """Open a regular file for reading bytes.

        Raises:
            ToolError: the path leads out, is missing, or is no regular file, in words.
            PermanentError: this user may not read it.
        """
        parts = _parts(path)
        try:
            fd = self._open(self._fd, parts, _READ)
        except OSError as error:
            raise _refusal(error, path) from error
        try:
            mode = os.fstat(fd).st_mode
            if not stat.S_ISREG(mode):
                what = "a folder" if stat.S_ISDIR(mode) else "no regular file"
                raise ToolError(f"{shown(path)} is {what}, so it cannot be read. {LOOK}")
            return os.fdopen(fd, "rb")
        except BaseException:
            os.close(fd)
            raise

    def unlink(self, path: str) -> None:
        """Remove one name; of a link the link itself, never what it leads to.

        Raises:
            ToolError: the path leads out, is missing, or is a folder, in words.
            PermanentError: this user may not remove it.
        """
        parts = _parts(path)
        if not parts:
            raise ToolError(f"The workspace itself cannot be deleted. {LOOK}")
        try:
            folder = self._open(self._fd, parts[:-1], _FOLDER)
            try:
                os.unlink(parts[-1], dir_fd=folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise _refusal(error, path) from error

    def entries(self, path: str = ".", limit: int = MAX_ENTRIES) -> tuple[list[Entry], bool]:
        """List a folder and all below it, sorted, links not followed; True when there is more.

        Raises:
            ToolError: the path leads out, is missing, or is no folder, in words.
            PermanentError: this user may not list it.
        """
        parts = _parts(path)
        try:
            os.close(self._open(self._fd, parts, _FOLDER))
        except OSError as error:
            raise _refusal(error, path) from error
        found = list(islice(self._below(parts), limit + 1))
        return sorted(found[:limit], key=lambda entry: entry.path), len(found) > limit

    def _below(self, start: list[str]) -> Iterator[Entry]:
        """Yield what is below a folder; a part that vanishes or may not be read is passed over."""
        waiting = [start]
        while waiting:
            parts = waiting.pop()
            try:
                folder = self._open(self._fd, parts, _FOLDER)
            except OSError:
                continue
            try:
                with os.scandir(folder) as items:
                    for item in items:
                        try:
                            info = item.stat(follow_symlinks=False)
                        except OSError:
                            continue
                        below = [*parts, item.name]
                        yield Entry(shown("/".join(below)), info.st_size, info.st_mode)
                        if stat.S_ISDIR(info.st_mode):
                            waiting.append(below)
            finally:
                os.close(folder)


def shown(path: str) -> str:
    """A path as one short line: odd bytes and control characters become U+FFFD."""
    line = "".join(char if char.isprintable() else "\ufffd" for char in clean(path))
    return line if len(line) <= 200 else line[:199] + "…"


def _parts(path: str) -> list[str]:
    """Split a path that the model gave; raises ToolError for what can never be in the workspace."""
    path = clean(path)
    if not path:
        raise ToolError(f"The path is empty. {LOOK}")
    if len(path.encode()) > MAX_PATH_BYTES:
        raise ToolError(f"The path is longer than {MAX_PATH_BYTES} bytes. {LOOK}")
    if "\0" in path:
        raise ToolError(f"The path holds a NUL character. {LOOK}")
    if path.startswith(("/", "~")):
        raise ToolError(f"{shown(path)} is not relative to the workspace. {LOOK}")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ToolError(f"{shown(path)} leads upwards, which is not allowed. {LOOK}")
    return parts


def _refusal(error: OSError, path: str) -> ToolError:
    """The words for an error of the system; a denied permission is permanent."""
    name = shown(path)
    match error.errno:
        case errno.EACCES | errno.EPERM:
            return PermanentError(f"permission denied: {name}")
        case errno.ENOENT | errno.ENOTDIR:
            return ToolError(f"There is no {name}. {LOOK}")
        case errno.EXDEV | errno.ELOOP | errno.EAGAIN:
            return ToolError(f"{name} is a link that is not followed. {LOOK}")
        case errno.EISDIR:
            return ToolError(f"{name} is a folder, and only files can be deleted. {LOOK}")
        case errno.ENXIO:
            return ToolError(f"{name} is no regular file, so it cannot be read. {LOOK}")
        case _:
            return ToolError(f"{name}: {error.strerror}. {LOOK}")


class _OpenHow(ctypes.Structure):
    """The argument of openat2, as in linux/openat2.h."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def kernel_resolves(root: int) -> bool:
    """Whether openat2 is there and allowed (it is refused by some older sandboxes)."""
    try:
        os.close(_open_by_kernel(root, [], _FOLDER))
    except (OSError, AttributeError):
        return False
    return True


def _open_by_kernel(root: int, parts: list[str], flags: int) -> int:
    """Open beneath ``root`` by openat2, which follows links only while they stay beneath it."""
    path = os.fsencode("/".join(parts) or ".")
    how = _OpenHow(flags, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    for _ in range(_RACE_TRIES):
        size = ctypes.c_size_t(ctypes.sizeof(how))
        fd = _libc().syscall(
            ctypes.c_long(_SYS_OPENAT2), ctypes.c_int(root), path, ctypes.byref(how), size
        )
        if fd >= 0:
            return int(fd)
        code = ctypes.get_errno()
        # A rename somewhere may have raced with a link's "..": the kernel asks to try again.
        if code not in (errno.EAGAIN, errno.EINTR):
            raise OSError(code, os.strerror(code))
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def _open_by_walk(root: int, parts: list[str], flags: int) -> int:
    """Open beneath ``root`` one component at a time, following no link at all."""
    if not parts:
        return os.open(".", flags, dir_fd=root)
    folder = root
    try:
        for part in parts[:-1]:
            below = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            if folder != root:
                os.close(folder)
            folder = below
        return os.open(parts[-1], flags | os.O_NOFOLLOW, dir_fd=folder)
    finally:
        if folder != root:
            os.close(folder)
