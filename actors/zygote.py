"""The fork server: a warm, single-threaded process that makes actors in milliseconds.

Run as ``python -P -m actors.zygote FD PRELOAD...``, where FD is its end of a SOCK_SEQPACKET pair
and each preload is a module to import, or a ``module:function`` to call. It has no threads, no
event loop and no locks: it polls its control socket and a SIGCHLD pipe. It is the custodian of the
actors' tools, and when its supervisor is gone it sees to it that nothing stays behind.
"""

import contextlib
import gc
import importlib
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from actors import custodian, heap, prctl
from actors.birth import find, live, prepare
from actors.control import (
    FDS_MAX,
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
from actors.oom_score import OomScore

GRACE_SECONDS = 2.0
"""How long actors may save and leave by themselves once the supervisor is gone."""

LEISURE_MS = 50
"""After this time without work the zygote does what only saves work later, in small steps."""
TREE_FORKS = 4
"""From so many on they are likely to be a tree's; a run alone would not earn it back."""

DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Zygote:
    """The serving half: one control socket, a set of living actors."""

    def __init__(self, control: socket.socket, score: OomScore) -> None:
        self._control = control
        self._score = score
        self._actors: set[int] = set()
        self._forks = 0
        self._decoder = msgspec.msgpack.Decoder(Spawn)
        self._wakeup, self._wakeup_sender = socket.socketpair()
        for end in (self._wakeup, self._wakeup_sender):
            end.setblocking(False)

    def serve(self) -> None:
        """Spawn and reap until the supervisor closes the control socket, then end what is left."""
        # Without a handler of Python's no byte is written to the pipe.
        signal.signal(signal.SIGCHLD, _heard)
        signal.set_wakeup_fd(self._wakeup_sender.fileno(), warn_on_full_buffer=False)
        poller = select.poll()
        poller.register(self._wakeup, select.POLLIN)
        poller.register(self._control, select.POLLIN)
        leisure, idle, more = heap.collapse(), False, True
        try:
            self.send(Ready(time.process_time()))
            while True:
                waits = None
                if more and self._forks >= TREE_FORKS:
                    waits = 0 if idle else LEISURE_MS
                ready = {fd for fd, _ in poller.poll(waits)}
                idle = not ready
                if idle:
                    more = next(leisure, False)
                if self._wakeup.fileno() in ready:
                    for report in self._reap():
                        self.send(report)
                if self._control.fileno() in ready and not self._receive():
                    break
        except ConnectionError:
            pass  # An answer found nobody to take it: the supervisor is gone.
        self._wind_up()

    def send(self, packet: FromZygote, fds: Sequence[int] = ()) -> None:
        """Send one packet; raises ConnectionError when the supervisor is gone."""
        self._control.sendmsg([encode(packet)], rights(list(fds)))

    def _receive(self) -> bool:
        """Handle one packet; False at the end of the connection."""
        room = socket.CMSG_LEN(FDS_MAX * 4)
        data, ancillary, _, _ = self._control.recvmsg(PACKET_MAX, room, socket.MSG_CMSG_CLOEXEC)
        fds = received_fds(ancillary)
        try:
            if not data:
                return False
            request = self._decoder.decode(data)
            if len(fds) != FDS_MAX:
                self.send(Failed(request.id, "the zygote has no room for more open files"))
            else:
                self._spawn(request, *fds)
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _spawn(self, request: Spawn, channel_fd: int, log_fd: int) -> None:
        # What is unflushed here would be printed again by every child.
        sys.stdout.flush()
        sys.stderr.flush()
        zygote_pid = os.getpid()
        # A fork takes it over, and could not set it: its /proc/self belongs to root.
        self._score.offer()
        try:
            pid = os.fork()
            if pid == 0:
                self._become(request, channel_fd, log_fd, zygote_pid)
        except OSError as error:
            self.send(Failed(request.id, f"no process could be made: {error.strerror}"))
            return
        finally:
            self._score.withdraw()
        self._actors.add(pid)
        self._forks += 1
        try:
            # Opened before anybody can reap it, so it cannot name a stranger.
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            os.kill(pid, signal.SIGKILL)
            self.send(Failed(request.id, f"the process cannot be watched: {error.strerror}"))
            return
        try:
            self.send(Spawned(request.id, pid), [pidfd])
        finally:
            os.close(pidfd)

    def _become(self, request: Spawn, channel_fd: int, log_fd: int, zygote_pid: int) -> NoReturn:
        """Be the fork: undo what makes a zygote, and live as the actor."""
        # The child closes these numbers and reuses them, so no object may close them later.
        for end in (self._control, self._wakeup, self._wakeup_sender):
            end.detach()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, DEAF_TO)
        live(request.role, request.name, channel_fd, log_fd, zygote_pid, request.env)

    def _reap(self) -> list[Exited]:
        """Collect every dead child, sweep after the actors among them, and tell of these."""
        # Drained before the reaping: a later signal finds an empty pipe and wakes us again.
        while self._drained():
            pass
        ended: dict[int, tuple[int, resource.struct_rusage]] = {}
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid in self._actors:
                self._actors.remove(pid)
                ended[pid] = (status, usage)
        if not ended:
            return []
        swept = custodian.sweep(ended, spare=self._actors)
        return [
            Exited(pid, status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss, swept[pid])
            for pid, (status, usage) in ended.items()
        ]

    def _drained(self) -> bool:
        try:
            return bool(self._wakeup.recv(4096))
        except BlockingIOError:
            return False

    def _wind_up(self) -> None:
        """Give the actors, whose channels are closed too, some grace; then kill, reap and sweep."""
        self._reap_until(time.monotonic() + GRACE_SECONDS)
        for pid in self._actors:
            os.kill(pid, signal.SIGKILL)
        self._reap_until(time.monotonic() + GRACE_SECONDS)

    def _reap_until(self, deadline: float) -> None:
        poller = select.poll()
        poller.register(self._wakeup, select.POLLIN)
        self._reap()
        while self._actors and (left := deadline - time.monotonic()) > 0:
            poller.poll(left * 1000)
            self._reap()


