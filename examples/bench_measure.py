"""How the benches measure and print: rows, medians, forked processes, a provider of its own."""

import gc
import json
import os
import signal
import statistics
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from actors.testing.provider import ProviderSettings, serve

ROUNDS = 5


def row(what: str, figure: str, goal: str = "") -> None:
    """Print one line of the table."""
    print(f"{what:<62}  {figure:<34}  {goal}", flush=True)


def median(values: list[float]) -> float:
    """The median, by which every figure here is quoted."""
    return statistics.median(values)


def in_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do something in a forked process and return what it measured."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reader)
            # As in an actor, whose zygote has frozen what they share.
            gc.freeze()
            os.write(writer, json.dumps(work()).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(data)


@contextmanager
def provider(**settings: Any) -> Generator[str]:
    """A scripted provider in a process of its own; yields its base URL."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                url: str = await nursery.start(serve, ProviderSettings(**settings))
                os.write(writer, url.encode())

        os.close(reader)
        trio.run(main)
    os.close(writer)
    url = os.read(reader, 1000).decode()
    os.close(reader)
    try:
        yield url
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def memory_kib(pid: int) -> int:
    """Private memory of a process, in KiB."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(x.split()[1]) for x in text if x.startswith(("Private_Clean", "Private_Dirty")))
