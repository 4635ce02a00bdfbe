"""Loads the user's own code in a process made for that, and says what is wrong with it.

It does what an actor does before it performs a run, in the same confinement. Whatever the code does
to its process meanwhile, no run and no command is harmed by it.
"""

import contextlib
import signal
import socket
import sys
from collections.abc import Iterator

import msgspec
import trio

from actors import prctl
from actors.catalogue import Catalogue, CatalogueError, tools_of
from actors.children import child_tools
from actors.confinement import ConfinementError, confine
from actors.stop_condition import load_condition
from actors.tool_errors import ArgumentError
from actors.user_module import ModuleError
from actors.wire import Check, Checked, Loading, Place, Start, encode, to_check

ASKED_SECONDS_MAX = 30.0
_READ_SIZE = 64 * 1024


def main(fd: int) -> int:
    """Check what the first frame on ``fd`` names; the exit status is 0 whatever was found."""
    # What is loaded may hang and would then never see that nobody waits for it any more.
    prctl.die_with_parent(signal.SIGKILL)
    # Both go to the same place, and standard error alone is not kept back until the end.
    sys.stdout = sys.stderr
    # In a loop, as in an actor: what cannot be loaded in one is found here.
    return trio.run(_main, fd)


async def _main(fd: int) -> int:
    decoder, asked = to_check(), list[Check]()
    async with trio.SocketStream(
        trio.socket.from_stdlib_socket(socket.socket(fileno=fd))
    ) as stream:
        # Whoever is gone, or says nothing, wants no answer.
        with contextlib.suppress(trio.BrokenResourceError):
            with trio.move_on_after(ASKED_SECONDS_MAX):
                while not asked and (data := await stream.receive_some(_READ_SIZE)):
                    asked = decoder.feed(data)
            for frame in _look(asked[0]) if asked else ():
                await stream.send_all(encode(frame))
    return 0


def _look(asked: Check) -> Iterator[Loading | Checked]:
    """Load everything, and say before each step what it is."""
    place = Place(asked.specs[0].agent, "confinement")
    try:
        confine(_start(asked))
        for spec in asked.specs:
            path = spec.tools.search_path
            for module in spec.tools.modules:
                yield Loading(place := Place(spec.agent, "module", module))
                if not tools_of(module, path):
                    words = f"the module {module} has no tools; mark functions in it with @tool"
                    raise ModuleError(words)
            for condition in spec.limits.stop_when:
                yield Loading(place := Place(spec.agent, "stop_when", condition))
                load_condition(condition, path)
            place = Place(spec.agent, "tool")
            catalogue = Catalogue.load(spec.tools, child_tools(spec.tools.agents))
            if tool := catalogue.get(asked.tool):
                place = Place(spec.agent, "arguments", asked.tool)
                tool.parse(asked.arguments)
    except CatalogueError as error:
        yield Checked(Place(place.agent, error.part, error.name), str(error))
    except (ConfinementError, ModuleError, ArgumentError) as error:
        yield Checked(place, str(error))
    else:
        yield Checked(place)


def _start(asked: Check) -> Start:
    """A run to be confined like: it has no provider to reach, no notes and no children's journals.

    That is less than any of its agents has, whose modules are loaded here together.
    """
    spec = asked.specs[0]
    conditions = tuple(name for one in asked.specs for name in one.limits.stop_when)
    tools = msgspec.structs.replace(spec.tools, names=(), agents=())
    limits = msgspec.structs.replace(spec.limits, stop_when=conditions)
    return Start(
        run_id="check",
        root_id="check",
        run_dir=asked.folder,
        spec=msgspec.structs.replace(spec, tools=tools, limits=limits),
        base_url="",
    )
