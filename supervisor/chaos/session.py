"""A chaos session: one tree, twice undisturbed for comparison, then struck plan by plan."""

import itertools
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from actors import frame
from actors.journal import JOURNAL
from actors.messages import ResultKind
from actors.outcome import Status
from actors.testing.evidence import Effect
from actors.trace import TRACE
from supervisor.chaos import culprit
from supervisor.chaos.check import check_tree
from supervisor.chaos.ended import Ended, tool_names
from supervisor.chaos.life import Heard
from supervisor.chaos.plan import BYTES, Boundary, Plan
from supervisor.chaos.ready import warm_up
from supervisor.chaos.round import Round, Unstarted, perform
from supervisor.chaos.varying import varying
from supervisor.chaos.workers import perform_all
from supervisor.chaos.world import Home, World, served
from supervisor.config import Config
from supervisor.state_dir import StateDir


class NoReference(Exception):
    """The tree does not come to an end when nobody disturbs it; its author must act."""


class Session:
    """Performs plans against one configuration; made by ``open_session``."""

    def __init__(self, world: World, waiting: Callable[[float], None]) -> None:
        """Run the tree twice undisturbed; raises NoReference, and Unstarted where it is refused.

        ``waiting`` is told the seconds when nothing has come of any round for a while.
        """
        self._world = world
        self._waiting = waiting
        self._names = (f"c{number:05}" for number in itertools.count(1))
        first = self._undisturbed()
        self.reference = check_tree(first, 0)
        check_completes(self.reference)
        second = self._undisturbed()
        again = check_tree(second, 0)
        self.boundaries = _boundaries(first)
        changed_at = {path: file.stat().st_mtime for path, file in second.files().items()}
        self.varying = varying(self.reference, again, changed_at)
        """What differs between the two, with words; no round is held to it."""
        for home in (first, second):
            home.remove()

    def perform(self, plans: Sequence[Plan], workers: int = 1) -> Iterator[Round]:
        """Perform the plans in any order, and yield what came of each; raises WorkerDied."""
        names = list(itertools.islice(self._names, len(plans)))

        def work(number: int) -> Round:
            return perform(self._world, plans[number], names[number], self.reference, self.varying)

        yield from perform_all(work, range(len(plans)), workers, self._waiting)

    @property
    def lifted(self) -> tuple[str, ...]:
        """The limits of time in which the undisturbed tree has ended; nobody struck is held to."""
        agents = self._world.config.agents_in_use()
        return tuple(
            f"agents.{name}.limits.{limit}"
            for name in agents
            for limit in ("deadline_s", "idle_s")
            if getattr(self._world.config.agents[name].limits, limit) != "none"
        )

    @property
    def tools(self) -> tuple[str, ...]:
        """The user's tools that run undisturbed."""
        return tool_names(self.reference.users)

    def home(self) -> Home:
        """The folder of one more round, to be made and filled by the caller."""
        return Home(self._world, next(self._names))

    def _undisturbed(self) -> Home:
        name = next(self._names)
        (found,) = perform_all(
            lambda _: perform(self._world, Plan(), name, keep=True), [0], waiting=self._waiting
        )
        home = Home(self._world, name)
        if found.unstarted:
            raise Unstarted(found.failure)
        if found.failure and (died := culprit.died(home)):
            raise NoReference(
                f"{died} ended its own process, although nobody struck: it calls os._exit, crashes "
                "in native code or runs out of memory. Mend that first"
            )
        if found.failure:
            words = found.failure.strip()
            raise NoReference(f"the tree does not run although nobody disturbs it: {words}")
        return home


def check_completes(ended: Ended) -> None:
    """Raise NoReference for a tree that fails or is stopped although nobody strikes it."""
    if ended.status in (Status.FAILED, Status.INTERRUPTED):
        cut_off = tool_names(one for one in ended.users if one.outcome is ResultKind.CANCELLED)
        words = f", while {' and '.join(cut_off)} ran" if cut_off else ""
        raise NoReference(
            f"nothing to compare: the run ends {ended.status} by itself: "
            f"{ended.error or 'no reason was recorded'}{words}"
        )


@contextmanager
def open_session(
    config: Config,
    folder: Path,
    *,
    prepare: Callable[[Path], None] | None = None,
    crashes: int = 0,
    recorded: bool = False,
    effects: Callable[[Path, str], list[Effect]] | None = None,
    waiting: Callable[[float], None] = lambda seconds: None,
) -> Generator[Session]:
    """A session in a folder that exists.

    ``recorded`` is that of ``served``, ``waiting`` that of ``Session``, others of ``World``.
    Raises ConfigError, NoReference, Unstarted.
    """
    warm_up()
    bills = folder / "bills"
    bills.touch()
    with served(config, bills, recorded=recorded) as placed:
        yield Session(
            World(
                folder=folder,
                config=placed,
                bills=bills,
                prepare=prepare,
                crashes=crashes,
                effects=effects,
            ),
            waiting,
        )


def _boundaries(home: Home) -> list[Boundary]:
    """Each trace line of each run, and each size that each journal has had."""
    state_dir = StateDir(home.state_dir)
    found: list[Boundary] = []
    for run_id in (home.run_id, *state_dir.below(home.run_id)):
        run, run_dir = home.short(run_id), state_dir.run_dir(run_id)
        seen: Counter[str] = Counter()
        for line in (run_dir / TRACE).read_bytes().splitlines():
            kind = msgspec.json.decode(line, type=Heard).type
            seen[kind] += 1
            found.append(Boundary(run, kind, seen[kind]))
        frames = frame.scan((run_dir / JOURNAL).read_bytes()).frames
        found += [Boundary(run, BYTES, one.offset + one.size) for one in frames]
    return found
