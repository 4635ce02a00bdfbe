"""The user's own code is loaded before a run needs it, in a process of its own, and errors told.

An error names the configuration's file and key. A module that hangs, ends its process or prints
does so to nobody: what it prints is shown in the log when there is something wrong with it.
"""

import logging
import os
import signal
from pathlib import Path

import msgspec
import trio

from actors.spec import RunSpec
from actors.tool_errors import ArgumentError
from actors.wire import Check, Checked, FrameError, Loading, Place, encode, from_check
from supervisor.burial import bury
from supervisor.config import Config
from supervisor.spawned import Exit, SpawnError
from supervisor.spawner import Spawner, ZygoteDied
from supervisor.terminal import visible

LOAD_SECONDS = 60.0
"""How long one module may take; large libraries take many seconds when the disk is cold."""
START_SECONDS_MAX = 30.0
"""How long the process may take before it begins with the first."""
PRINTED_MAX = 4000
LINES_MAX = 20
"""Bytes and lines that are shown of what was printed, the last ones."""
PRINTED_SECONDS = 1.0
"""How long to read what was printed once nobody is left to print; a process that got away might."""
_READ_SIZE = 64 * 1024
_LOADED = ("module", "stop_when")

_log = logging.getLogger("exeunt.check")


async def check_code(
    spawner: Spawner, config: Config, folder: Path, seconds: float = LOAD_SECONDS
) -> None:
    """Load the modules that the agents in use name; without such, start no process.

    ``folder`` exists and no sandbox may write there; ``seconds`` are for each module. Raises
    ConfigError, SpawnError.
    """
    alike: dict[object, list[RunSpec]] = {}
    for agent in config.agents_in_use():
        spec = _spec_of(config, agent)
        if spec.tools.modules or spec.limits.stop_when:
            alike.setdefault((spec.resources, spec.sandbox), []).append(spec)
    # A process can be confined only once.
    for specs in alike.values():
        found = await _ask(spawner, Check(specs=tuple(specs), folder=str(folder)), seconds)
        if found.words:
            raise config.error(_key(config, found.place), found.words)


async def check_arguments(
    spawner: Spawner, config: Config, folder: Path, agent: str, tool: str, arguments: str
) -> None:
    """Hold JSON against the schema of an agent's tool; one that it does not have fits nothing.

    Raises ArgumentError, and as ``check_code`` does.
    """
    spec = config.run_spec(agent, task="")
    check = Check(specs=(spec,), folder=str(folder), tool=tool, arguments=arguments)
    found = await _ask(spawner, check, LOAD_SECONDS)
    if found.words and found.place.part == "arguments":
        raise ArgumentError(found.words)
    if found.words:
        raise config.error(_key(config, found.place), found.words)


def _spec_of(config: Config, agent: str) -> RunSpec:
    """A run that could name every tool with an agent behind it, as it could any of a module."""
    spec = config.run_spec(agent, task="")
    tools = msgspec.structs.replace(spec.tools, agents=config.agent_tools())
    return msgspec.structs.replace(spec, tools=tools)


def _key(config: Config, place: Place) -> str:
    agent = f"agents.{place.agent}"
    match place.part:
        case "module":
            names = [name for name, one in config.tools.items() if one.module == place.name]
            return f"tools.{names[0]}.module"
        case "child":
            return f"tools.{place.name}"
        case "tool":
            return f"{agent}.tools[{config.agents[place.agent].tools.index(place.name)}]"
        case "stop_when":
            given = config.agents[place.agent].limits.stop_when
            return f"{agent}.limits.stop_when[{given.index(place.name)}]"
        case "confinement" | "arguments":
            return agent


async def _ask(spawner: Spawner, check: Check, seconds: float) -> Checked:
    """What a process that loads this says, or what became of it. Raises SpawnError."""
    printed = bytearray()
    last, late, exit_ = await _try_twice(spawner, check, seconds, printed)
    if last is None:
        raise SpawnError(f"the process that loads the tools {exit_.words}, and nobody knows where")
    found = last if isinstance(last, Checked) else _lost(last.place, late, exit_.words, seconds)
    # Where the code was loaded it prints the same again, to the log of each actor.
    level = logging.WARNING if found.words and found.place.part in _LOADED else logging.INFO
    for line in printed.decode(errors="replace").splitlines()[-LINES_MAX:]:
        _log.log(level, "printed while modules were loaded: %s", visible(line))
    return found


async def _try_twice(
    spawner: Spawner, check: Check, seconds: float, printed: bytearray
) -> tuple[Loading | Checked | None, bool, Exit]:
    """A process that was killed may be no fault of the code: its zygote may have died."""
    try:
        last, late, exit_ = await _try(spawner, check, seconds, printed)
        if isinstance(last, Checked) or late or exit_.signal != signal.SIGKILL:
            return last, late, exit_
    except ZygoteDied:
        pass
    printed.clear()
    return await _try(spawner, check, seconds, printed)


async def _try(
    spawner: Spawner, check: Check, seconds: float, printed: bytearray
) -> tuple[Loading | Checked | None, bool, Exit]:
    """The last word of a process, whether more was waited for in vain, and its end."""
    read_fd, write_fd = os.pipe()
    async with trio.lowlevel.FdStream(read_fd) as output:
        try:
            process = await spawner.spawn("actors.code_check:main", "exeunt-check", write_fd)
        finally:
            os.close(write_fd)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_keep, output, printed)
            try:
                last, late = await _hear(process.channel, check, seconds)
                if late:
                    process.kill()
            except trio.Cancelled:
                process.kill()
                raise
            finally:
                exit_ = await bury(process)
            nursery.cancel_scope.deadline = trio.current_time() + PRINTED_SECONDS
    return last, late, exit_


async def _keep(output: trio.lowlevel.FdStream, printed: bytearray) -> None:
    async for part in output:
        printed += part
        del printed[:-PRINTED_MAX]


async def _hear(
    channel: trio.SocketStream, check: Check, seconds: float
) -> tuple[Loading | Checked | None, bool]:
    """The process's last word, and whether the next one was waited for in vain."""
    decoder = from_check()
    last: Loading | Checked | None = None
    with trio.move_on_after(START_SECONDS_MAX) as limit:
        try:
            await channel.send_all(encode(check))
            while not isinstance(last, Checked):
                data = await channel.receive_some(_READ_SIZE)
                if not data:
                    break
                if frames := decoder.feed(data):
                    last = frames[-1]
                    limit.deadline = trio.current_time() + seconds
        except (trio.BrokenResourceError, FrameError):
            pass  # It is dying, or the user's code wrote where it has no business.
    return last, limit.cancelled_caught


def _lost(place: Place, late: bool, ending: str, seconds: float) -> Checked:
    module = place.name.partition(":")[0]
    if late:
        words = f"the module {module} was not loaded within {seconds:g} s; let it wait for nothing"
    else:
        words = f"loading the module {module} ended its process ({ending}); take that out of it"
    return Checked(place, words)
