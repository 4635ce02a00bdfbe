"""Spawning through the zygote: processes in milliseconds, forked by a warm one.

``Life`` is one zygote process from its start to its burial; ``ZygoteSpawner`` has at most one of
them and starts the next when a spawn finds the last one dead. Actors die with their zygote
(PDEATHSIG), so a burial waits for all of them before it sweeps: only then are their tools ours.
"""

import itertools
import logging
import socket
from collections.abc import Mapping, Sequence

import msgspec
import trio

from actors import custodian
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
from supervisor.pidfd import Pidfd
from supervisor.spawned import Exit, Process, SpawnError, exit_of, exit_of_child
from supervisor.zygote_process import StartZygote, start_zygote

READY_SECONDS = 60.0
"""Longest warm-up of a zygote."""

REPORT_SECONDS = 10.0
"""How long after a process's death its report may take; then the zygote is stuck and is killed."""

CLOSE_SECONDS = 3.0
"""How long a zygote may take to leave before it is killed; longer than its actors' grace."""

BURIAL_SECONDS = 15.0

_log = logging.getLogger("exeunt.spawner")


class ZygoteUnfit(SpawnError):
    """This machine cannot run a zygote; the plain spawner can do its work."""


class ZygoteDied(SpawnError):
    """The zygote died in the middle of a spawn; another try finds the next one."""

    def __init__(self) -> None:
        super().__init__("the zygote died")


