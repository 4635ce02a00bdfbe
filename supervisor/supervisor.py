"""The supervisor: starts trees of runs, and passes one Stop down to all of them.

It holds no truth of its own. What a run is stands in its directory, so a supervisor that dies is
replaced by the next ``resume``.
"""

import functools
import os
from collections.abc import AsyncGenerator, Collection, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec
import trio

from actors.journal import DiskFull, JournalError
from actors.journal_error import failure_of
from actors.outcome import ORPHANED, RESUMABLE, root_of
from actors.spec import LimitChange
from actors.state import State
from actors.wire import Refused
from supervisor.child import Child, Listener
from supervisor.code_check import check_code
from supervisor.config import Config, ConfigError, api_key, key_names
from supervisor.config_tree import DEFAULT_KEY_ENV
from supervisor.late_stop import end_left
from supervisor.report import Report, report, tree_report
from supervisor.scripted import Scripted, ScriptedError
from supervisor.spawned import SpawnError
from supervisor.spawner import Spawner, open_spawner
from supervisor.state_dir import StateDir
from supervisor.tree import Tree
from supervisor.tree_lock import lock_tree
from supervisor.zygote_process import StartZygote, start_zygote

UNRECORDED = frozenset({"disk", DiskFull.kind, "crashed", "wire", "spawn"})
"""Why a run was cut off and its journal does not say so; all else was refused before it began."""

UNFIT = (ConfigError, ScriptedError, SpawnError)
"""What a tree is refused by before anything of it is performed."""


class RunRefused(Exception):
    """A run could not be gone on with, and nothing of it is lost; the words say what to do."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.words)
        self.kind = refused.kind


class Supervisor:
    """Trees of one state directory; made by ``open_supervisor``."""

    def __init__(
        self,
        state_dir: StateDir,
        spawner: Spawner,
        nursery: trio.Nursery,
        listener: Listener,
        shown: Collection[str] = (),
    ) -> None:
        """``shown`` are the environment variables that processes of the spawner see."""
        self.state_dir = state_dir
        self.spawner = spawner
        self._nursery = nursery
        self._listener = listener
        self._shown = frozenset(shown)
        self._trees: dict[str, Tree] = {}
        self._providers: dict[str, Scripted] = {}
        self._stopped: tuple[str, str] | None = None

    async def run(self, config: Config, run_id: str | None = None) -> Report:
        """Start a root run and go on to its end.

        Raises ConfigError, StateError, ScriptedError, SpawnError, RunRefused. What is refused by
        one of UNFIT leaves no run; any other stays on disk whatever happens.
        """
        self._refuse_shown_keys(config)
        run_id = self.state_dir.create(config, run_id)
        with self._held(run_id):
            try:
                return await self._perform(run_id, config, "start", LimitChange())
            except UNFIT:
                # Nothing of it was performed, and its name shall be free for the next try.
                self.state_dir.discard(run_id)
                raise

    async def resume(self, run_id: str, raised: LimitChange | None = None) -> Report:
        """Go on with a tree from disk; of a root that has ended for good, report its ending.

        Nothing below such a root is gone on with: what was left there is ended on disk.

        Raises as ``run`` does, and JournalError.
        """
        config = self.state_dir.config(run_id)
        with self._held(run_id):
            state = self.state_dir.state(run_id)
            if state.outcome and state.outcome.status not in RESUMABLE:
                found = tree_report(self.state_dir, run_id)
                return await end_left(self.state_dir, found, self._listener)
            self._refuse_shown_keys(config)
            why = "resume" if state.epoch else "start"
            return await self._perform(run_id, config, why, raised or LimitChange())

    @contextmanager
    def _held(self, run_id: str) -> Generator[None, None, None]:
        """Have a tree to ourselves; raises RunRefused."""
        if run_id in self._trees:
            words = f"run {run_id} is under way in this program already; wait for it or stop it"
            raise RunRefused(Refused("held", words))
        with lock_tree(self.state_dir.run_dir(run_id)) as refused:
            if refused:
                raise RunRefused(refused)
            yield

    async def _perform(self, run_id: str, config: Config, why: str, raised: LimitChange) -> Report:
        prepare = functools.partial(self._prepare, config)
        tree = Tree(self.state_dir, self.spawner, config, run_id, prepare, self._listener)
        if self._stopped:
            tree.stop(*self._stopped)
        self._trees[run_id] = tree
        try:
            child = await tree.run(why, raised)
        except BaseExceptionGroup as group:
            if len(group.exceptions) == 1 and isinstance(unfit := group.exceptions[0], UNFIT):
                raise unfit from None
            if (failure := failure_of(group)) is None:
                raise
            raise RunRefused(Refused(failure.kind, str(failure))) from group
        finally:
            del self._trees[run_id]
        found = self._report(run_id, child.refused)
        paused = tree.paused
        orphaned = found.interruption and found.interruption.get("who") == ORPHANED
        if paused and paused.kind not in UNRECORDED and orphaned:
            # As for a root that cannot be opened: nothing goes on before that has passed.
            raise RunRefused(paused)
        return await end_left(self.state_dir, found, self._listener)

    def _report(self, run_id: str, refused: Refused | None) -> Report:
        """What the journals say; of a run that could not record its end, also why not."""
        try:
            found = tree_report(self.state_dir, run_id)
        except JournalError:
            if refused is None:
                raise
            found = report(run_id, State())
        if refused is None:
            return found
        if found.status or refused.kind not in UNRECORDED:
            raise RunRefused(refused)
        return msgspec.structs.replace(found, error=refused.words)

    def _refuse_shown_keys(self, config: Config) -> None:
        """Raise RunRefused for a key that every process would see, the user's code included."""
        if names := ", ".join(sorted(key_names(config) & self._shown)):
            words = (
                f"tools would see {names}, where this configuration keeps a key; open the "
                "supervisor with open_supervisor(..., key_names=key_names(config))"
            )
            raise RunRefused(Refused("key", words))

    async def _prepare(self, config: Config) -> dict[str, str]:
        """Where each agent's provider is; scripted ones are started on first use.

        Refuses code of the user's that no run could load. Raises one of UNFIT.
        """
        for agent in config.agents_in_use():
            api_key(config, agent=agent)  # A missing key is told before anything starts.
        await check_code(self.spawner, config, self.state_dir.runs)
        return {agent: await self._base_url(config, agent) for agent in config.agents_in_use()}

    async def _base_url(self, config: Config, agent: str) -> str:
        section = config.provider_of(agent)
        if section.kind == "openai":
            assert section.base_url, "the configuration was checked"
            return section.base_url
        wanted = Scripted(self.spawner, config, agent)
        scripted = self._providers.get(wanted.identity)
        if scripted is None:
            await self._nursery.start(wanted.serve)
            scripted = self._providers[wanted.identity] = wanted
        return scripted.base_url(config, agent)

    def stop(self, reason: str, who: str = "user") -> None:
        """Stop every run, and every run that is started after this."""
        self._stopped = self._stopped or (reason, who)
        for tree in self._trees.values():
            tree.stop(reason, who)

    def stop_run(self, run_id: str, reason: str, who: str = "user") -> bool:
        """Stop one run and what is below it; False when it is not under way."""
        tree = self._trees.get(root_of(run_id))
        return tree is not None and tree.stop_run(run_id, reason, who)

    def kill(self) -> None:
        """End every process at once, without a record; the runs can be resumed."""
        for tree in self._trees.values():
            tree.kill()

    def children(self) -> list[Child]:
        """The runs under way."""
        return [child for tree in self._trees.values() for child in tree.live()]


