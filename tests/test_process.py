"""A tool's subprocess: bounded in output and time, and dead with its whole group."""

import os
import signal
import sys
from collections.abc import Iterator

import pytest
import trio

from actors import process
from actors.process import run_process, tool_environment
from actors.tool_errors import PermanentError, ToolError

ENVIRONMENT = tool_environment()


class Leash:
    """A pipe whose write end every process of a tool inherits: its end of file is their death."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()

    async def line(self) -> bytes:
        """Wait for something that a process wrote to the pipe."""
        with trio.fail_after(2):
            await trio.lowlevel.wait_readable(self.read_end)
        return os.read(self.read_end, 4096)

    async def all_dead(self) -> None:
        """Close our end and wait until nobody holds another."""
        os.close(self.write_end)
        self.write_end = -1
        while await self.line():
            pass

    def close(self) -> None:
        os.close(self.read_end)
        if self.write_end >= 0:
            os.close(self.write_end)


@pytest.fixture
def leash() -> Iterator[Leash]:
    made = Leash()
    yield made
    made.close()


async def run(leash: Leash, script: str, **options):
    return await run_process(
        ["sh", "-c", script],
        environment={**ENVIRONMENT, "LEASH": str(leash.write_end)},
        pass_fds=(leash.write_end,),
        **options,
    )


async def test_a_program_gives_its_outputs_and_its_status():
    """Both streams come back as text, and a failure is a number, not an exception."""
    result = await run_process(
        ["sh", "-c", "cat; echo oops >&2; exit 3"], environment=ENVIRONMENT, input="héllo"
    )
    assert (result.returncode, result.stdout, result.stderr) == (3, "héllo", "oops\n")


async def test_a_program_without_input_reads_an_end_of_file():
    """It can never wait for the terminal of the person who started the run."""
    assert (await run_process(["cat"], environment=ENVIRONMENT)).stdout == ""


async def test_input_that_nobody_reads_is_no_error():
    """A program may exit before it has taken all its input."""
    result = await run_process(["true"], environment=ENVIRONMENT, input=b"x" * 1_000_000)
    assert result.returncode == 0


async def test_a_background_process_dies_when_the_leader_exits(leash: Leash):
    """``sleep 999 &`` neither keeps the call waiting for its pipe nor lives on."""
    with trio.fail_after(2):
        result = await run(leash, "sleep 999 & echo started")
    assert result.stdout == "started\n"
    await leash.all_dead()


async def test_a_process_that_left_the_group_cannot_hold_the_call(leash: Leash, monkeypatch):
    """The pipe of a grandchild in its own session is read for a short bound only."""
    monkeypatch.setattr(process, "DRAIN_SECONDS", 0.02)
    with trio.fail_after(2):
        result = await run(leash, "setsid sleep 999 & echo $!")
    os.kill(int(result.stdout), signal.SIGKILL)
    await leash.all_dead()


async def test_a_timeout_kills_the_group_and_says_so(leash: Leash):
    """A process that ignores SIGTERM is over when its time is."""
    script = "trap '' TERM INT; echo going; (trap '' TERM; sleep 999) & wait"
    with pytest.raises(ToolError, match=r"did not end within 0\.05 s.*going"):
        await run(leash, script, timeout_s=0.05)
    await leash.all_dead()


async def test_a_cancel_kills_the_group_and_reaps_the_leader(leash: Leash):
    """After a cancelled call no process of it is left, not even a zombie."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, leash, "sleep 999 & echo $$ > /dev/fd/$LEASH; wait")
        pid = int(await leash.line())
        nursery.cancel_scope.cancel()
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222  # it does not wait
    await leash.all_dead()


async def test_endless_output_is_stopped_with_head_and_tail(leash: Leash):
    """A stream without end costs a bounded amount of memory, and its writer is killed."""
    with trio.fail_after(2):
        result = await run(leash, "echo first; yes; echo never", max_output_bytes=4000)
    assert result.overflowed
    assert result.returncode == -signal.SIGKILL
    assert result.stdout.startswith("first\ny\n")
    assert "bytes left out" in result.stdout
    assert len(result.stdout) < 4100
    await leash.all_dead()


