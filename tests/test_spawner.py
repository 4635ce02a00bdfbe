"""Spawning: both ways keep the same promises, with real processes."""

import contextlib
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from nobody import as_nobody
from spawn_mains import oom_score

from supervisor import spawner as spawner_module
from supervisor import zygote_spawner
from supervisor.pidfd import Pidfd
from supervisor.spawner import Exit, Process, Spawner, SpawnError, ZygoteDied, open_spawner
from supervisor.zygote_process import start_zygote

HERE = Path(__file__).parent
BOTH = ["zygote", "subprocess"]
LIMIT_SECONDS = 10


@pytest.fixture(autouse=True)
def mains_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(HERE), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def log_fd(log: Path) -> Iterator[int]:
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    yield fd
    os.close(fd)


@contextlib.asynccontextmanager
async def spawning(
    kind: str, preload: tuple[str, ...] = ("spawn_mains",)
) -> AsyncGenerator[Spawner]:
    with trio.fail_after(LIMIT_SECONDS):
        async with open_spawner(kind, preload=preload, drop_env=("A_KEY",)) as spawner:
            yield spawner


async def said(process: Process) -> bytes:
    return b"".join([part async for part in process.channel])


async def pids_said(process: Process) -> list[int]:
    return json.loads(await process.channel.receive_some(1000))


async def gone(pid: int) -> None:
    """Wait for the death of a process that is nobody of ours."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await trio.lowlevel.wait_readable(fd)
    finally:
        os.close(fd)


def zygote_pid(spawner: Any) -> int:
    return spawner._way._life.pid


def limits_that_leave_room(pid: int, counts: Sequence[int]) -> list[int]:
    """For each count the limit of open files that leaves a process so many free numbers."""
    used = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
    free = [number for number in range(max(counts) + len(used) + 1) if number not in used]
    return [free[count] for count in counts]


def names_of_processes() -> str:
    return subprocess.run(["ps", "-eo", "comm"], capture_output=True, text=True, check=True).stdout


def text_of(path: Path) -> str:
    return path.read_text()


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def supervisor_killed(kind: str, role: str) -> list[int]:
    """Start a supervisor with one process, kill it, and return the pids below it."""
    supervisor = subprocess.Popen(
        [sys.executable, "-P", str(HERE / "spawn_supervisor.py"), kind, role],
        stdout=subprocess.PIPE,
    )
    assert supervisor.stdout is not None
    with supervisor.stdout:
        pids = json.loads(supervisor.stdout.readline())
    supervisor.kill()
    supervisor.wait()
    return pids


def open_fds() -> set[str]:
    return {os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}


def pidfds() -> int:
    """How many processes are watched, those of a spawner that tests share among them."""
    paths = [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return sum("pidfd" in os.readlink(path) for path in paths)


@pytest.mark.parametrize("kind", BOTH)
async def test_spawn_reaches_the_first_message_and_the_exit_status(kind: str, log_fd: int) -> None:
    """A spawned main talks over descriptor 3, and what it returns is its exit status."""
    async with spawning(kind) as spawner:
        process = await spawner.spawn("spawn_mains:hello", "first", log_fd)
        assert await process.channel.receive_some(10) == b"hello"
        await process.channel.aclose()
        ending = await process.wait()
    assert (ending.status, ending.signal, ending.words) == (3, None, "exited with status 3")
    assert ending.cpu_seconds > 0
    assert ending.max_rss_kib > 1000


@pytest.mark.parametrize("kind", BOTH)
async def test_spawn_reports_each_kind_of_end(kind: str, log: Path, log_fd: int) -> None:
    """An uncaught exception is status 70 with its traceback in the log; a signal is named."""
    async with spawning(kind) as spawner:
        failed = await spawner.spawn("spawn_mains:fail", "fail", log_fd)
        left = await spawner.spawn("spawn_mains:leave", "leave", log_fd)
        terminated = await spawner.spawn("spawn_mains:hello", "term", log_fd)
        killed = await spawner.spawn("spawn_mains:hello", "kill", log_fd)
        for process, number in ((terminated, signal.SIGTERM), (killed, signal.SIGKILL)):
            await process.channel.receive_some(10)
            process.signal(number)
        endings = [await each.wait() for each in (failed, left, terminated, killed)]
        for each in (failed, left, terminated, killed):
            await each.channel.aclose()
    assert [ending.words for ending in endings] == [
        "exited with status 70",
        "exited with status 4",
        "killed by SIGTERM",
        "killed by SIGKILL",
    ]
    assert "RuntimeError: boom" in text_of(log)


@pytest.mark.parametrize("kind", BOTH)
async def test_spawn_settles_the_process_before_its_main(
    kind: str, log_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Own session, four descriptors, default signals, the marker, no core file, no dropped key."""
    monkeypatch.setenv("A_KEY", "secret")
    async with spawning(kind) as spawner:
        seen: list[dict[str, object]] = []
        for name in ("one", "two"):
            process = await spawner.spawn("spawn_mains:describe", name, log_fd, env={"EXTRA": name})
            seen.append(json.loads(await said(process)))
            assert name_of(process.pid) == name
            await process.channel.aclose()
            await process.wait()
            assert seen[-1]["pid"] == process.pid
    first, second = seen
    environment = first["environment"]
    assert isinstance(environment, dict)
    assert "A_KEY" not in environment
    assert environment["EXTRA"] == "one"
    assert first["random"] != second["random"]
    expected = {
        "session": first["pid"],
        "marker": f"{first['pid']:010}",
        "open_fds": [0, 1, 2, 3],
        "channel_inheritable": False,
        "stdin": "",
        "core_limit": [0, 0],
        "gc": True,
        "sigint": True,
        "sigterm": True,
        "sigchld": True,
        "wakeup_fd": -1,
        "blocked": [],
        "oom_score": min(1000, oom_score() + 500),
        "threads": 1,
        "cwd": os.getcwd(),
    }
    assert {name: first[name] for name in expected} == expected


