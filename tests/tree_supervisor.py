"""A supervisor to be killed: ``python -P tree_supervisor.py FOLDER RUN_ID`` runs its config."""

import sys
from pathlib import Path

import trio

from supervisor import load_config, open_supervisor


async def main(folder: Path, run_id: str) -> None:
    async with open_supervisor(folder / "state") as supervisor:
        await supervisor.run(load_config(folder / "config.toml"), run_id)


trio.run(main, Path(sys.argv[1]), sys.argv[2])