async def test_long_output_keeps_its_head_and_its_tail():
    """What is left out is counted, and the program ends by itself."""
    result = await run_process(
        ["sh", "-c", "seq 1 300"], environment=ENVIRONMENT, max_output_bytes=100
    )
    assert not result.overflowed
    assert result.stdout.startswith("1\n2\n3\n")
    assert result.stdout.endswith("299\n300\n")
    assert f"[... {sum(len(str(n)) + 1 for n in range(1, 301)) - 100} bytes left out ...]" in (
        result.stdout
    )


async def test_output_that_is_no_text_is_mended():
    """Odd bytes become U+FFFD, so that the result can always be stored."""
    result = await run_process(["printf", r"a\377b"], environment=ENVIRONMENT)
    assert result.stdout == "a\ufffdb"


async def test_a_name_that_no_folder_has_is_missing_whatever_else_is_there(tmp_path):
    """A folder of PATH that is closed to us changes nothing, nor does a file that is no program."""
    closed, noise = tmp_path / "closed", tmp_path / "noise"
    closed.mkdir(mode=0)
    noise.mkdir()
    (noise / "gone").write_text("no program")
    for folder in (closed, noise):
        environment = {**ENVIRONMENT, "PATH": f"{folder}:{ENVIRONMENT['PATH']}"}
        with pytest.raises(ToolError, match="There is no gone to run"):
            await run_process(["gone"], environment=environment)
        assert (await run_process(["true"], environment=environment)).returncode == 0


async def test_a_program_that_cannot_start_is_an_error_in_words(tmp_path):
    """A missing program is the model's to mend; a forbidden one is nobody's in this run."""
    (tmp_path / "data").write_text("no program")
    with pytest.raises(ToolError, match="There is no no-such-program to run"):
        await run_process(["no-such-program"], environment=ENVIRONMENT)
    with pytest.raises(ToolError, match=r"There is no .*/gone to run"):
        await run_process(["true"], environment=ENVIRONMENT, cwd=tmp_path / "gone")
    with pytest.raises(PermanentError, match="permission denied"):
        await run_process([str(tmp_path / "data")], environment=ENVIRONMENT)
    with pytest.raises(ToolError, match="could not be started: embedded null byte"):
        await run_process(["a\0b"], environment=ENVIRONMENT)
    with pytest.raises(ToolError, match="argv is empty"):
        await run_process([], environment=ENVIRONMENT)


async def test_a_process_sees_only_the_allowed_variables(monkeypatch):
    """A key in the environment does not reach a tool's program unless it is named."""
    monkeypatch.setenv("SOME_API_KEY", "secret")
    monkeypatch.setenv("NAMED", "wanted")
    monkeypatch.setenv("LC_TIME", "C")
    environment = tool_environment(["NAMED"], marker="42")
    seen = (await run_process(["env"], environment=environment)).stdout
    assert "secret" not in seen
    for line in ("NAMED=wanted", "LC_TIME=C", "EXEUNT_ACTOR=42"):
        assert line in seen.splitlines()


async def test_a_process_inherits_no_other_descriptor(leash: Leash):
    """Only the standard three and those passed on are open in the program."""
    os.set_inheritable(leash.read_end, True)
    result = await run(leash, "ls /proc/$$/fd")
    assert {0, 1, 2} <= set(map(int, result.stdout.split()))
    assert leash.write_end in map(int, result.stdout.split())
    assert leash.read_end not in map(int, result.stdout.split())


async def test_no_descriptor_is_left_behind():
    """A hundred runs would otherwise end with too many open files."""
    await run_process(["true"], environment=ENVIRONMENT, input=b"x")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await run_process(["true"], environment=ENVIRONMENT, input=b"x")
    assert len(os.listdir("/proc/self/fd")) == before


FORKED = """
import os, trio
from actors.process import run_process, tool_environment
pid = os.fork()
if pid == 0:
    async def main():
        script = "sleep 99 & echo ok"
        result = await run_process(["sh", "-c", script], environment=tool_environment())
        os._exit(0 if result.stdout == "ok\\n" else 1)
    trio.run(main)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.slow
async def test_a_process_runs_in_a_forked_actor():
    """An actor forked from a process that has everything imported can start programs."""
    result = await run_process(
        [sys.executable, "-c", FORKED],
        environment={**ENVIRONMENT, "PYTHONPATH": os.getcwd()},
        timeout_s=10,
    )
    assert (result.returncode, result.stderr) == (0, "")
