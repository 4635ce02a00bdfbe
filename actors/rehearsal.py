"""The life of an actor, performed in the zygote before it forks.

The interpreter rewrites code as it runs it, remembers where it found what, and loads modules when
they are first needed. What is done here once is shared by every actor, in time and in memory.
"""

import socket
import tempfile
from pathlib import Path

import trio

from actors import actor
from actors.money import Prices
from actors.spec import ProviderSpec, RunSpec, ToolsSpec
from actors.testing.provider import ProviderSettings, serve
from actors.wire import Ended, Hello, Start, Stop, Traced, encode, from_actor

SECONDS_MAX = 5.0
STOPPED, *WHOLE = "stopped", "first", "second", "third", "fourth"
"""The runs of a rehearsal; one is stopped in its first tool."""
BEGINNINGS = 12
"""The interpreter specializes a function after its eighth call."""
FILE, TEXT = "errors.log", "worker 7 timed out after 30000 ms"


def rehearse() -> list[str]:
    """Perform runs against a scripted provider in this process, in a folder of its own.

    Nothing of it is left but warm code: no thread, no file, no open descriptor. What it returns is
    how the runs ended, of those that this machine has loopback and room for.
    """
    endings: list[str] = []
    try:
        with tempfile.TemporaryDirectory(prefix="exeunt-") as name:
            folder = Path(name)
            for part in ("workspace", STOPPED, *WHOLE):
                (folder / part).mkdir()
            (folder / "workspace" / FILE).write_text(TEXT)
            trio.run(_rehearse, folder, endings)
    except* (OSError, UnicodeError, trio.TooSlowError):
        pass  # Such a machine may still reach its provider; its actors start cold.
    # What every actor does first comes last: caches with little room forget the rest.
    for _ in range(BEGINNINGS):
        ours, theirs = socket.socketpair()
        ours.close()
        actor.main(theirs.detach())
    return endings


async def _rehearse(folder: Path, endings: list[str]) -> None:
    with trio.fail_after(SECONDS_MAX):
        async with trio.open_nursery() as nursery:
            base_url: str = await nursery.start(serve, ProviderSettings())
            endings.append(await _act(_start(folder / STOPPED, "slow", base_url), stop=True))
            for name in WHOLE:
                start = _start(folder / name, "plan", base_url, stream=name != WHOLE[0])
                endings.append(await _act(start))
            nursery.cancel_scope.cancel()


async def _act(start: Start, stop: bool = False) -> str:
    """Be actor and supervisor; with ``stop`` the run is stopped as soon as a tool has begun.

    Returns how the run ended. Raises OSError when it has no ending.
    """
    ours, theirs = socket.socketpair()
    async with (
        trio.SocketStream(trio.socket.from_stdlib_socket(ours)) as channel,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(actor.act, theirs.detach())
        await channel.send_all(encode(start))
        decoder = from_actor()
        async for data in channel:
            for frame in decoder.feed(bytes(data)):
                match frame:
                    case Traced(line) if stop and b'"tool_start"' in line:
                        await channel.send_all(encode(Stop("rehearsed", "rehearsal")))
                    case Hello() | Traced():
                        pass
                    case Ended(status):
                        await channel.aclose()
                        return status
                    case _:
                        raise OSError(f"no rehearsal: {frame}")
    raise OSError("no rehearsal: the actor said nothing more")


def _start(run_dir: Path, script: str, base_url: str, stream: bool = True) -> Start:
    names = ("list_files", "read_file", "scan_archive")
    spec = RunSpec(
        agent="rehearsal",
        task="Which file mentions a timeout?",
        system="",
        provider=ProviderSpec(model=script, stream=stream),
        prices=Prices(1, 1, 1),
        tools=ToolsSpec(names=names, workspace=str(run_dir.parent / "workspace")),
        # Waiting for the disk takes a thread, and a thread would not survive the fork.
        durability="process",
    )
    return Start(
        run_id=run_dir.name,
        root_id=run_dir.name,
        run_dir=str(run_dir),
        spec=spec,
        base_url=base_url,
    )
