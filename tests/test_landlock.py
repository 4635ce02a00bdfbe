"""The sandbox of an actor and all it starts, with real processes on a kernel that has Landlock."""

import json
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from caged import Caged, caged, helpers_on_the_path, use
from world import World

from actors import code_check, confinement, landlock
from actors.code_files import code_files
from actors.confinement import ConfinementError, confine, missing
from actors.outcome import Status
from actors.spec import Limits, Sandbox, ToolsSpec
from actors.testing.scripts import Call, Say
from actors.user_module import ModuleError, load_module
from actors.wire import Check

__all__ = ["helpers_on_the_path"]

DONE = Say("done")
HAS_LANDLOCK = landlock.abi() >= landlock.ABI_NETWORK
needs_landlock = pytest.mark.skipif(not HAS_LANDLOCK, reason="needs Landlock of Linux 6.7")


async def ask(world: World, tool: str, sandbox: Sandbox, *preload: str) -> Caged:
    """Run one turn with a tool in a sandbox; the world is the outside."""
    for name in ("outside", "given"):
        (world.workspace.parent / name).mkdir(exist_ok=True)
        (world.workspace.parent / name / "file").write_text("theirs")
    await world.provide([Call(tool), DONE])
    use(world, tool)
    world.change(sandbox=sandbox)
    async with caged(world, *preload) as here:
        await here.run()
    return here


def answer(world: World) -> Any:
    outcome = world.state.outcome
    assert outcome
    assert outcome.status is Status.COMPLETED, outcome
    return json.loads(world.results()[0])


@needs_landlock
async def test_a_caged_tool_changes_nothing_outside_its_workspace(world: World):
    """Whatever way it takes; inside, and on the null device, it does as it likes."""
    await ask(world, "break_out", Sandbox())
    tried = answer(world)
    assert [name for name, came in tried.items() if came == "ok"] == [
        "workspace",
        "null device",
        "read",
    ]
    assert {came for came in tried.values() if came != "ok"} <= {"EACCES", "EXDEV"}
    outside = world.workspace.parent / "outside"
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("file", "theirs")]


@needs_landlock
async def test_a_caged_tool_s_programs_are_caged(world: World):
    """A grandchild in a session of its own writes in the workspace alone."""
    await ask(world, "grandchild", Sandbox())
    assert "ours" in world.results()[0]
    assert "denied" in world.results()[0].lower()
    assert not (world.workspace.parent / "outside" / "new").exists()


@needs_landlock
@pytest.mark.parametrize("network", [False, True])
async def test_a_caged_actor_reaches_its_provider_alone(world: World, network: bool):
    """Without ``network`` no other port is connected to and none is listened on."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    (world.workspace / "port").write_text(str(port))
    await ask(world, "call_out", Sandbox(network=network))
    tried = answer(world)
    word = "ok" if network else "EACCES"
    assert (tried["connect"], tried["listen"]) == (word, word)
    assert tried["signal self"] == "ok"
    if landlock.abi() >= landlock.ABI_SIGNALS:
        assert tried["signal"] == "EPERM"
    for listener in listeners:
        await listener.aclose()


@needs_landlock
async def test_a_caged_tool_reads_what_it_was_given(world: World):
    """With ``read``, the rest of the machine is closed but for what programs need to run."""
    given = str(world.workspace.parent / "given")
    await ask(world, "look_out", Sandbox(read=(given,)))
    assert answer(world) == {
        "outside": "EACCES",
        "list outside": "EACCES",
        "own journal": "EACCES",
        "given": "ok",
        "workspace": "ok",
        "hosts": "ok",
        "python": "runs",
    }


@needs_landlock
@pytest.mark.parametrize("place", ["beside.py", "beside/__init__.py"])
async def test_a_caged_run_reads_its_modules_and_not_what_lies_beside_them(
    world: World, place: str
):
    """A file or a package, of a tool as of a stop condition; keys and other runs stay closed."""
    folder = world.workspace.parent / "config"
    others = (".env", "other.py", "state/runs/r2/journal.x1", "besides/secret")
    for name in (place, "conditions.py", *others):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("def enough(state): return None")
    (folder / place).write_text(LOOKS_BESIDE.format(folder=str(folder), names=others))
    await world.provide([Call("look_beside"), DONE])
    world.limit(stop_when=("conditions:enough",))
    world.change(
        prices=None,
        sandbox=Sandbox(read=()),
        tools=ToolsSpec(
            names=("look_beside",),
            modules=("beside",),
            search_path=(str(folder),),
            workspace=str(world.workspace),
        ),
    )
    async with caged(world) as here:
        outcome = await here.run()
    assert outcome
    assert outcome.status is Status.COMPLETED, outcome
    assert answer(world) == dict.fromkeys(others, "EACCES")


LOOKS_BESIDE = """
import errno, json, pathlib
from actors import tool

def look(path):
    try:
        return path.read_text()
    except OSError as error:
        return errno.errorcode[error.errno]

@tool(read_only=True)
async def look_beside() -> str:
    folder = pathlib.Path({folder!r})
    return json.dumps({{name: look(folder / name) for name in {names!r}}})
