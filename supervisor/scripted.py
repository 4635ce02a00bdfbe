"""The scripted provider as the supervisor starts it: a process of its own, kept at one address."""

import os
import struct

import msgspec
import trio

from actors.testing.provider import ProviderSettings, Ready
from actors.testing.scripts import no_script
from supervisor.burial import bury
from supervisor.config import Config, ConfigError
from supervisor.config_errors import Origin
from supervisor.config_sections import Provider
from supervisor.config_tree import provider_key
from supervisor.spawned import Process
from supervisor.spawner import Spawner

READY_SECONDS = 30.0
RESTARTS_MAX = 5
_LENGTH = struct.Struct("<I")


class ScriptedError(Exception):
    """The scripted provider cannot serve, and no key of the configuration is known for why."""


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
    """The scripted provider of an agent; a process of it that dies is replaced at the same port."""

    def __init__(self, spawner: Spawner, config: Config, agent: str) -> None:
        self._spawner = spawner
        self._config = config
        self._key = provider_key(config, agent, Origin(config.path))
        self._settings = settings_of(config.provider_of(agent), (config.folder,))
        self._port = 0
        self._ready = Ready()

    @property
    def identity(self) -> str:
        """What two have in common that could be one."""
        return repr(self._settings)

    def base_url(self, config: Config, agent: str) -> str:
        """Where it serves an agent; raises ConfigError for a script that it does not have."""
        model = config.run_spec(agent, task="").provider.model
        # A script of the provider's own stands in for every model that is none.
        if not self._settings.script and model not in self._ready.scripts:
            raise config.error(f"agents.{agent}.model", no_script(model, self._ready.scripts))
        return self._ready.base_url

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled, once it is ``started``. Raises ConfigError, ScriptedError."""
        process = await self._start()
        self._port = int(self._ready.base_url.split(":")[2].partition("/")[0])
        task_status.started()
        for _ in range(RESTARTS_MAX):
            try:
                await process.wait()
            finally:
                await trio.aclose_forcefully(process.channel)
            process = await self._start()
        await process.wait()

    async def _start(self) -> Process:
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            process = await self._spawner.spawn("provider", "exeunt-provider", null)
        finally:
            os.close(null)
        try:
            self._ready = await self._ask(process.channel)
            if self._ready.error:
                raise self._unfit(self._ready)
        except BaseException:
            # A script that hangs sees nothing of it, and the supervisor may live on for long.
            process.kill()
            await bury(process)
            raise
        return process

    async def _ask(self, channel: trio.SocketStream) -> Ready:
        """What the process says of itself, or what became of it instead."""
        settings = msgspec.structs.replace(self._settings, port=self._port)
        body = msgspec.msgpack.encode(settings)
        key = "scripts" if settings.modules else ""
        try:
            with trio.move_on_after(READY_SECONDS):
                await channel.send_all(_LENGTH.pack(len(body)) + body)
                return msgspec.msgpack.decode(await _frame(channel), type=Ready)
        except (EOFError, trio.BrokenResourceError):
            return Ready(error="the provider's process ended before it served", key=key)
        return Ready(error=f"the provider did not answer within {READY_SECONDS:g} s", key=key)

    def _unfit(self, ready: Ready) -> ConfigError | ScriptedError:
        if ready.key:
            return self._config.error(f"{self._key}.{ready.key}", ready.error)
        return ScriptedError(f"the scripted provider cannot serve: {ready.error}")


async def _frame(stream: trio.SocketStream) -> bytes:
    data = b""
    while len(data) < _LENGTH.size or len(data) < _LENGTH.size + _LENGTH.unpack_from(data)[0]:
        part = await stream.receive_some(64 * 1024)
        if not part:
            raise EOFError
        data += part
    return data[_LENGTH.size :]
