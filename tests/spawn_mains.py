"""Mains for processes that the spawner tests start: each takes its channel's descriptor."""

import contextlib
import ctypes
import gc
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

from actors import prctl


def _channel(fd: int) -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=fd)


def _until_eof(channel: socket.socket) -> None:
    while channel.recv(100):
        pass


def hello(fd: int) -> int:
    """Say hello, stay until the channel is closed, leave with status 3."""
    channel = _channel(fd)
    channel.sendall(b"hello")
    _until_eof(channel)
    return 3


def oom_score(pid: int | str = "self") -> int:
    """How willingly a process goes when memory is short."""
    with open(f"/proc/{pid}/oom_score_adj") as file:
        return int(file.read())


def describe(fd: int) -> int:
    """Send what this process looks like from inside, as JSON."""
    channel = _channel(fd)
    open_fds: list[int] = []
    for number in range(64):
        with contextlib.suppress(OSError):
            os.fstat(number)
            open_fds.append(number)
    facts = {
        "pid": os.getpid(),
        "session": os.getsid(0),
        "marker": os.environ.get("EXEUNT_ACTOR"),
        "open_fds": open_fds,
        "channel_inheritable": os.get_inheritable(fd),
        "stdin": sys.stdin.read(),
        "core_limit": resource.getrlimit(resource.RLIMIT_CORE),
        "environment": dict(os.environ),
        "gc": gc.isenabled(),
        "random": random.random(),
        "sigint": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "sigterm": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
        "sigchld": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
        "wakeup_fd": signal.set_wakeup_fd(-1),
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "oom_score": oom_score(),
        "threads": threading.active_count(),
        "cwd": os.getcwd(),
    }
    channel.sendall(json.dumps(facts).encode())
    channel.shutdown(socket.SHUT_WR)
    _until_eof(channel)
    return 0


def killed() -> None:
    """Be a preload that is killed from outside."""
    os.kill(os.getpid(), signal.SIGKILL)


def speak(fd: int) -> int:
    """Write to both outputs without a flush."""
    sys.stdout.write("to stdout\n")
    sys.stderr.write("to stderr\n")
    return 0


def fail(fd: int) -> int:
    raise RuntimeError("boom")


def leave(fd: int) -> int:
    raise SystemExit(4)


def with_tools(fd: int) -> int:
    """Start a tool in its own session and a daemon, tell their pids, leave at the end of input."""
    channel = _channel(fd)
    tool = subprocess.Popen(["sleep", "600"], start_new_session=True)
    script = "(setsid sleep 600 & echo $!) & wait"
    daemon = subprocess.run(
        ["sh", "-c", script.replace("sleep 600", "sleep 600 >/dev/null")],
        stdout=subprocess.PIPE,
        start_new_session=True,
        check=True,
    )
    channel.sendall(json.dumps([tool.pid, int(daemon.stdout)]).encode())
    _until_eof(channel)
    return 0


def with_fork(fd: int) -> int:
    """Leave a child behind that was forked and never exec'ed, in a session of its own."""
    return _with_child(fd, os.fork)


def with_c_fork(fd: int) -> int:
    """The same by the system's own fork, as an extension would, past what Python does at forks."""
    return _with_child(fd, ctypes.PyDLL(None).fork)


def with_renamed_fork(fd: int) -> int:
    """The same with a name of its own."""

    def fork() -> int:
        pid = os.fork()
        if pid == 0:
            prctl.rename("somebody")
        return pid

    return _with_child(fd, fork)


def with_daemon(fd: int) -> int:
    """The same by a fork whose own parent is gone, and stay until the end of input."""

    def fork() -> int:
        left, came = os.pipe()
        if between := os.fork():
            os.waitpid(between, 0)
            return int(os.read(left, 20))
        if pid := os.fork():
            os.write(came, str(pid).encode())
            os._exit(0)
        return 0

    return _with_child(fd, fork, stay=True)


def _with_child(fd: int, fork: Callable[[], int], *, stay: bool = False) -> int:
    left, came = os.pipe()
    pid = fork()
    if pid == 0:
        os.setsid()
        os.close(fd)
        os.write(came, b"!")
        signal.pause()
        os._exit(0)
    os.read(left, 1)
    channel = _channel(fd)
    channel.sendall(json.dumps([pid]).encode())
    if stay:
        _until_eof(channel)
    return 0


def with_clean_tool(fd: int) -> int:
    """Leave a tool behind that sees no environment but stays in its actor's session."""
    tool = subprocess.Popen(["sleep", "600"], env={}, process_group=0)
    _channel(fd).sendall(json.dumps([tool.pid]).encode())
    return 0


def wedged(fd: int) -> int:
    """Like with_tools, but deaf: neither the end of input nor SIGTERM ends it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel = _channel(fd)
    tool = subprocess.Popen(["sleep", "600"], start_new_session=True)
    channel.sendall(json.dumps([os.getpid(), tool.pid]).encode())
    while True:
        signal.pause()


def start_thread() -> int:
    """A preload that leaves a thread running."""
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return 0


def allow_dumps() -> int:
    """A preload after which an ordinary user can look into the zygote."""
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE
    return 0


def never_warm() -> int:
    """A preload that does not come to an end."""
    signal.pause()
    return 0


def forbid_processes() -> int:
    """A preload after which the zygote may not fork."""
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    if os.geteuid() == 0:
        os.setuid(65534)
    return 0
