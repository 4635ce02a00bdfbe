"""A Stop while the user's code is tried: it reaches the tree as one does a moment later."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from desk import EXEUNT, HANG, MINE, SECONDS_MAX, Desk
from grove import Host
from run_tools import is_alive

from actors.events import Opened
from actors.journal import LOCK
from actors.outcome import Cancelled
from actors.wire import Check, encode
from supervisor import RunRefused, Supervisor, load_config
from supervisor.cli import main
from supervisor.commands import stop
from supervisor.tree_lock import lock_tree

CALL = "2.0"
"""The deletion that waits for a person."""

Act = Callable[[Supervisor], object]


class Hanging(Desk):
    """A desk whose module hangs while it is loaded, once told to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.pid = folder / "pid"
        self.started: list[subprocess.Popen[str]] = []
        self.doomed = self.folder / "workspace" / "access.log"

    def hang(self) -> None:
        """From now on; the process that loads it tells its pid."""
        tell = f"import os\nwith open({str(self.pid)!r}, 'a') as f: f.write(f'{{os.getpid()}} ')"
        self.module("my_tools", f"{tell}\n{HANG}")

    def mend(self) -> None:
        self.module("my_tools", MINE)

    def loading(self) -> list[int]:
        """The processes that began to load it."""
        return [int(pid) for pid in self.pid.read_text().split()] if self.pid.exists() else []

    def start(self, *words: str, **env: str) -> subprocess.Popen[str]:
        """``exeunt ... --json``, once it loads the module."""
        running = subprocess.Popen(
            [*EXEUNT, *words, "--json"],
            cwd=self.folder,
            env={**os.environ, "EXEUNT_STATE_DIR": str(self.state.path), **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(running)
        trio.run(self.loads)
        return running

    async def loads(self) -> None:
        with trio.fail_after(SECONDS_MAX):
            while not self.loading():  # noqa: ASYNC110  # another process tells it
                await trio.sleep(0.01)

    def told(self, running: subprocess.Popen[str]) -> tuple[int, Any, str]:
        out, err = running.communicate(timeout=SECONDS_MAX)
        return running.returncode, json.loads(out), err

    def check_stopped(self, reason: str, who: str = "user") -> None:
        """The run ended by the Stop, nothing was written, and its process has loaded nothing."""
        state = self.state.state("r1")
        assert state.outcome
        assert state.outcome.interruption == Cancelled(reason, who)
        assert state.pending == []
        assert self.doomed.exists()
        (pid,) = self.loading()
        assert not is_alive(pid)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Hanging]:
    """A configuration with a module of its own, which is sound until it hangs."""
    desk = Hanging(tmp_path)
    yield desk
    for running in desk.started:
        if running.poll() is None:
            running.kill()
            running.communicate(timeout=SECONDS_MAX)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "way"),
    [
        ("run", "ctrl-c"),
        ("resume", "stop"),
        ("approve", "stop"),
        pytest.param("run", "stop", marks=pytest.mark.long),
        pytest.param("resume", "ctrl-c", marks=pytest.mark.long),
        pytest.param("approve", "ctrl-c", marks=pytest.mark.long),
        pytest.param("reject", "stop", marks=pytest.mark.long),
        pytest.param("reject", "ctrl-c", marks=pytest.mark.long),
    ],
)
def test_a_stop_reaches_what_is_still_trying_the_code(desk: Hanging, verb: str, way: str) -> None:
    """Whatever the verb, the run ends as cancelled; no approved write happens, then or later."""
    words = {"run": ("run", "my.toml", "--run-id", "r1"), "resume": ("resume", "r1")}
    if verb != "run":
        assert desk.type_("run", "my.toml", "--run-id", "r1")[0] == 5
    desk.hang()
    running = desk.start(*words.get(verb, (verb, "r1", CALL)))
    reason = "enough" if way == "stop" else "cancelled: ctrl-c"
    if way == "stop":
        code, found, told = desk.type_("stop", "r1", "--reason", "enough")
        assert (code, found["stopped"], found["status"]) == (0, True, "interrupted")
        assert found["reason"] == "enough"
        assert "had ended before" not in told
    else:
        running.send_signal(signal.SIGINT)
    code, document, told = desk.told(running)
    assert (code, document["interruption"]["reason"]) == (6, reason), told
    desk.check_stopped(reason)
    desk.mend()
    # The call that waited was answered by the Stop: it is for the model to ask again.
    assert desk.type_("resume", "r1")[0] == (5 if verb == "run" else 0)
    assert desk.doomed.exists()