async def test_the_zygote_itself_is_not_offered_to_the_killer(log_fd: int) -> None:
    """When memory is short its actors go first: without it they would all go."""
    async with spawning("zygote") as spawner:
        process = await spawner.spawn("spawn_mains:hello", "hello", log_fd)
        assert oom_score(zygote_pid(spawner)) == oom_score()
        assert oom_score(process.pid) > oom_score()
        await process.channel.aclose()


@pytest.mark.parametrize("kind", BOTH)
async def test_output_goes_to_the_log(kind: str, log: Path, log_fd: int) -> None:
    """What a main prints is in its log once and whole, though it leaves without finalizers."""
    async with spawning(kind) as spawner:
        process = await spawner.spawn("spawn_mains:speak", "speak", log_fd)
        await process.wait()
        await process.channel.aclose()
    assert sorted(text_of(log).splitlines()) == ["to stderr", "to stdout"]


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("end", ["eof", "kill"])
async def test_tools_that_outlive_their_actor_are_swept(kind: str, end: str, log_fd: int) -> None:
    """A tool with its own session and a daemonised grandchild are dead before wait returns."""
    async with spawning(kind) as spawner:
        process = await spawner.spawn("spawn_mains:with_tools", "tools", log_fd)
        tools = await pids_said(process)
        if end == "kill":
            process.kill()
        await process.channel.aclose()
        ending = await process.wait()
        assert ending.swept == 2
        for pid in tools:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    "role", ["with_fork", "with_c_fork", "with_renamed_fork", "with_daemon", "with_clean_tool"]
)
async def test_leftovers_without_a_marked_exec_are_swept(kind: str, role: str, log_fd: int) -> None:
    """A fork in its own session is found by its memory, a cleaned environment by the session."""
    async with spawning(kind) as spawner:
        process = await spawner.spawn(f"spawn_mains:{role}", "leaves", log_fd)
        [pid] = await pids_said(process)
        await process.channel.aclose()
        assert (await process.wait()).swept == 1
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("role", ["with_fork", "with_c_fork"])
def test_forks_without_an_exec_are_swept_for_a_user_who_is_not_root(kind: str, role: str) -> None:
    """The kernel shows the environment of such a fork to root alone."""
    script = [sys.executable, "-P", str(HERE / "spawn_ending.py"), kind, f"spawn_mains:{role}"]
    ran = subprocess.run(
        [*as_nobody(), *script], capture_output=True, timeout=LIMIT_SECONDS, check=True
    )
    [pid], swept = json.loads(ran.stdout)
    assert swept == 1
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("kind", BOTH)
async def test_the_fork_of_an_actor_at_work_is_spared(kind: str, log_fd: int) -> None:
    """The end of one actor is no end of another's tools, which it cannot tell by their parent."""
    async with spawning(kind) as spawner:
        first, second = [
            await spawner.spawn("spawn_mains:with_daemon", name, log_fd) for name in ("one", "two")
        ]
        [ended], [spared] = [await pids_said(process) for process in (first, second)]
        await first.channel.aclose()
        assert (await first.wait()).swept == 1
        with pytest.raises(ProcessLookupError):
            os.kill(ended, 0)
        os.kill(spared, 0)
        await second.channel.aclose()
        assert (await second.wait()).swept == 1


