"""Writes the book that configs/chapters.toml has read into the folder that is named."""

import sys
from pathlib import Path

from actors.testing.chapters import CHAPTERS, write_chapters


def main() -> int:
    """Make the folder and write the chapters into it."""
    if len(sys.argv) != 2:
        print("usage: python examples/write_chapters.py FOLDER", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    write_chapters(folder)
    print(f"{CHAPTERS} chapters are in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
