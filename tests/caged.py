"""Runs in processes of their own, with limits and sandboxes, for tests of what these do."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from world import World

from actors.outcome import Outcome
from actors.spec import ToolsSpec
from actors.wire import StartChild
from supervisor import child as child_module
from supervisor.child import Child
from supervisor.spawner import open_spawner

HERE = Path(__file__).parent
SECONDS = 15.0


class Family:
    """A supervisor's part of a child, for one that has no children and no listener."""

    def __init__(self, spawner: Any) -> None:
        self.spawner = spawner

    async def run_child(self, parent: Child, frame: StartChild) -> str:
        await trio.lowlevel.checkpoint()
        return "this run has no children"

    async def acked(self, child: Child) -> None:
        await trio.lowlevel.checkpoint()

    def heard(self, run_id: str, line: bytes, /) -> None:
        pass


class Caged:
    """A world's run in processes of its own."""

    def __init__(self, world: World, spawner: Any) -> None:
        self.world = world
        self._family = Family(spawner)
        self.refused = ""

    async def run(self, why: str = "start", key: str | None = None) -> Outcome | None:
        """Run to the end; what the supervisor is told instead of an ending is in ``refused``."""
        start = msgspec.structs.replace(self.world.start(why), api_key=key)
        child = Child(self._family, start)
        with trio.fail_after(SECONDS):
            await child.run()
        self.refused = child.refused.words if child.refused else ""
        return self.world.state.outcome


@asynccontextmanager
async def caged(
    world: World, *preload: str, kind: str = "zygote", **options: Any
) -> AsyncGenerator[Caged, None]:
    """A spawner for the world's run; a preload of tests is found, as this folder is on the path."""
    async with open_spawner(kind, preload=("actors.actor", *preload), **options) as spawner:
        yield Caged(world, spawner)


def use(world: World, *names: str, module: str = "caged_tools") -> None:
    """Give the run these tools; without prices no actor builds an encoder."""
    world.change(
        prices=None,
        tools=ToolsSpec(
            names=names, modules=(module,), search_path=(str(HERE),), workspace=str(world.workspace)
        ),
    )


@pytest.fixture(autouse=True)
def helpers_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a zygote imports for a test; and no back-off between restarts."""
    paths = [str(HERE), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setattr(child_module, "BACK_OFF_SECONDS", (0.0,))