@pytest.mark.parametrize("kind", BOTH)
async def test_leaving_the_spawner_kills_what_lives(kind: str, log_fd: int) -> None:
    """At exit of the context every process is dead and reaped, deaf ones included."""
    async with spawning(kind) as spawner:
        process = await spawner.spawn("spawn_mains:wedged", "wedged", log_fd)
        pids = await pids_said(process)
    await process.channel.aclose()
    assert (await process.wait()).words == "killed by SIGKILL"
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize("kind", BOTH)
async def test_exits_are_reported_while_everything_is_being_cancelled(
    kind: str, log_fd: int
) -> None:
    """A Stop inside a shield still hears how its processes end."""
    ending: Exit | None = None
    with trio.CancelScope() as scope:
        async with spawning(kind) as spawner:
            process = await spawner.spawn("spawn_mains:hello", "late", log_fd)
            await process.channel.receive_some(10)
            scope.cancel()
            with trio.CancelScope(shield=True, deadline=trio.current_time() + LIMIT_SECONDS):
                await trio.lowlevel.checkpoint()
                await process.channel.aclose()
                ending = await process.wait()
    assert ending is not None
    assert ending.status == 3


@pytest.mark.parametrize("kind", BOTH)
async def test_an_error_of_the_body_leaves_as_it_came(kind: str) -> None:
    """The spawner's own nursery is not seen in the exceptions of those who use it."""
    with pytest.raises(KeyError, match="mine"):
        async with spawning(kind):
            raise KeyError("mine")


@pytest.mark.parametrize("kind", BOTH)
async def test_no_room_for_descriptors_is_an_error_in_words(kind: str, log_fd: int) -> None:
    """With no free descriptor a spawn fails in words, and works again when there is room."""
    async with spawning(kind) as spawner:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        # The first free number is the limit: not one more fits.
        first_free = os.dup(0)
        os.close(first_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (first_free, hard))
        try:
            with pytest.raises(SpawnError, match="too many open files"):
                await spawner.spawn("spawn_mains:hello", "full", log_fd)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        process = await spawner.spawn("spawn_mains:hello", "room", log_fd)
        assert await process.channel.receive_some(10) == b"hello"
        await process.channel.aclose()


@pytest.mark.parametrize("kind", BOTH)
async def test_descriptors_are_given_back(kind: str, log_fd: int) -> None:
    """After its processes have ended a spawner holds no more descriptors than before."""
    others = pidfds()
    async with spawning(kind) as spawner:
        before: set[str] | None = None
        for _ in range(3):
            process = await spawner.spawn("spawn_mains:hello", "fds", log_fd)
            await process.channel.aclose()
            await process.wait()
            before = before or open_fds()
        assert len(open_fds()) == len(before or ())
    assert pidfds() == others


@pytest.mark.parametrize("kind", BOTH)
async def test_a_cancelled_spawn_leaves_no_process(kind: str, log_fd: int) -> None:
    """Whoever gives up in the middle of a spawn owns nothing, and nothing goes on."""
    async with spawning(kind) as spawner:
        for patience in (0, 0.0005, 0.001, 0.002, 0.004):
            with trio.move_on_after(patience):
                process = await spawner.spawn("spawn_mains:wedged", "given up", log_fd)
                process.kill()
                process.channel.socket.close()
    assert "given up" not in names_of_processes()


async def test_unknown_words_are_refused(log_fd: int) -> None:
    """An unknown role or kind of spawner is the caller's mistake and names what there is."""
    async with spawning("subprocess") as spawner:
        with pytest.raises(ValueError, match="known roles: actor, provider"):
            await spawner.spawn("nobody", "nobody", log_fd)
    with pytest.raises(ValueError, match="known: zygote, subprocess"):
        async with open_spawner("threads"):
            pass


async def test_the_environment_chooses_the_spawner(
    monkeypatch: pytest.MonkeyPatch, log_fd: int
) -> None:
    """EXEUNT_SPAWN=subprocess starts no zygote."""
    monkeypatch.setenv("EXEUNT_SPAWN", "subprocess")
    async with open_spawner(preload=["no.such.module"]) as spawner:
        process = await spawner.spawn("spawn_mains:speak", "plain", log_fd)
        assert (await process.wait()).status == 0
        await process.channel.aclose()


