"""The zygote by itself, spoken to over its control socket as a supervisor would."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import msgspec
import pytest

from actors import custodian, prctl
from actors.birth import main_path
from actors.control import (
    PACKET_MAX,
    Exited,
    Failed,
    FromZygote,
    Ready,
    Spawn,
    Spawned,
    Unfit,
    encode,
    received_fds,
    rights,
)

HERE = Path(__file__).parent
LIMIT_SECONDS = 10


class ControlEnd:
    """The supervisor's half of the control socket, blocking, with an end to every wait."""

    def __init__(self, end: socket.socket) -> None:
        end.settimeout(LIMIT_SECONDS)
        self.end = end
        self.decoder: msgspec.msgpack.Decoder[FromZygote] = msgspec.msgpack.Decoder(FromZygote)

    def send(self, packet: Spawn, fds: Sequence[int]) -> None:
        self.end.sendmsg([encode(packet)], rights(list(fds)))

    def hear(self) -> tuple[FromZygote | None, list[int]]:
        data, ancillary, _, _ = self.end.recvmsg(PACKET_MAX, socket.CMSG_LEN(4))
        return (self.decoder.decode(data) if data else None), received_fds(ancillary)


@contextlib.contextmanager
def zygote(*preload: str) -> Generator[tuple[ControlEnd, "subprocess.Popen[bytes]"]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    paths = [str(HERE), os.environ.get("PYTHONPATH", "")]
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "actors.zygote", str(theirs.fileno()), *preload],
            pass_fds=[theirs.fileno()],
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )
        assert process.stderr is not None
        with process.stderr:
            theirs.close()
            try:
                yield ControlEnd(ours), process
            finally:
                ours.close()
                process.wait(LIMIT_SECONDS)


def spawn(
    control: ControlEnd, role: str, number: int = 1
) -> tuple[FromZygote | None, socket.socket, list[int]]:
    ours, theirs = socket.socketpair()
    ours.settimeout(LIMIT_SECONDS)
    log_fd = os.open(os.devnull, os.O_WRONLY)
    with theirs:
        control.send(Spawn(number, role, "test", {}), [theirs.fileno(), log_fd])
    os.close(log_fd)
    answer, fds = control.hear()
    return answer, ours, fds


def test_a_zygote_answers_ready_then_pid_then_exit() -> None:
    """Ready first; each spawn is answered with a pid and a pidfd, each death with its status."""
    with zygote("spawn_mains") as (control, process):
        ready, _ = control.hear()
        assert isinstance(ready, Ready)
        born, channel, [pidfd] = spawn(control, "spawn_mains:hello", number=7)
        assert isinstance(born, Spawned)
        assert born.id == 7
        with channel:
            assert channel.recv(10) == b"hello"
            signal.pidfd_send_signal(pidfd, 0)
        os.close(pidfd)
        ended, _ = control.hear()
        assert isinstance(ended, Exited)
        assert (ended.pid, os.waitstatus_to_exitcode(ended.status)) == (born.pid, 3)
    assert process.returncode == 0


def test_a_zygote_without_a_supervisor_ends_its_actors() -> None:
    """When the control socket closes, actors that listen leave by themselves and it follows."""
    with zygote("spawn_mains") as (control, process):
        control.hear()
        _, channel, [pidfd] = spawn(control, "spawn_mains:with_tools")
        with channel:
            tools = json.loads(channel.recv(1000))
            channel.shutdown(socket.SHUT_WR)
            control.end.close()
            process.wait(LIMIT_SECONDS)
        os.close(pidfd)
        for pid in tools:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
    assert process.returncode == 0


def test_a_request_without_descriptors_is_refused() -> None:
    """A spawn whose descriptors were lost on the way is answered, and the next one is served."""
    with zygote("spawn_mains") as (control, _):
        control.hear()
        control.send(Spawn(1, "spawn_mains:hello", "test", {}), [])
        refused, _ = control.hear()
        assert refused == Failed(1, "the zygote has no room for more open files")
        born, channel, [pidfd] = spawn(control, "spawn_mains:hello", number=2)
        channel.close()
        os.close(pidfd)
        assert isinstance(born, Spawned)


