"""What tests share: their helper modules on the path, and a world in which whole runs happen."""

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

sys.path.insert(0, str(Path(__file__).parent))

from config_folder import Folder  # helper modules beside this file
from grove import Grove, Host
from scripted_client import Provide
from world import World

from actors import backoff
from actors.testing.provider import ProviderSettings, serve
from actors.tokens import encoding


@pytest.fixture(scope="session")
def counting() -> None:
    """Build the encoder once, so that no single test pays for it."""
    encoding()


@pytest.fixture
def make_world(
    counting: None, tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], World]:
    """Worlds that wait for nobody: whoever asked in vain asks again at once."""
    monkeypatch.setattr(backoff, "BASE_SECONDS", 0.0)
    number = 0

    def make() -> World:
        nonlocal number
        number += 1
        return World(tmp_path / f"world{number}", nursery)

    return make


@pytest.fixture
def world(make_world: Callable[[], World]) -> World:
    """One world with a workspace, a provider to be chosen, and one run."""
    return make_world()


@pytest.fixture(scope="session")
def host(counting: None) -> Iterator[Host]:
    """One warm spawner for all tests of trees."""
    host = Host()
    yield host
    host.close()


@pytest.fixture
def grove(host: Host, tmp_path: Path) -> Grove:
    """A place for trees of runs."""
    return Grove(host, tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder for one configuration."""
    return Folder(tmp_path)


@pytest.fixture
async def provide(nursery: trio.Nursery) -> AsyncIterator[Provide]:
    """Start scripted providers; all clients are closed at the end."""
    clients: list[httpx.AsyncClient] = []

    async def start(**settings: Any) -> httpx.AsyncClient:
        url: str = await nursery.start(serve, ProviderSettings(**settings))
        clients.append(httpx.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=5))
        return clients[-1]

    yield start
    for client in clients:
        await client.aclose()
