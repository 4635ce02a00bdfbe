"""One life in a fresh interpreter with nothing hooked: performs the run that a file names."""

import sys
from pathlib import Path

import msgspec
import trio

from actors.opening import open_run
from actors.wire import Start


async def perform(start: Start) -> None:
    async with open_run(start) as run:
        await run.perform()


if __name__ == "__main__":
    trio.run(perform, msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Start))
