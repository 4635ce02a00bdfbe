"""A supervisor to be killed: ``python -P spawn_supervisor.py KIND ROLE``; it prints pids."""

import json
import os
import sys

import trio

from supervisor.spawner import open_spawner


async def main(kind: str, role: str) -> None:
    log_fd = os.open(os.devnull, os.O_WRONLY)
    async with open_spawner(kind, preload=["spawn_mains"]) as spawner:
        process = await spawner.spawn(role, "orphan", log_fd)
        tools = json.loads(await process.channel.receive_some(1000))
        print(json.dumps([process.pid, *tools]), flush=True)
        await trio.sleep_forever()


trio.run(main, sys.argv[1], sys.argv[2])