def _ignore(run_id: str, line: bytes) -> None:
    """Nobody listens."""


@asynccontextmanager
async def open_supervisor(
    state_dir: StateDir | Path | str = ".exeunt",
    *,
    listener: Listener = _ignore,
    key_names: Collection[str] = (),
    spawn: str | None = None,
    start: StartZygote = start_zygote,
) -> AsyncGenerator[Supervisor, None]:
    """A supervisor whose processes are gone when the block is left.

    ``listener`` is called with the id of a run and each of its trace lines. ``key_names`` are the
    environment variables that hold keys, which no actor or tool may see: ``key_names(config)`` of
    each configuration, and a run of another one whose keys are seen is refused. ``spawn`` is
    ``zygote`` or ``subprocess``, and ``start`` makes the zygotes. Raises StateError, SpawnError.
    """
    if not isinstance(state_dir, StateDir):
        state_dir = StateDir(state_dir)
    state_dir.prepare()
    drop_env = {DEFAULT_KEY_ENV, *key_names}
    shown = os.environ.keys() - drop_env
    async with open_spawner(spawn, drop_env=drop_env, start=start) as spawner:
        failure: Exception | None = None
        try:
            async with trio.open_nursery() as nursery:
                yield Supervisor(state_dir, spawner, nursery, listener, shown)
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            # The nursery is ours; what came from the body leaves as it came.
            if len(group.exceptions) != 1 or not isinstance(group.exceptions[0], Exception):
                raise
            failure = group.exceptions[0]
        if failure is not None:
            raise failure