@pytest.mark.parametrize(
    ("preload", "words"),
    [
        ("no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("spawn_mains:fail_to_load", "AttributeError"),
    ],
)
def test_a_failed_preload_is_told_and_ends_it(preload: str, words: str) -> None:
    """The words go to the supervisor, the traceback to stderr, and nothing is served cold."""
    with zygote(preload) as (control, process):
        unfit, _ = control.hear()
        assert isinstance(unfit, Unfit)
        assert unfit.preload
        assert unfit.words.startswith(words)
        assert process.stderr is not None
        assert b"Traceback" in process.stderr.read()
    assert process.returncode == 1


def test_a_thread_left_by_a_preload_makes_it_unfit() -> None:
    """A fork copies one thread only, so with several the zygote does not serve."""
    with zygote("spawn_mains:start_thread") as (control, _):
        unfit, _ = control.hear()
    assert unfit == Unfit(
        "the preload left 1 threads running, and forking would lose them", preload=False
    )


def test_an_actor_survives_garbage_in_its_environment() -> None:
    """What fails between fork and main ends that process alone, with status 70."""
    with zygote("spawn_mains") as (control, _):
        control.hear()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            bad = Spawn(1, "spawn_mains:hello", "test", {"NUL": "a\0b"})
            control.send(bad, [theirs.fileno(), 2])
            _, [pidfd] = control.hear()
            os.close(pidfd)
            ended, _ = control.hear()
        assert isinstance(ended, Exited)
        assert os.waitstatus_to_exitcode(ended.status) == 70
        born, channel, [pidfd] = spawn(control, "spawn_mains:hello", number=2)
        channel.close()
        os.close(pidfd)
        assert isinstance(born, Spawned)


def test_a_sweep_spares_what_is_not_the_actors() -> None:
    """Children without the marker, with another's, or with it in their arguments live on."""
    mark = f"{custodian.MARKER}=999999"
    tool, other, stranger, reader = (
        subprocess.Popen(
            ["sh", "-c", "read line", "sh", *arguments],
            stdin=subprocess.PIPE,
            env={**os.environ, **marker},
            start_new_session=True,
        )
        for marker, arguments in (
            ({custodian.MARKER: "999999"}, []),
            ({custodian.MARKER: "999998"}, []),
            ({}, []),
            ({}, [mark]),
        )
    )
    try:
        assert custodian.sweep([999999]) == {999999: 1}
        with pytest.raises(ProcessLookupError):
            os.kill(tool.pid, 0)
        assert other.poll() is None
        assert stranger.poll() is None
        assert reader.poll() is None
        assert custodian.sweep([999998], spare={other.pid}) == {999998: 0}
    finally:
        for process in (tool, other, stranger, reader):
            process.kill()
            process.communicate()


def test_a_sweep_reaches_the_last_grandchild() -> None:
    """Each kill hands over the children of the killed, and these are swept in the next round."""
    prctl.adopt_orphans()
    script = "setsid sh -c 'setsid sh -c \"echo up; sleep 600; true\"; true'; true"
    root = subprocess.Popen(
        ["sh", "-c", script],
        env={**os.environ, custodian.MARKER: "999997"},
        stdout=subprocess.PIPE,
    )
    assert root.stdout is not None
    with root.stdout as output:
        assert output.readline() == b"up\n"
        assert custodian.sweep([999997])[999997] >= 3
        # Nobody holds the other end any more.
        assert output.read() == b""
    root.wait()


def test_roles_are_words_or_paths() -> None:
    """A role is one of ours or names its function; anything else is refused with the words."""
    assert main_path("actor") == "actors.actor:main"
    assert main_path("some.module:function") == "some.module:function"
    with pytest.raises(ValueError, match="unknown role 'actr'; known roles: actor, provider"):
        main_path("actr")


@pytest.mark.parametrize(
    ("preload", "status"), [("json", 0), ("no_such_module", 1)], ids=["fit", "unfit"]
)
def test_a_supervisor_that_is_gone_before_the_zygote_is_ready_hears_nothing(
    preload: str, status: int
) -> None:
    """It leaves at once, and no traceback stands on the terminal that the two shared."""
    with zygote(preload) as (control, process):
        control.end.close()
        assert process.wait(LIMIT_SECONDS) == status
        assert process.stderr is not None
        assert b"BrokenPipe" not in process.stderr.read()
