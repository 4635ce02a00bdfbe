"""The scripted provider as the supervisor starts it: a process of its own, kept at one address."""

import os
import struct

import msgspec
import trio

from actors.testing.provider import ProviderSettings, Ready
from supervisor.config_sections import Provider
from supervisor.spawned import Process
from supervisor.spawner import Spawner

READY_SECONDS = 30.0
RESTARTS_MAX = 5
_LENGTH = struct.Struct("<I")


class ScriptedError(Exception):
    """The scripted provider cannot serve what the configuration asks of it."""


def settings_of(provider: Provider, search_path: tuple[str, ...]) -> ProviderSettings:
    """What a ``[provider]`` table of kind ``scripted`` asks for."""
    return ProviderSettings(
        script=provider.script or "",
        latency_ms=provider.latency_ms,
        window_tokens=provider.window_tokens,
        faults=provider.faults,
        modules=provider.scripts,
        search_path=search_path,
    )


class Scripted:
    """One scripted provider; a process of it that dies is replaced at the same port."""

    def __init__(self, spawner: Spawner, settings: ProviderSettings) -> None:
        self._spawner = spawner
        self._settings = settings

    async def serve(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; ``started`` brings the base URL. Raises ScriptedError."""
        process, base_url = await self._start()
        port = int(base_url.split(":")[2].partition("/")[0])
        self._settings = msgspec.structs.replace(self._settings, port=port)
        task_status.started(base_url)
        for _ in range(RESTARTS_MAX):
            try:
                await process.wait()
            finally:
                await trio.aclose_forcefully(process.channel)
            process, _ = await self._start()
        await process.wait()

    async def _start(self) -> tuple[Process, str]:
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            process = await self._spawner.spawn("provider", "exeunt-provider", null)
        finally:
            os.close(null)
        body = msgspec.msgpack.encode(self._settings)
        ready = Ready(error="it did not answer")
        with trio.move_on_after(READY_SECONDS):
            await process.channel.send_all(_LENGTH.pack(len(body)) + body)
            ready = msgspec.msgpack.decode(await _frame(process.channel), type=Ready)
        if ready.error:
            process.kill()
            raise ScriptedError(f"the scripted provider cannot serve: {ready.error}")
        return process, ready.base_url


async def _frame(stream: trio.SocketStream) -> bytes:
    data = b""
    while len(data) < _LENGTH.size or len(data) < _LENGTH.size + _LENGTH.unpack_from(data)[0]:
        part = await stream.receive_some(64 * 1024)
        if not part:
            raise ScriptedError("the scripted provider ended before it served")
        data += part
    return data[_LENGTH.size :]
