"""``exeunt doctor``: checks what a run needs before one is started, a line a check."""

import argparse
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version

import httpx
import msgspec
import trio

from actors import landlock
from actors.confinement import missing
from actors.provider import open_client
from actors.provider_error import map_transport
from actors.tokens import TokenizerError, count_text
from actors.warm import TlsError, tls
from actors.workspace import kernel_resolves
from supervisor import output
from supervisor.code_check import check_code
from supervisor.commands.run import supervisord_is_here
from supervisor.config import Config, ConfigError, api_key, key_names, load_config
from supervisor.config_sections import Provider
from supervisor.config_tree import DEFAULT_KEY_ENV
from supervisor.file_system import doubts_of
from supervisor.scripted import Scripted, ScriptedError
from supervisor.spawned import SpawnError
from supervisor.spawner import Spawner, open_spawner
from supervisor.state_dir import StateDir, StateError
from supervisor.terminal import Style, visible

PROBE_SECONDS = 20.0
REQUEST_SECONDS = 10.0
_PROBE_STATUS = 7


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at; ``detail`` says what is there, or what to do."""

    name: str
    ok: bool
    detail: str


class Problem(Exception):
    """What a check found wrong, and what to do about it."""


def doctor(args: argparse.Namespace) -> int:
    """Check the machine, and with CONFIG what a run of it needs."""
    checks = trio.run(examine, args.state_dir, args.config, args.sets)
    ok = all(check.ok for check in checks)
    if args.json:
        output.document({"ok": ok, "checks": checks})
    else:
        style = Style(sys.stdout)
        for check in checks:
            word = style.green("ok     ") if check.ok else style.red("problem")
            output.text(f"{word} {check.name}: {visible(check.detail)}")
    return 0 if ok else 1


async def examine(state_dir: str, config_path: str | None, sets: Sequence[str]) -> list[Check]:
    """All checks, in order; ``sets`` are ``KEY=VALUE`` that go over the configuration's."""
    checks = [
        _check("python", _python),
        _check("packages", _packages),
        _check("tokenizer", _tokenizer),
        _check("state directory", lambda: _state_dir(state_dir)),
        _check("file tools", _file_tools),
    ]
    config: Config | None = None
    if config_path is not None:
        try:
            config = load_config(config_path, sets)
            config.run_spec()
            checks.append(Check("configuration", True, f"{config.path} is sound"))
        except ConfigError as error:
            checks.append(Check("configuration", False, str(error)))
            config = None
    if config is not None:
        checks.append(_check("keys", lambda: _keys(config)))
    checks.append(_check("isolation", lambda: _isolation(config)))
    return checks + await _processes(config, StateDir(state_dir))


def _check(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, True, look())
    except (Problem, ConfigError, StateError) as problem:
        return Check(name, False, str(problem))


def _python() -> str:
    words = f"{sys.version.split()[0]} on {sys.platform}"
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        raise Problem(f"{words}; install exeunt with Python 3.11, 3.12 or 3.13")
    return words


def _packages() -> str:
    if supervisord_is_here():
        raise Problem("supervisord's files lie among ours; use an environment without supervisord")
    return ", ".join(f"{name} {version(name)}" for name in ("trio", "msgspec", "httpx"))


def _tokenizer() -> str:
    try:
        tokens = count_text("Which file mentions a timeout?")
    except TokenizerError as error:
        raise Problem(f"{error}; install exeunt again") from None
    return f"o200k_base, without the network ({tokens} tokens counted)"


def _state_dir(path: str) -> str:
    state_dir = StateDir(path)
    state_dir.prepare()
    disk = os.statvfs(state_dir.path)
    free_mib = disk.f_bavail * disk.f_frsize // 2**20
    words = f"{state_dir.path} is private and writable, {free_mib:,} MiB free"
    if free_mib < 64:
        raise Problem(f"{words}; make room, as a run that cannot be saved stops")
    doubts = doubts_of(state_dir.path)
    return f"{words}. Warning: {doubts}" if doubts else words


def _file_tools() -> str:
    fd = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        by_kernel = kernel_resolves(fd)
    finally:
        os.close(fd)
    if by_kernel:
        return "the kernel keeps paths in the workspace (openat2)"
    return "paths are walked without following links, as openat2 is not there"


def _keys(config: Config) -> str:
    found: dict[str, None] = {}
    for agent in config.agents_in_use():
        key = api_key(config, agent=agent)
        name = config.run_spec(agent).provider.api_key_env
        if name is not None:
            found[f"{name} is {'set' if key else 'not set, so none is sent'}"] = None
    return "; ".join(found) or "the scripted provider needs none"


def _isolation(config: Config | None) -> str:
    """What can be confined here, and what the agents in use have on."""
    versions = {
        "files": landlock.ABI_FILES,
        "TCP": landlock.ABI_NETWORK,
        "signals": landlock.ABI_SIGNALS,
    }
    known = [what for what, version in versions.items() if landlock.abi() >= version]
    found = [f"Landlock can confine {', '.join(known) or 'nothing'} here"]
    if os.geteuid() == 0:
        found.append("tools run as root, from which no key can be hidden")
    if config is None:
        return "; ".join(found)
    for agent in config.agents_in_use():
        spec = config.run_spec(agent, task="")
        if spec.sandbox and (words := missing(spec.sandbox)):
            raise Problem(f"agent {agent}: {words}")
        given = msgspec.structs.asdict(config.agents[agent].resources)
        limits = [f"{name} = {value}" for name, value in given.items() if value is not None]
        sandbox = "a sandbox" if spec.sandbox else "no sandbox"
        found.append(f"{agent} has {sandbox} and {', '.join(limits) or 'no resource limits'}")
    return "; ".join(found)