def test_what_is_held_is_never_said_to_have_ended(
    desk: Hanging,
    host: Host,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not of a root whose supervisor does not listen, whatever ending its journal has."""
    desk.write(more="[supervision]\nstop_grace_s = 0.1")
    monkeypatch.setattr(stop, "EXTRA_SECONDS", 0.0)

    async def test(supervisor: Supervisor) -> None:
        assert (await supervisor.run(load_config(desk.config), "r1")).exit_code == 5

    def typed() -> tuple[int, Any, str]:
        code = main(["stop", "r1", "--json", "--state-dir", str(desk.state.path)])
        shown = capsys.readouterr()
        return code, json.loads(shown.out), shown.err

    desk.play(host, test)
    with lock_tree(desk.state.run_dir("r1")) as refused:
        assert refused is None
        code, found, told = typed()
    assert (code, found["stopped"], found["status"]) == (1, False, "interrupted")
    assert "ended" not in told
    assert f"process {os.getpid()} holds its tree" in " ".join(told.split())
    code, found, _ = typed()
    assert (code, found["stopped"]) == (0, False)


async def cancel_after(desk: Hanging, work: Callable[[], Awaitable[object]]) -> None:
    """Do the work, and cancel it once the module is being loaded."""
    async with trio.open_nursery() as nursery:

        async def cancel() -> None:
            await desk.loads()
            nursery.cancel_scope.cancel()

        nursery.start_soon(cancel)
        await work()


@pytest.mark.parametrize("verb", ["run", "resume"])
@pytest.mark.parametrize("way", ["stop", "stop_run", "program"])
def test_a_stop_from_the_program_reaches_it_too(
    desk: Hanging, host: Host, verb: str, way: str
) -> None:
    """To all, to the run by name, or by cancelling whoever waits for it; a child is not there."""

    async def test(supervisor: Supervisor) -> None:
        config = load_config(desk.config)
        if verb == "resume":
            assert (await supervisor.run(config, "r1")).exit_code == 5
        desk.hang()

        async def work() -> None:
            if verb == "run":
                await supervisor.run(config, "r1")
            else:
                await supervisor.resume("r1")

        async def stop() -> None:
            await desk.loads()
            if way == "stop":
                supervisor.stop("enough")
            else:
                assert not supervisor.stop_run("r1.1.0", "enough")
                assert supervisor.stop_run("r1", "enough")

        if way == "program":
            await cancel_after(desk, work)
        else:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stop)
                await work()
        assert not supervisor.stop_run("r1", "later")

    desk.play(host, test)
    if way == "program":
        desk.check_stopped("cancelled by the program", "program")
    else:
        desk.check_stopped("enough")


def test_a_kill_records_nothing(desk: Hanging, host: Host) -> None:
    """The run is as it was, its approval included, and can be gone on with."""

    async def test(supervisor: Supervisor) -> None:
        assert (await supervisor.run(load_config(desk.config), "r1")).exit_code == 5
        before = desk.state.events("r1")
        desk.hang()

        async def kill() -> None:
            await desk.loads()
            supervisor.kill()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            await supervisor.resume("r1")
        assert desk.state.events("r1") == before
        desk.mend()
        assert (await supervisor.resume("r1")).exit_code == 5

    desk.play(host, test)
    (pid,) = desk.loading()
    assert not is_alive(pid)


def test_a_tree_whose_code_is_tried_is_held(desk: Hanging, host: Host) -> None:
    """A run that begins, too: nobody else performs it, and its name is taken."""

    async def test(supervisor: Supervisor) -> None:
        desk.hang()
        other = Supervisor(desk.state, host.spawner, supervisor._nursery, lambda *_: None)

        async def intrude() -> None:
            await desk.loads()
            with pytest.raises(RunRefused, match="held by process"):
                await other.resume("r1")
            supervisor.stop("enough")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(intrude)
            await supervisor.run(load_config(desk.config), "r1")

    desk.play(host, test)
    desk.check_stopped("enough")
    assert len([e for e in desk.state.events("r1") if isinstance(e, Opened)]) == 1
    assert (desk.state.run_dir("r1") / LOCK).exists()


@pytest.mark.slow
def test_nothing_is_loaded_for_a_supervisor_that_has_gone(desk: Hanging) -> None:
    """Also where it went before the process that it started was bound to it."""
    desk.hang()
    ours, theirs = socket.socketpair()
    with theirs:
        spec = load_config(desk.config).run_spec()
        ours.sendall(encode(Check(specs=(spec,), folder=str(desk.folder))))
        ours.close()
        code = "import sys; from actors.code_check import main; sys.exit(main(int(sys.argv[1])))"
        fd = theirs.fileno()
        command = [sys.executable, "-P", "-c", code, str(fd)]
        subprocess.run(command, pass_fds=[fd], timeout=SECONDS_MAX, check=True)
    assert desk.loading() == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["zygote", "subprocess"])
def test_a_supervisor_that_is_killed_leaves_no_module_loading(desk: Hanging, kind: str) -> None:
    """It hangs, and sees nothing of the end of its channel."""
    desk.hang()
    running = desk.start("run", "my.toml", "--run-id", "r1", EXEUNT_SPAWN=kind)
    running.kill()
    running.communicate(timeout=SECONDS_MAX)
    (pid,) = desk.loading()

    async def gone() -> None:
        with trio.fail_after(SECONDS_MAX):
            while is_alive(pid):  # noqa: ASYNC110  # nobody here is its parent
                await trio.sleep(0.01)

    try:
        trio.run(gone)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert desk.state.events("r1") == []
    desk.mend()
    assert desk.type_("resume", "r1")[0] == 5
