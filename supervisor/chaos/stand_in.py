"""A working directory for one round: what a tool writes by a relative path shall not be real."""

from pathlib import Path


def stand_in(here: Path, folder: Path, root: Path | None, copy: Path) -> Path:
    """Make ``folder`` look like the directory ``here``, with ``copy`` in place of the workspace.

    All else in it is linked to, so it can be read, and a file that is new there is the round's own.
    Within the workspace ``root`` its copy needs no such thing. Returns where to work; raises
    OSError.
    """
    if root and here.is_relative_to(root):
        return copy / here.relative_to(root)
    way = root.relative_to(here).parts if root and root.is_relative_to(here) else ()
    folder.mkdir()
    for depth, part in enumerate((*way, "")):
        there, made = here.joinpath(*way[:depth]), folder.joinpath(*way[:depth])
        for entry in there.iterdir():
            if entry.name != part:
                (made / entry.name).symlink_to(entry)
        if depth == len(way) - 1:
            (made / part).symlink_to(copy)
            break
        if part:
            (made / part).mkdir()
    return folder
