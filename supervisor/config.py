"""Reading a configuration: TOML from a file, ``--set`` options over it, checked and made absolute.

Everything wrong with it is a ConfigError of one sentence. What comes out holds no secret and needs
nothing of the caller's folder or environment but the key, which ``api_key`` looks up by its name.
"""

import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import tomli

from actors.text import clean
from supervisor.config_checks import check, check_base_url, check_provider
from supervisor.config_errors import ConfigError, Origin, convert, nearest
from supervisor.config_sections import Agent, Document, Provider, Run, ToolSource
from supervisor.config_tree import DEFAULT_KEY_ENV, Config, key_names, provider_at, provider_key
from supervisor.terminal import visible

__all__ = ["Config", "ConfigError", "api_key", "key_names", "load_config"]

FILE_MAX = 1024 * 1024
"""The most bytes that a configuration or a system file may have."""
_BASE_URL_VARIABLES = ("LLM_BASE_URL", "OPENAI_BASE_URL")


def load_config(
    path: str | os.PathLike[str],
    sets: Sequence[str] = (),
    task: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Read and check a configuration file; ``sets`` are ``KEY=VALUE``, and ``task`` goes over all.

    A relative ``tools.files.root`` is looked for in the config's folder, in the folder above it,
    then in the working directory;
    ``system_file`` stands in the config's folder. Raises ConfigError.
    """
    file = os.fspath(path)
    table = _parse(file)
    origin = Origin(file, _apply_sets(table, sets, file))
    document = convert(table, Document, origin)
    # A link's target may stand elsewhere, so the folder is the one that the user sees.
    full = Path(file).absolute()
    environment = os.environ if environ is None else environ
    config = Config(
        path=str(full),
        folder=str(full.parent),
        run=_with_task(document.run, task),
        provider=document.provider
        and _provider(document.provider, "provider", environment, origin),
        providers={
            name: _provider(provider, f"providers.{name}", environment, origin)
            for name, provider in document.providers.items()
        },
        pricing=document.pricing,
        agents={
            name: _with_reads(
                _with_system(agent, f"agents.{name}", full.parent, origin),
                f"agents.{name}.sandbox.read",
                full.parent,
                origin,
            )
            for name, agent in document.agents.items()
        },
        tools={
            name: _with_root(source, f"tools.{name}.root", full.parent, origin)
            for name, source in document.tools.items()
        },
        mcp=document.mcp,
        supervision=document.supervision,
        state=document.state,
    )
    check(config, origin)
    return config


def api_key(
    config: Config, environ: Mapping[str, str] | None = None, agent: str | None = None
) -> str | None:
    """The key of an agent's provider, the root's by default; None when it has none.

    Raises ConfigError when the config names a variable that is not set, or that holds what no HTTP
    header can carry.
    """
    origin = Origin(config.path)
    where = provider_key(config, agent or config.run.agent, origin)
    provider = provider_at(config, where)
    if provider.kind != "openai":
        return None
    variable = provider.api_key_env or DEFAULT_KEY_ENV
    key = (os.environ if environ is None else environ).get(variable, "").strip()
    if not key:
        if provider.api_key_env is None:
            return None
        words = f"the variable {variable} is not set; export the key in it"
        raise origin.error(f"{where}.api_key_env", words)
    if not re.fullmatch(r"[!-~]+", key):
        words = f"the variable {variable} holds spaces or odd characters; export a key in it"
        raise origin.error(f"{where}.api_key_env", words)
    return key


def _parse(file: str) -> dict[str, Any]:
    try:
        return tomli.loads(_read(Path(file), file))
    except tomli.TOMLDecodeError as error:
        raise ConfigError(
            visible(f"{file}: is not valid TOML: {error}; correct it there")
        ) from None
    except (RecursionError, ValueError) as error:
        raise ConfigError(visible(f"{file}: cannot be read as TOML: {error}")) from None


def _read(path: Path, shown: str) -> str:
    """The text of a regular file of at most ``FILE_MAX`` bytes; ``shown`` names it in errors."""
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for a writer that may never come.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(visible(f"{shown}: cannot be opened: {words}; check its path")) from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ConfigError(visible(f"{shown}: expected a regular file; name one"))
        with open(descriptor, "rb", closefd=False) as stream:
            data = stream.read(FILE_MAX + 1)
    finally:
        os.close(descriptor)
    if len(data) > FILE_MAX:
        raise ConfigError(visible(f"{shown}: is over {FILE_MAX} bytes; make it shorter"))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            visible(
                f"{shown}: expected UTF-8 text, found another byte at {error.start}; convert it"
            )
        ) from None


def _apply_sets(table: dict[str, Any], sets: Sequence[str], file: str) -> dict[str, str]:
    """Lay ``KEY=VALUE`` options over the table; returns which option made what, for errors."""
    made: dict[str, str] = {}
    for option in sets:
        key, equals, value = option.partition("=")
        key = key.strip()
        if not equals or not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", key):
            # A value may be private, so the whole option is shown only when it has no value.
            raise ConfigError(
                visible(
                    f"--set {key}{'=...' if equals else ''}: expected KEY=VALUE with a dotted key, "
                    "like agents.lead.limits.max_turns=8"
                )
            )
        _set(table, key, _toml_value(value), made, file)
    return made


def _set(table: dict[str, Any], key: str, value: Any, made: dict[str, str], file: str) -> None:
    *parents, last = key.split(".")
    for depth, part in enumerate(parents):
        if part not in table:
            # A misspelt agent would otherwise be a new one, and the option would do nothing.
            if depth == 1 and parents[0] in ("agents", "providers"):
                raise ConfigError(
                    f"--set {key}: there is no [{parents[0]}.{part}] in {visible(file)}; "
                    f"{visible(nearest(part, table))}"
                )
            table[part] = {}
            made.setdefault(".".join(parents[: depth + 1]), key)
        inner: Any = table[part]
        if not isinstance(inner, dict):
            raise ConfigError(
                f"--set {key}: {'.'.join(parents[: depth + 1])} is no table in {visible(file)}, so "
                "nothing in it can be set; set it as a whole"
            )
        table = cast(dict[str, Any], inner)
    table[last] = value
    made[key] = key


def _toml_value(text: str) -> Any:
    """The text as a TOML value, or as itself where it is none."""
    try:
        parsed = tomli.loads(f"value = {text}")
    except (RecursionError, ValueError):
        return clean(text)
    return parsed["value"] if len(parsed) == 1 else clean(text)


def _with_task(run: Run, task: str | None) -> Run:
    if task is None:
        return run
    if not task.strip():
        raise ConfigError("--task: expected a text, found none; write the task or leave it out")
    return msgspec.structs.replace(run, task=clean(task))


def _provider(provider: Provider, key: str, environ: Mapping[str, str], origin: Origin) -> Provider:
    check_provider(provider, key, origin)
    if provider.kind != "openai":
        return provider
    if provider.base_url is not None:
        url = check_base_url(provider.base_url, f"{key}.base_url", origin)
        return msgspec.structs.replace(provider, base_url=url)
    for variable in _BASE_URL_VARIABLES:
        if environ.get(variable):
            url = check_base_url(environ[variable], variable, Origin("environment"))
            return msgspec.structs.replace(provider, base_url=url)
    return provider


def _with_system(agent: Agent, key: str, folder: Path, origin: Origin) -> Agent:
    if agent.system_file is None:
        return agent
    if agent.system is not None:
        raise origin.error(f"{key}.system_file", "system is given as well; remove one of the two")
    path = _resolved(folder / agent.system_file)
    # What the file says goes to the provider, so a config may not reach for files elsewhere.
    if path is None or not path.is_relative_to(folder.resolve()):
        raise origin.error(
            f"{key}.system_file", "there is no such file in the config's folder; put it there"
        )
    try:
        text = _read(path, agent.system_file)
    except ConfigError as error:
        raise origin.error(f"{key}.system_file", str(error)) from None
    return msgspec.structs.replace(agent, system=text, system_file=None)


def _with_root(source: ToolSource, key: str, folder: Path, origin: Origin) -> ToolSource:
    if source.root is None:
        return source
    for candidate in (folder / source.root, folder.parent / source.root, Path(source.root)):
        path = _resolved(candidate)
        if path is not None and path.is_dir():
            return msgspec.structs.replace(source, root=str(path))
    raise origin.error(
        key,
        f"there is no folder {source.root} beside the config, above it or in the working "
        "directory; make it or correct the path",
    )


def _with_reads(agent: Agent, key: str, folder: Path, origin: Origin) -> Agent:
    if agent.sandbox is None or agent.sandbox.read is None:
        return agent
    paths: list[str] = []
    for index, one in enumerate(agent.sandbox.read):
        path = _resolved(Path(one)) or _resolved(folder / one)
        if path is None:
            raise origin.error(
                f"{key}[{index}]",
                f"there is no {one} in the working directory or beside the config; correct the "
                "path or leave it out",
            )
        paths.append(str(path))
    sandbox = msgspec.structs.replace(agent.sandbox, read=tuple(paths))
    return msgspec.structs.replace(agent, sandbox=sandbox)


def _resolved(path: Path) -> Path | None:
    """The path that exists behind links; None when there is none or it cannot be reached."""
    try:
        return path.resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        return None
