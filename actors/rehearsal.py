"""A whole run, performed in the zygote before it forks.

The interpreter rewrites code as it runs it and loads modules when they are first needed. What is
done here once is shared by every actor, in time and in memory.
"""

import tempfile
from pathlib import Path

import trio

from actors.money import Prices
from actors.opening import open_run
from actors.spec import ProviderSpec, RunSpec, ToolsSpec
from actors.testing.provider import ProviderSettings, serve
from actors.wire import Start

SECONDS_MAX = 20.0
SCRIPT = "plan"
FILE, TEXT = "errors.log", "worker 7 timed out after 30000 ms"


def rehearse() -> None:
    """Perform a run against a scripted provider in this process, in a folder of its own.

    Nothing of it is left but warm code: no thread, no file, no open descriptor.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="exeunt-") as name:
            folder = Path(name)
            for part in ("workspace", "run0", "run1"):
                (folder / part).mkdir()
            (folder / "workspace" / FILE).write_text(TEXT)
            trio.run(_rehearse, folder)
    except OSError:
        # A machine without loopback or room may still reach its provider; its actors start cold.
        pass


async def _rehearse(folder: Path) -> None:
    workspace = str(folder / "workspace")
    with trio.fail_after(SECONDS_MAX):
        async with trio.open_nursery() as nursery:
            base_url: str = await nursery.start(serve, ProviderSettings(script=SCRIPT))
            for number, stream in enumerate((True, False)):
                await _perform(folder / f"run{number}", workspace, base_url, stream)
            nursery.cancel_scope.cancel()


async def _perform(run_dir: Path, workspace: str, base_url: str, stream: bool) -> None:
    spec = RunSpec(
        agent="rehearsal",
        task="Which file mentions a timeout?",
        system="",
        provider=ProviderSpec(model=SCRIPT, stream=stream),
        prices=Prices(1, 1, 1),
        tools=ToolsSpec(names=("list_files", "read_file"), workspace=workspace),
        # Waiting for the disk takes a thread, and a thread would not survive the fork.
        durability="process",
    )
    start = Start(
        run_id=run_dir.name,
        root_id=run_dir.name,
        run_dir=str(run_dir),
        spec=spec,
        base_url=base_url,
    )
    async with open_run(start, follow=lambda line: None) as run:
        await run.perform()
