"""One tree of runs: its root, whatever runs below it, their limits, and one Stop for all of them.

Everything here is rebuilt from disk: a child's id is its parent's and the ref of the call that it
answers, so a child that was there before is found again, and gone on with or only reported.
"""

from collections import Counter
from collections.abc import Awaitable, Callable

import msgspec
import trio

from actors.child_report import SETTLED
from actors.journal import JournalError
from actors.journal_error import PAUSING
from actors.outcome import ORPHANED, Cancelled, parent_of, path_of
from actors.spec import LimitChange
from actors.state import State
from actors.wire import Refused, Start, StartChild
from supervisor.actor_log import LOOK_SECONDS, cut_log
from supervisor.burial import EXIT_SECONDS_MAX
from supervisor.child import Child, Listener
from supervisor.config import Config, ConfigError, api_key
from supervisor.config_tree import DEPTH
from supervisor.spawner import Spawner
from supervisor.state_dir import StateDir, StateError
from supervisor.stop_socket import listen

Prepare = Callable[[], Awaitable[dict[str, str]]]


class Tree:
    """The runs of one root, as far as they are performed now."""

    def __init__(
        self,
        state_dir: StateDir,
        spawner: Spawner,
        config: Config,
        root_id: str,
        prepare: Prepare,
        listener: Listener,
    ) -> None:
        """``prepare`` returns the base URLs of the agents' providers, by agent, or raises."""
        self.spawner = spawner
        self._listener = listener
        self._state_dir = state_dir
        self._config = config
        self._root_id = root_id
        self._prepare = prepare
        self._preparing = trio.CancelScope()
        self._addresses: dict[str, str] = {}
        self._live: dict[str, Child] = {}
        self._children = Counter(parent_of(run_id) for run_id in state_dir.below(root_id))
        """How many children each run ever had."""
        self._max_depth = config.agents[config.run.agent].limits.max_depth or DEPTH
        self._stopped: tuple[str, str] | None = None
        self._killed = self._over = False
        self.paused: Refused | None = None
        """Why all of it was stopped, when that was for a child that could not go on."""
        self._acked: set[str] = set()
        self._all_acked = trio.Event()

    async def run(self, why: str, raised: LimitChange) -> Child:
        """Prepare, and perform the root to its end; its subtree ends with it.

        A Stop is taken from the first moment on. Raises, in a group, what ``prepare`` raises before
        anything is performed, and DiskFailed.
        """
        root: Child | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stop_when_cancelled)
            nursery.start_soon(self._keep_logs_short)
            # A cancellation from outside is a Stop like any other, and reaches all runs at once.
            with trio.CancelScope(shield=True) as self._scope:
                await nursery.start(listen, self._state_dir.run_dir(self._root_id), self)
                with self._preparing:
                    # A run that ends at once needs nothing, least of all the user's own code.
                    if self._stopped is None:
                        self._addresses = await self._prepare()
                start = self._start(self._root_id, self._config.run.agent, why)
                root = Child(self, msgspec.structs.replace(start, raised=raised))
                await self._perform(root, None)
            self._over = True
            nursery.cancel_scope.cancel()
        assert root, "what ends the scope before is raised"
        return root

    async def _stop_when_cancelled(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.stop("cancelled by the program", "program")
            grace = self._config.supervision.stop_grace_s
            self._scope.deadline = trio.current_time() + 2 * grace + EXIT_SECONDS_MAX

    async def _keep_logs_short(self) -> None:
        """Look after what tools print, which nobody else does while they run."""
        while True:
            await trio.sleep(LOOK_SECONDS)
            for run_id in self._live:
                cut_log(self._state_dir.run_dir(run_id))

    async def _perform(self, child: Child, parent: Child | None) -> None:
        self._live[child.run_id] = child
        if parent is not None:
            parent.start_below(child)
        if self._stopped:
            child.stop(*self._stopped)
        if self._killed:
            child.kill()
        try:
            await child.run()
        finally:
            cut_log(self._state_dir.run_dir(child.run_id))
            del self._live[child.run_id]
            if parent is not None:
                del parent.below[child.ref]
            self._look_for_acks()

    async def run_child(self, parent: Child, frame: StartChild) -> str:
        """Run the child of a call, unless it has ended; returns why there is none, or nothing."""
        run_id = f"{parent.run_id}.{frame.ref}"
        assert run_id not in self._live, "an actor asks once, and dies before its children are gone"
        if frame.agent not in self._config.child_agents(parent.agent).values():
            return f"{parent.agent} may start no {frame.agent}"
        try:
            state = self._state_dir.state(run_id) if self._state_dir.exists(run_id) else None
            if state and is_settled(state):
                return ""
            if state is None:
                if words := self._no_room(parent, run_id):
                    return words
                self._children[parent.run_id] += 1
                self._state_dir.create_child(run_id)
            why = "resume" if state and state.epoch else "start"
            start = self._start(run_id, frame.agent, why, frame)
        except JournalError as error:
            return self._refused(Refused(error.kind, str(error)))
        except (StateError, ConfigError) as error:
            return str(error)
        child = Child(self, start)
        await self._perform(child, parent)
        return self._refused(child.refused) if child.refused else ""

    def _refused(self, refused: Refused) -> str:
        """What a parent is told of a child that cannot go on; it hears nothing when all pause.

        On a full disk no run can be trusted to save what it pays for, and to fail a child that only
        waits would lose its work. Nobody decided that the work should end, so pending calls stay
        pending, for a resume.
        """
        if refused.kind in PAUSING:
            if self._stopped is None:
                self.paused = refused
            self.stop(refused.words, ORPHANED)
        return refused.words

    def _no_room(self, parent: Child, run_id: str) -> str:
        if (runs := 1 + self._children.total()) >= self._config.supervision.max_runs:
            return f"the tree has {runs} runs, its limit"
        # The actor keeps to these by itself; here they hold for one that does not.
        if len(path_of(run_id)) - 1 > self._max_depth:
            return f"the tree's depth below its root is limited to {self._max_depth}"
        if self._children[parent.run_id] >= self._config.agents[parent.agent].limits.max_children:
            return f"{parent.run_id} has as many children as it may"
        return ""

    def _start(self, run_id: str, agent: str, why: str, frame: StartChild | None = None) -> Start:
        config = self._config
        spec = config.run_spec(agent, task=frame.task if frame else None)
        limits = msgspec.structs.replace(spec.limits, max_depth=self._max_depth)
        if frame and frame.limit_nusd is not None:
            own = limits.max_budget_nusd
            limit = frame.limit_nusd if own is None else min(own, frame.limit_nusd)
            limits = msgspec.structs.replace(limits, max_budget_nusd=limit)
        spec = msgspec.structs.replace(spec, limits=limits)
        return Start(
            run_id=run_id,
            root_id=self._root_id,
            ref=frame.ref if frame else "",
            run_dir=str(self._state_dir.run_dir(run_id)),
            spec=spec,
            base_url=self._addresses.get(agent, ""),
            api_key=api_key(config, agent=agent),
            why=why,
            shutdown_seconds=config.supervision.stop_grace_s,
        )

    def heard(self, run_id: str, line: bytes, /) -> None:
        """Hand a trace line to whoever watches."""
        self._listener(run_id, line)

    # Stop.

    def stop(self, reason: str, who: str) -> None:
        """Stop all of it, and whatever would start after this: one hop, however deep it is."""
        self._stopped = self._stopped or (reason, who)
        self._preparing.cancel()
        for child in self._live.values():
            child.stop(reason, who)

    def stop_run(self, run_id: str, reason: str, who: str) -> bool:
        """Stop one run and what is below it; False when it is not under way."""
        if run_id == self._root_id:
            self.stop(reason, who)
            return not self._over
        if run_id in self._live:
            self._live[run_id].stop(reason, who)
        return run_id in self._live

    def tell(self, run_id: str, text: str, who: str) -> bool:
        """Pass a message to a run; False when it is not under way."""
        child = self._live.get(run_id)
        return child is not None and child.tell(text, who)

    def kill(self) -> None:
        """End every process at once, without a record."""
        self._stopped = self._stopped or ("killed", "user")
        self._killed = True
        self._preparing.cancel()
        for child in list(self._live.values()):
            child.kill()

    def live(self) -> list[Child]:
        """The runs under way."""
        return list(self._live.values())

    async def acked(self, child: Child) -> None:
        """This child's ending is on record, and its parent is told; in a Stop, wait for all others.

        The end of a process costs as much as its cancelling, so nobody ends while others cancel.
        """
        if parent := self._live.get(parent_of(child.run_id)):
            await parent.tell_ended(child.ref)
        if self._stopped is None:
            return
        self._acked.add(child.run_id)
        self._look_for_acks()
        with trio.move_on_after(self._config.supervision.stop_grace_s):
            await self._all_acked.wait()

    def _look_for_acks(self) -> None:
        if self._stopped and all(name in self._acked for name in self._live):
            self._all_acked.set()


def is_settled(state: State) -> bool:
    """Whether a child has ended for its parent: it has its answer, or a person stopped it."""
    outcome = state.outcome
    if outcome is None:
        return False
    why = outcome.interruption
    return outcome.status in SETTLED or (isinstance(why, Cancelled) and why.who != ORPHANED)
