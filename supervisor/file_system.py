"""The kind of file system a directory is on, by the kernel's table of mounts."""

from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
DOUBTFUL = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "afs"})
"""Where a lock may be another machine's, and what was synced may be lost; FUSE too."""


def doubts_of(path: Path) -> str:
    """Why a state directory should not be here, in words; nothing where locks and syncs hold."""
    try:
        table = MOUNTS.read_text("utf-8", "surrogateescape")
    except OSError:
        return ""
    kind = kind_in(table, path.resolve())
    if kind not in DOUBTFUL and not kind.startswith("fuse"):
        return ""
    return (
        f"it is on {kind}, where locks and fsync may not hold, so two processes may write one "
        "journal and a power cut may lose what was saved; name one on a local disk with --state-dir"
    )


def kind_in(table: str, path: Path) -> str:
    """The kind of the file system that ``path`` is on, in a text of ``mountinfo``; else nothing."""
    found, depth = "", 0
    for line in table.splitlines():
        mount, _, source = line.partition(" - ")
        fields, kinds = mount.split(), source.split()
        if len(fields) < 5 or not kinds:
            continue
        at = Path(_unescaped(fields[4]))
        # What is mounted later on the same place hides what was there.
        if path.is_relative_to(at) and len(at.parts) >= depth:
            found, depth = kinds[0], len(at.parts)
    return found


def _unescaped(text: str) -> str:
    """A path of the table: the kernel writes blanks and backslashes in octal."""
    for code in (" ", "\t", "\n", "\\"):
        text = text.replace(f"\\{ord(code):03o}", code)
    return text
