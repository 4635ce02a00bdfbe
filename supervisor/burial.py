"""The end of a process that has done its work, or shall do none any more."""

import logging

import trio

from supervisor.spawned import Exit, Process

EXIT_SECONDS_MAX = 5.0
"""How long a process may take to leave once its channel is closed."""
KILLED_SECONDS_MAX = 30.0
"""How long a killed one may take to die and be swept; longer than the burial of its zygote."""

_log = logging.getLogger("exeunt.burial")


async def bury(process: Process) -> Exit:
    """Close the channel, the actor's leave to go, and wait until it and its tools are gone.

    Shielded, and over within ``EXIT_SECONDS_MAX`` and ``KILLED_SECONDS_MAX``.
    """
    with trio.CancelScope(shield=True):
        await trio.aclose_forcefully(process.channel)
        with trio.move_on_after(EXIT_SECONDS_MAX):
            return await process.wait()
        process.kill()
        with trio.move_on_after(KILLED_SECONDS_MAX):
            return await process.wait()
    # Not even SIGKILL ends what hangs in the kernel. Its spawner gives up on it when it is closed.
    _log.error("%r was killed, and is not gone after %g s.", process, KILLED_SECONDS_MAX)
    return Exit()
