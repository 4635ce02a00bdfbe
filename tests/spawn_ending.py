"""One process to its end: ``python -P spawn_ending.py KIND ROLE``; prints pids and the swept."""

import json
import os
import sys

import trio

from supervisor.spawner import open_spawner


async def main(kind: str, role: str) -> None:
    log_fd = os.open(os.devnull, os.O_WRONLY)
    async with open_spawner(kind, preload=["spawn_mains"]) as spawner:
        process = await spawner.spawn(role, "ending", log_fd)
        left = json.loads(await process.channel.receive_some(1000))
        await process.channel.aclose()
        print(json.dumps([left, (await process.wait()).swept]), flush=True)


trio.run(main, sys.argv[1], sys.argv[2])