def probe(fd: int) -> int:
    """The main of the process that shows that spawning works."""
    os.close(fd)
    return _PROBE_STATUS


async def _processes(config: Config | None, state_dir: StateDir) -> list[Check]:
    """The checks that need a spawner: a process, the user's own code, and the provider's."""
    checks: list[Check] = []

    async def look(name: str, work: Awaitable[str]) -> None:
        try:
            checks.append(Check(name, True, await work))
        except (Problem, SpawnError, ScriptedError, ConfigError) as problem:
            checks.append(Check(name, False, str(problem)))

    try:
        async with open_spawner(drop_env=key_names(config) if config else ()) as spawner:
            await look("processes", _spawn(spawner))
            if config is not None:
                await look("tools", _tools(spawner, config, state_dir))
                for agents in _providers(config):
                    await look("provider", _provider(spawner, config, agents))
    except (SpawnError, ValueError) as error:
        checks.append(Check("processes", False, f"{error}; try EXEUNT_SPAWN=subprocess"))
    return checks


async def _spawn(spawner: Spawner) -> str:
    null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        with trio.move_on_after(PROBE_SECONDS):
            began = trio.current_time()
            process = await spawner.spawn("supervisor.commands.doctor:probe", "doctor", null)
            took = 1000 * (trio.current_time() - began)
            try:
                exit_ = await process.wait()
            finally:
                await trio.aclose_forcefully(process.channel)
            if exit_.status != _PROBE_STATUS:
                raise Problem(f"a process {exit_.words}; try EXEUNT_SPAWN=subprocess")
            return f"one was started in {took:.1f} ms and reaped"
    finally:
        os.close(null)
    raise Problem(f"none ended within {PROBE_SECONDS:.0f} s; try EXEUNT_SPAWN=subprocess")


async def _tools(spawner: Spawner, config: Config, state_dir: StateDir) -> str:
    await check_code(spawner, config, state_dir.runs)
    named = [(agent, config.agents[agent].tools) for agent in config.agents_in_use()]
    return "; ".join(f"{agent} has {', '.join(tools) or 'none'}" for agent, tools in named)


def _providers(config: Config) -> list[list[str]]:
    """The agents in use, those of one provider together."""
    found: dict[str, list[str]] = {}
    for agent in config.agents_in_use():
        found.setdefault(repr(config.provider_of(agent)), []).append(agent)
    return list(found.values())


async def _provider(spawner: Spawner, config: Config, agents: list[str]) -> str:
    section = config.provider_of(agents[0])
    models = dict.fromkeys(config.run_spec(agent).provider.model for agent in agents)
    if section.kind == "openai":
        assert section.base_url, "the configuration was checked"
        return await _ask(section.base_url, api_key(config, agent=agents[0]), models, section)
    scripted = Scripted(spawner, config, agents[0])
    words: str | None = None
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            await nursery.start(scripted.serve)
            (base_url,) = {scripted.base_url(config, agent) for agent in agents}
            words = await _ask(base_url, None, models, section)
        except Exception as error:
            # Kept, as the nursery would hand it on inside a group.
            failure = error
        nursery.cancel_scope.cancel()
    if words is None:
        raise failure or Problem("the scripted provider ended; look at its scripts")
    return words


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model] = []


async def _ask(base_url: str, key: str | None, models: dict[str, None], section: Provider) -> str:
    """Ask a provider for its models, which costs nothing."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        with trio.fail_after(REQUEST_SECONDS):
            async with open_client(tls(base_url)) as client:
                answer = await client.get(f"{base_url}/models", headers=headers)
    except TlsError as error:
        raise Problem(str(error)) from None
    except (httpx.HTTPError, trio.TooSlowError) as error:
        slow = isinstance(error, trio.TooSlowError)
        words = "it did not answer in time" if slow else map_transport(error).words
        raise Problem(f"{base_url} cannot be reached: {words}; start it or mend base_url") from None
    status = answer.status_code
    if status in (401, 403):
        name = section.api_key_env or DEFAULT_KEY_ENV
        what = f"refuses the key in {name}" if key else f"wants a key: export it in {name}"
        raise Problem(f"{base_url} {what} (status {status})")
    if answer.is_redirect:
        raise Problem(
            f"{base_url} leads elsewhere (status {status}), and redirects are not followed; give "
            "the address itself as base_url"
        )
    if status != 200:
        hint = "; base_url often ends in /v1" if status == 404 else ""
        return f"{base_url} answers, but lists no models (status {status}){hint}"
    try:
        names = {one.id for one in msgspec.json.decode(answer.content, type=_Models).data}
    except msgspec.MsgspecError:
        return f"{base_url} answers, but lists no models that can be read"
    missing = ", ".join(model for model in models if model not in names)
    if not missing:
        return f"{section.kind} at {base_url} has {', '.join(models)}"
    return f"{base_url} answers, but does not list {missing}"