def _heard(*_: object) -> None:
    """Do nothing: the wakeup pipe has the news."""


def warm_up(preload: Sequence[str]) -> None:
    """Import each module, call each ``module:function``, and freeze the heap for sharing."""
    for entry in preload:
        if ":" in entry:
            find(entry)()
        else:
            importlib.import_module(entry)
    # Frozen objects are never visited by a collection, so their pages stay shared with the actors.
    gc.collect()
    heap.fill_gaps()
    gc.freeze()
    gc.disable()


def self_check() -> str | None:
    """What this machine or process lacks for forking actors safely, in words."""
    tasks = len(list(Path("/proc/self/task").iterdir()))
    if tasks != 1:
        return f"the preload left {tasks - 1} threads running, and forking would lose them"
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
        return "/proc shows no list of children, so orphans could not be found"
    try:
        prctl.adopt_orphans()
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return f"the kernel refuses: {error}"
    return None


def main(arguments: Sequence[str]) -> int:
    """Warm up, report, serve."""
    prctl.rename("exeunt-zygote")
    score = OomScore()
    prepare()
    # Ctrl-C and a closed terminal concern the supervisor, which tells us by closing the control.
    # Blocked rather than ignored: a fork starts with none pending, and has only to unblock.
    signal.pthread_sigmask(signal.SIG_BLOCK, DEAF_TO)
    control = socket.socket(fileno=int(arguments[0]))
    control.set_inheritable(False)
    zygote = Zygote(control, score)
    try:
        warm_up(arguments[1:])
    except Exception as error:
        traceback.print_exc()
        return _unfit(zygote, f"{type(error).__name__}: {error}"[:1000], preload=True)
    if words := self_check():
        return _unfit(zygote, words, preload=False)
    zygote.serve()
    return 0


def _unfit(zygote: Zygote, words: str, *, preload: bool) -> int:
    # A supervisor that is gone needs no answer.
    with contextlib.suppress(ConnectionError):
        zygote.send(Unfit(words, preload=preload))
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
