"""What every round of one chaos session shares: the configuration, its provider, the reference.

A round works in a folder of its own, on a copy of the workspace, so that no round sees another.
"""

import os
import shutil
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from pathlib import Path

import msgspec

from actors.testing.evidence import Bills, Effect
from actors.testing.lives import serving
from actors.testing.provider import ProviderSettings
from supervisor.chaos.plan import ROOT
from supervisor.chaos.recorded import RECORDED
from supervisor.chaos.stand_in import stand_in
from supervisor.config import Config
from supervisor.config_errors import ConfigError
from supervisor.config_sections import Agent, Provider
from supervisor.scripted import settings_of

LATENCY_MS_MAX = 20.0
"""A model that takes longer is not waited for: a round shall last as long as its processes."""
WORKSPACE_BYTES_MAX = 100_000_000
RESTARTS_MIN = 5
"""Restarts that every run may have here, so that a round does not end as a crash loop."""
FILES = "files"


class World(msgspec.Struct, frozen=True, kw_only=True):
    """One session; ``config`` has every provider at its fixed address, and limits of time."""

    folder: Path
    config: Config
    bills: Path
    prepare: Callable[[Path], None] | None = None
    """Called in each life with the round's folder, before anything else."""
    crashes: int = 0
    """How often each run may fail by what ``prepare`` does."""
    effects: Callable[[Path, str], list[Effect]] | None = None
    """Reads what the tools of a run did to the world, given the round's folder and the run id."""


class Home:
    """The folder of one round.

    Its run has the same id in every round: keys are made from it, and so are often names of files.
    """

    run_id = "chaos"

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.path = world.folder / name
        self._here = self.path
        self.state_dir = self.path / "state"

    def make(self, *, timeless: bool = False) -> Config:
        """Make the folder with its copy of the workspace; returns the configuration of the round.

        ``timeless`` is one in which no clock stops an agent: being killed and frozen takes time.
        Raises OSError.
        """
        self.path.mkdir()
        config = self._with_bills_of_its_own(self.world.config)
        if timeless:
            agents = {name: _timeless(agent) for name, agent in config.agents.items()}
            config = msgspec.structs.replace(config, agents=agents)
        source = config.tools.get(FILES)
        copy = self.path / "workspace"
        root = Path(source.root).resolve() if source and source.root else None
        if root:
            shutil.copytree(root, copy, symlinks=True)
        self._here = stand_in(Path.cwd(), self.path / "here", root, copy)
        if source is None or source.root is None:
            return config
        files = msgspec.structs.replace(source, root=str(copy))
        return msgspec.structs.replace(config, tools={**config.tools, FILES: files})

    def _with_bills_of_its_own(self, config: Config) -> Config:
        """Each round asks at an address of its own, as its runs are named like all others."""

        def at(provider: Provider) -> Provider:
            base_url = (provider.base_url or "").removesuffix("/v1")
            return msgspec.structs.replace(provider, base_url=f"{base_url}/{self.name}/v1")

        return msgspec.structs.replace(
            config,
            provider=config.provider and at(config.provider),
            providers={name: at(one) for name, one in config.providers.items()},
        )

    def full(self, run: str) -> str:
        """The id of a run that a plan names."""
        return self.run_id if run == ROOT else f"{self.run_id}.{run}"

    def short(self, run_id: str) -> str:
        """How a plan names a run."""
        return ROOT if run_id == self.run_id else run_id.removeprefix(f"{self.run_id}.")

    def bills(self) -> Bills:
        """What the provider billed, of this round alone."""
        return Bills(self.world.bills, self.name)

    def workspace(self) -> dict[str, str]:
        """The files of the workspace, by path, with size and digest of each."""
        return {path: self._contents(file) for path, file in self.files().items()}

    def files(self) -> dict[str, Path]:
        """The files of the workspace, by path within it."""
        root = self.path / "workspace"
        return {
            str(path.relative_to(root)): path
            for path in sorted(root.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }

    def placeless(self, text: str) -> str:
        """A text without the one thing in which rounds differ: where their folder is."""
        return text.replace(str(self.path), "")

    def _contents(self, file: Path) -> str:
        data = file.read_bytes().replace(bytes(self.path), b"")
        return f"{len(data)} {blake2b(data, digest_size=8).hexdigest()}"

    def prepare(self) -> None:
        """What a life does first."""
        os.chdir(self._here)
        if self.world.prepare:
            self.world.prepare(self.path)

    def remove(self) -> None:
        """Take the round off the disk."""
        shutil.rmtree(self.path, ignore_errors=True)


@contextmanager
def served(config: Config, bills: Path, *, recorded: bool = False) -> Generator[Config]:
    """Serve the scripted providers of a configuration, with a ledger; yields it with addresses.

    They are no part of the tree, so that whoever strikes it never strikes them; a real one is
    replaced with what was ``recorded``. Restarts are allowed. Raises ConfigError for a real
    provider without a recording, and for a workspace that is too large.
    """
    _check_workspace(config)
    with ExitStack() as stack:
        cache: dict[bytes, str] = {}

        def placed(provider: Provider, key: str) -> Provider:
            real = provider.kind != "scripted"
            if real and not recorded:
                words = (
                    "each round would ask a real provider anew for every turn; run the tree once, "
                    "and give that run's name with --recorded"
                )
                raise config.error(f"{key}.kind", words)
            wished = settings_of(provider, (config.folder,))
            settings = msgspec.structs.replace(
                ProviderSettings(script=RECORDED) if real else wished,
                ledger=str(bills),
                latency_ms=min(provider.latency_ms, LATENCY_MS_MAX),
            )
            wanted = msgspec.json.encode(settings)
            if wanted not in cache:
                try:
                    cache[wanted] = stack.enter_context(serving(settings))
                except ValueError as error:
                    raise config.error(key, str(error)) from None
            return msgspec.structs.replace(
                provider,
                kind="openai",
                base_url=cache[wanted],
                api_key_env=None,
                model=provider.model if real else provider.script,
            )

        yield msgspec.structs.replace(
            config,
            supervision=msgspec.structs.replace(
                config.supervision, max_restarts=max(RESTARTS_MIN, config.supervision.max_restarts)
            ),
            provider=config.provider and placed(config.provider, "provider"),
            providers={
                name: placed(one, f"providers.{name}") for name, one in config.providers.items()
            },
        )


def _timeless(agent: Agent) -> Agent:
    limits = msgspec.structs.replace(agent.limits, deadline_s="none", idle_s="none")
    return msgspec.structs.replace(agent, limits=limits)


def _check_workspace(config: Config) -> None:
    source = config.tools.get(FILES)
    if source is None or source.root is None:
        return
    total = sum(path.lstat().st_size for path in Path(source.root).rglob("*"))
    if total > WORKSPACE_BYTES_MAX:
        raise ConfigError(
            f"the workspace {source.root} has {total:,} bytes, and every round copies it: at most "
            f"{WORKSPACE_BYTES_MAX:,}; name a smaller one with --set tools.files.root=..."
        )