async def test_a_killed_zygote_takes_its_actors_and_the_next_spawn_starts_another(
    log_fd: int,
) -> None:
    """Actors die with their zygote, are reaped and swept after; then a new zygote serves."""
    async with spawning("zygote") as spawner:
        crowd = [await spawner.spawn("spawn_mains:wedged", "crowd", log_fd) for _ in range(3)]
        pids = [pid for process in crowd for pid in await pids_said(process)]
        first = zygote_pid(spawner)
        os.kill(first, signal.SIGKILL)
        endings = [await process.wait() for process in crowd]
        assert [ending.words for ending in endings] == ["killed by SIGKILL"] * 3
        assert [ending.swept for ending in endings] == [1] * 3
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
        for process in crowd:
            await process.channel.aclose()
        process = await spawner.spawn("spawn_mains:hello", "next", log_fd)
        assert await process.channel.receive_some(10) == b"hello"
        await process.channel.aclose()
        assert zygote_pid(spawner) != first


async def test_a_zygote_that_is_killed_while_it_warms_up_is_one_that_died(log_fd: int) -> None:
    """Where one was fit before, the machine is, so the next spawn tries again."""
    preloads = iter([("spawn_mains",), ("spawn_mains:killed",), ("spawn_mains",)])

    def start(control_fd: int, _: Sequence[str], env: Mapping[str, str]) -> tuple[Any, Pidfd]:
        return start_zygote(control_fd, next(preloads), env)

    with trio.fail_after(LIMIT_SECONDS):
        async with open_spawner("zygote", start=start) as spawner:
            process = await spawner.spawn("spawn_mains:hello", "first", log_fd)
            os.kill(zygote_pid(spawner), signal.SIGKILL)
            await process.wait()
            await process.channel.aclose()
            with pytest.raises(ZygoteDied):
                await spawner.spawn("spawn_mains:hello", "second", log_fd)
            process = await spawner.spawn("spawn_mains:hello", "third", log_fd)
            assert await process.channel.receive_some(10) == b"hello"
            await process.channel.aclose()


async def test_a_spawn_that_meets_a_dying_zygote_fails_in_words(log_fd: int) -> None:
    """A spawn under way when the zygote dies is an error, not a wait."""
    async with spawning("zygote") as spawner:
        os.kill(zygote_pid(spawner), signal.SIGSTOP)
        async with trio.open_nursery() as nursery:

            async def spawn() -> None:
                with pytest.raises(SpawnError, match="the zygote died"):
                    await spawner.spawn("spawn_mains:hello", "never", log_fd)

            nursery.start_soon(spawn)
            await trio.testing.wait_all_tasks_blocked()
            os.kill(zygote_pid(spawner), signal.SIGKILL)