class _Birth:
    """A spawn that waits for the zygote's answer."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = trio.SocketStream(trio.socket.from_stdlib_socket(channel))
        self.process: Process | None = None
        self.failure = ""
        self.abandoned = False
        self.answered = trio.Event()

    def answer(self, process: Process | None, failure: str = "") -> None:
        self.process = process
        self.failure = failure
        self.answered.set()
        if self.abandoned and process is not None:
            process.kill()

    def abandon(self) -> None:
        self.abandoned = True
        self.channel.socket.close()
        if self.process is not None:
            self.process.kill()


class Life:
    """One zygote process: its control socket, its actors, the births under way."""

    def __init__(self, preload: Sequence[str], env: Mapping[str, str], start: StartZygote) -> None:
        self.over = False
        self.cpu_seconds = 0.0
        self._ready = False
        self._processes: dict[int, Process] = {}
        self._births: dict[int, _Birth] = {}
        self._ids = itertools.count(1)
        self._decoder: msgspec.msgpack.Decoder[FromZygote] = msgspec.msgpack.Decoder(FromZygote)
        # The end is decided by close, never by whose task is cancelled: a Stop is performed while
        # everything around it is being cancelled, and it needs the reports.
        self._scope = trio.CancelScope(shield=True)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._control = trio.socket.from_stdlib_socket(ours)
            try:
                self._popen, self._pidfd = start(theirs.fileno(), preload, env)
            except BaseException:
                self._control.close()
                raise

    @property
    def pid(self) -> int:
        """The zygote's pid."""
        return self._popen.pid

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Wait until it is warm (then ``started``), hear it to its end, bury it.

        Raises SpawnError, before ``started`` only.
        """
        try:
            with trio.move_on_after(READY_SECONDS) as limit:
                await self._hear_ready()
            if limit.cancelled_caught:
                raise ZygoteUnfit(f"the zygote was not ready after {READY_SECONDS:.0f} s")
            self._ready = True
            task_status.started()
            with self._scope:
                async with trio.open_nursery() as watches:
                    while (received := await self._receive()) is not None:
                        self._handle(*received, watches)
                    watches.cancel_scope.cancel()
        finally:
            self.over = True
            with trio.CancelScope(shield=True, deadline=trio.current_time() + BURIAL_SECONDS):
                await self._bury()
            for process in self._processes.values():
                process.finish(Exit())

    async def spawn(self, role: str, name: str, log_fd: int, env: Mapping[str, str]) -> Process:
        """Ask for a process and wait for it; raises SpawnError, OSError."""
        ours, theirs = socket.socketpair()
        birth = _Birth(ours)
        number = next(self._ids)
        self._births[number] = birth
        try:
            with theirs:
                packet = encode(Spawn(number, role, name, dict(env)))
                try:
                    await self._control.sendmsg([packet], rights([theirs.fileno(), log_fd]))
                except BaseException:
                    del self._births[number]
                    raise
            await birth.answered.wait()
            if birth.process is None:
                raise SpawnError(birth.failure) if birth.failure else ZygoteDied
        except BaseException:
            birth.abandon()
            raise
        return birth.process

    async def close(self) -> None:
        """Kill what lives, wait until it is reported, and let the zygote go."""
        for process in self._processes.values():
            process.kill()
        for process in list(self._processes.values()):
            await process.wait()
        if not self.over:
            self._control.shutdown(socket.SHUT_WR)

    def abort(self) -> None:
        """Listen no longer: the zygote and what lives is buried within ``BURIAL_SECONDS``."""
        self._scope.cancel()

    async def _hear_ready(self) -> None:
        received = await self._receive()
        match received and received[0]:
            case Ready(cpu_seconds=cpu_seconds):
                self.cpu_seconds = cpu_seconds
            case Unfit(words=words, preload=True):
                raise SpawnError(f"a module that actors need cannot be loaded: {words}")
            case Unfit(words=words):
                raise ZygoteUnfit(words)
            case _:
                raise ZygoteUnfit("the zygote ended before it was ready")

    async def _receive(self) -> tuple[FromZygote, list[int]] | None:
        """The next packet and its descriptors; None at the end."""
        while True:
            try:
                data, ancillary, _, _ = await self._control.recvmsg(
                    PACKET_MAX, socket.CMSG_LEN(4), socket.MSG_CMSG_CLOEXEC
                )
            except ConnectionResetError:
                # It died with a packet of ours unread. The error is told once, and behind it may be
                # packets that it sent before.
                continue
            return (self._decoder.decode(data), received_fds(ancillary)) if data else None

    def _handle(self, packet: FromZygote, fds: list[int], watches: trio.Nursery) -> None:
        match packet:
            case Spawned(id=number, pid=pid):
                birth = self._births.pop(number)
                if fds:
                    process = Process(birth.channel, Pidfd(pid, fds[0]))
                    self._processes[pid] = process
                    watches.start_soon(self._watch, process)
                    birth.answer(process)
                else:
                    # The kernel found no free number for the pidfd. The process ends by itself, for
                    # its channel is closed, and its report will be of an unknown pid.
                    birth.answer(None, "too many open files to watch another process")
            case Failed(id=number, words=words):
                self._births.pop(number).answer(None, words)
            case Exited(pid=pid):
                if (process := self._processes.pop(pid, None)) is not None:
                    process.finish(
                        exit_of(packet.status, packet.cpu_seconds, packet.max_rss_kib, packet.swept)
                    )
            case Ready() | Unfit():
                raise AssertionError(f"{packet} from a zygote that serves already")

    async def _watch(self, process: Process) -> None:
        """See to it that a death is followed by its report."""
        await process.pidfd.dead()
        with trio.move_on_after(REPORT_SECONDS):
            await process.wait()
            return
        _log.error("The zygote has not reported the end of %r and is killed.", process)
        self._popen.kill()

    async def _bury(self) -> None:
        """Reap the zygote and the actors that died with it, then sweep what their tools left."""
        self._control.close()
        if not self._ready:
            # It would hear of the closed socket only after its warm-up.
            self._popen.kill()
        with trio.move_on_after(CLOSE_SECONDS):
            await self._pidfd.dead()
        self._popen.kill()
        await self._pidfd.dead()
        self._popen.wait()
        self._pidfd.close()
        for birth in self._births.values():
            birth.answer(None)
        # PDEATHSIG has killed them all, but for one that was not far enough to ask for it.
        for process in self._processes.values():
            process.kill()
        reaped = {pid: await process.pidfd.reap() for pid, process in self._processes.items()}
        swept = await trio.to_thread.run_sync(custodian.sweep, list(reaped)) if reaped else {}
        for pid, process in self._processes.items():
            process.finish(exit_of_child(reaped[pid], swept[pid]))
        self._processes.clear()


class ZygoteSpawner:
    """Spawns through a zygote, and through a new one after the old one has died."""

    def __init__(
        self,
        nursery: trio.Nursery,
        preload: Sequence[str],
        env: Mapping[str, str],
        start: StartZygote = start_zygote,
    ) -> None:
        self._nursery = nursery
        self._start = start
        self._preload = preload
        self._env = env
        self._life: Life | None = None
        self._starting = trio.Lock()

    async def living(self) -> Life:
        """The zygote that serves, started if there is none; raises SpawnError, OSError."""
        async with self._starting:
            if self._life is None or self._life.over:
                life = Life(self._preload, self._env, self._start)
                try:
                    await self._nursery.start(life.run)
                except ZygoteUnfit as error:
                    if self._life is None:
                        raise
                    # An earlier one was fit, so this one was killed while it warmed up.
                    raise ZygoteDied from error
                self._life = life
            return self._life

    async def spawn(self, role: str, name: str, log_fd: int, env: Mapping[str, str]) -> Process:
        """Fork a process from the zygote; raises SpawnError, OSError."""
        life = await self.living()
        try:
            return await life.spawn(role, name, log_fd, env)
        except ConnectionError as error:
            raise ZygoteDied from error

    async def close(self) -> None:
        """Kill and reap what is left, the zygote last."""
        if self._life is not None and not self._life.over:
            await self._life.close()

    def abort(self) -> None:
        """Give up waiting for reports."""
        if self._life is not None:
            self._life.abort()