"""


@needs_landlock
async def test_a_caged_run_reads_its_stop_condition(world: World):
    """Also where it has no module of tools beside it."""
    (world.workspace.parent / "given").mkdir()
    module = "def enough(state): return 'enough' if state.turns else None"
    (world.workspace.parent / "given" / "conditions.py").write_text(module)
    await world.provide([Say("once more"), DONE])
    world.limit(stop_when=("conditions:enough",))
    world.change(
        prices=None,
        sandbox=Sandbox(read=()),
        tools=ToolsSpec(
            search_path=(str(world.workspace.parent / "given"),), workspace=str(world.workspace)
        ),
    )
    async with caged(world) as here:
        outcome = await here.run()
    assert outcome
    assert outcome.status is Status.COMPLETED, outcome


@pytest.mark.parametrize(
    ("preload", "words"),
    [
        ("caged_tools:no_landlock", "needs Landlock version 4 (Linux 6.7)"),
        ("caged_tools:open_landlock", "a write outside of it succeeded"),
    ],
)
async def test_a_run_without_its_sandbox_does_not_run(world: World, preload: str, words: str):
    """It fails before it is asked anything and before a tool's module is loaded."""
    if "open" in preload and not HAS_LANDLOCK:
        pytest.skip("needs Landlock of Linux 6.7")
    await world.provide([DONE])
    use(world, module="dying_module")
    world.change(sandbox=Sandbox())
    async with caged(world, preload) as here:
        outcome = await here.run()
        assert outcome
        assert outcome.status is Status.FAILED
        assert words in (outcome.error or "")
        assert not world.bills()
    assert not (world.run_dir / "sandbox-probe").exists()


async def test_a_resume_without_the_sandbox_is_refused(world: World):
    """A run that was begun is left as it is, for a machine that has what it needs."""
    await world.provide([DONE])
    world.limit(max_turns=0)
    await world.perform()
    use(world)
    world.change(sandbox=Sandbox())
    before = len(world.events)
    async with caged(world, "caged_tools:no_landlock") as here:
        await here.run("resume")
        assert "needs Landlock" in here.refused
    assert len(world.events) == before


@needs_landlock
async def test_a_workspace_that_holds_the_run_is_refused(world: World):
    """A caged tool must not be able to rewrite its own journal."""
    await world.provide([DONE])
    use(world)
    tools = world.spec.tools
    world.change(
        sandbox=Sandbox(),
        tools=type(tools)(names=(), workspace=str(world.run_dir.parent.parent)),
    )
    async with caged(world) as here:
        outcome = await here.run()
    assert outcome
    assert "rewrite its own run; name another with --state-dir" in (outcome.error or "")


async def test_a_second_thread_is_refused(world: World, monkeypatch: pytest.MonkeyPatch):
    """It would stay outside of the sandbox."""
    monkeypatch.setattr(confinement, "landlock", None)
    monkeypatch.setattr(confinement, "missing", lambda _: "")
    world.change(sandbox=Sandbox())
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    await trio.lowlevel.checkpoint()
    try:
        with pytest.raises(ConfinementError, match="threads run already"):
            confine(world.start())
    finally:
        release.set()
        thread.join()


@pytest.mark.parametrize(
    ("version", "network", "words"),
    [
        (0, True, "version 3 (Linux 6.2), and this machine has none"),
        (3, False, "version 4 (Linux 6.7), and this machine has version 3"),
        (3, True, ""),
        (4, False, ""),
    ],
)
def test_what_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch, version: int, network: bool, words: str
):
    """One sentence names the version, the kernel and the way out; none comes when all is there."""
    monkeypatch.setattr(landlock, "abi", lambda: version)
    found = missing(Sandbox(network=network))
    assert words in found
    assert bool(found) == bool(words)


@needs_landlock
def test_a_path_that_is_not_there_gives_nothing_up(tmp_path: Path):
    """An error leaves the process as free as it was."""
    with pytest.raises(FileNotFoundError):
        landlock.restrict(writable=[tmp_path / "missing"])
    (tmp_path / "file").write_text("free")


def test_a_module_that_may_not_read_says_what_to_do(tmp_path: Path):
    """As when it imports a helper beside it that no sandbox was told of."""
    (tmp_path / "needy_tools.py").write_text("raise PermissionError(13, 'no', '/x/helper.py')")
    with pytest.raises(ModuleError, match=r"/x/helper.py.*listed there under read"):
        load_module("needy_tools", (str(tmp_path),))


async def test_a_check_reads_the_code_of_all_agents_that_it_is_for(world: World):
    """Agents that are confined alike are checked in one process, which names all their files."""
    specs = [
        msgspec.structs.replace(
            world.spec,
            tools=ToolsSpec(search_path=("/x",)),
            limits=Limits(stop_when=(f"{name}:enough",)),
        )
        for name in ("one", "two")
    ]
    start = code_check._start(Check(specs=tuple(specs), folder="/y"))
    assert {Path("/x/one.py"), Path("/x/two.py")} < set(code_files(start.spec))
    assert code_files(world.spec) == []