async def test_a_stuck_zygote_is_killed_when_it_owes_a_report(
    log_fd: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A death without a report does not leave its waiters waiting."""
    monkeypatch.setattr(zygote_spawner, "REPORT_SECONDS", 0.05)
    async with spawning("zygote") as spawner:
        process = await spawner.spawn("spawn_mains:hello", "stuck", log_fd)
        os.kill(zygote_pid(spawner), signal.SIGSTOP)
        process.kill()
        assert (await process.wait()).words == "killed by SIGKILL"
        await process.channel.aclose()
    assert "has not reported" in caplog.text


async def test_a_spawn_has_a_time_limit_and_leaves_nothing(
    log_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spawn that takes too long is an error, and what is born later is killed at once."""
    monkeypatch.setattr(spawner_module, "SPAWN_SECONDS", 0.02)
    async with spawning("zygote") as spawner:
        os.kill(zygote_pid(spawner), signal.SIGSTOP)
        with pytest.raises(SpawnError, match="no process was made within"):
            await spawner.spawn("spawn_mains:wedged", "too late", log_fd)
        os.kill(zygote_pid(spawner), signal.SIGCONT)
        monkeypatch.setattr(spawner_module, "SPAWN_SECONDS", LIMIT_SECONDS)
        process = await spawner.spawn("spawn_mains:speak", "in time", log_fd)
        assert (await process.wait()).status == 0
        await process.channel.aclose()
    assert "too late" not in names_of_processes()


async def test_a_cancelled_start_does_not_wait_for_the_warm_up() -> None:
    """Whoever gives up while the zygote warms up is free at once."""
    with trio.fail_after(1), trio.move_on_after(0.01) as patience:
        async with open_spawner("zygote", preload=["spawn_mains:never_warm"]):
            pass
    assert patience.cancelled_caught


async def test_the_zygote_ignores_the_terminals_signals(log_fd: int) -> None:
    """Ctrl-C, SIGTERM and SIGHUP are the supervisor's business."""
    async with spawning("zygote") as spawner:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(zygote_pid(spawner), number)
        before = zygote_pid(spawner)
        process = await spawner.spawn("spawn_mains:speak", "after", log_fd)
        assert (await process.wait()).status == 0
        await process.channel.aclose()
        assert zygote_pid(spawner) == before


async def test_a_zygote_without_free_descriptors_says_so(log_fd: int) -> None:
    """The zygote's own limits come back as the spawn's error."""
    async with spawning("zygote", ("spawn_mains", "spawn_mains:allow_dumps")) as spawner:
        zygote = zygote_pid(spawner)
        soft, hard = resource.prlimit(zygote, resource.RLIMIT_NOFILE)
        # No room for the channel, for the log, for the pidfd.
        for limit in limits_that_leave_room(zygote, (0, 1, 2)):
            resource.prlimit(zygote, resource.RLIMIT_NOFILE, (limit, hard))
            with pytest.raises(SpawnError, match=r"open files|watched"):
                await spawner.spawn("spawn_mains:hello", "full", log_fd)
        resource.prlimit(zygote, resource.RLIMIT_NOFILE, (soft, hard))
        process = await spawner.spawn("spawn_mains:speak", "room", log_fd)
        assert (await process.wait()).status == 0
        await process.channel.aclose()


async def test_no_more_processes_allowed_is_an_error_in_words(log_fd: int) -> None:
    """The kernel's refusal to fork reaches the caller as a SpawnError."""
    async with spawning("zygote", ("spawn_mains", "spawn_mains:forbid_processes")) as spawner:
        with pytest.raises(SpawnError, match="no process could be made: Resource temporarily"):
            await spawner.spawn("spawn_mains:hello", "refused", log_fd)


async def test_a_failed_preload_is_an_error_at_the_start() -> None:
    """A module that cannot be imported is named when the spawner opens, not in each actor."""
    with pytest.raises(SpawnError, match=r"No module named 'no_such_module'"):
        async with spawning("zygote", ("no_such_module",)):
            pass


async def test_an_unfit_zygote_gives_way_to_plain_subprocesses(
    log_fd: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A preload that leaves a thread makes forking unsafe: said once, and the work goes on."""
    with caplog.at_level(logging.WARNING, "exeunt.spawner"):
        async with spawning("zygote", ("spawn_mains:start_thread",)) as spawner:
            process = await spawner.spawn("spawn_mains:speak", "plain", log_fd)
            assert (await process.wait()).status == 0
            await process.channel.aclose()
    assert "for lack of a zygote: the preload left 1 threads running" in caplog.text


async def test_fifty_spawns_at_once_are_quick(log_fd: int) -> None:
    """Fifty processes say hello in a time that fresh interpreters could not keep."""
    async with spawning("zygote") as spawner:
        started = time.perf_counter()

        async def meet() -> None:
            process = await spawner.spawn("spawn_mains:hello", "crowd", log_fd)
            assert await process.channel.receive_some(10) == b"hello"
            await process.channel.aclose()
            assert (await process.wait()).status == 3

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(meet)
        assert time.perf_counter() - started < 2


@pytest.mark.slow
@pytest.mark.parametrize("role", ["with_tools", "wedged"])
async def test_a_killed_supervisor_leaves_no_orphan(role: str) -> None:
    """After SIGKILL of the supervisor its actors and tools are gone, deaf ones after a grace."""
    pids = supervisor_killed("zygote", f"spawn_mains:{role}")
    assert len(pids) == 3
    with trio.fail_after(LIMIT_SECONDS):
        for pid in pids:
            await gone(pid)


@pytest.mark.slow
async def test_a_plain_process_sees_its_supervisors_death_by_its_channel() -> None:
    """Without a zygote the end of input is the news; whoever hears it leaves."""
    process, *tools = supervisor_killed("subprocess", "spawn_mains:with_tools")
    with trio.fail_after(LIMIT_SECONDS):
        await gone(process)
    # Ending its tools would have been the actor's own part, which this main does not play.
    for pid in tools:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
async def test_the_real_preload_leaves_a_zygote_that_can_fork(log_fd: int) -> None:
    """What actors need is imported and warmed up without a thread, and an actor starts from it."""
    async with open_spawner("zygote") as spawner:
        assert zygote_pid(spawner) > 0
        process = await spawner.spawn("actor", "real", log_fd)
        await process.channel.aclose()
        with trio.fail_after(LIMIT_SECONDS):
            assert (await process.wait()).status == 0
