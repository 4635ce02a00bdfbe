"""Plans: which processes of a tree are struck, how, and at which boundary.

A plan is written as its strikes, for instance ``kill/supervisor/root/turn/2/3.5``: SIGKILL to the
supervisor, 3.5 ms after the root's second ``turn`` line. A second strike, behind a comma, waits for
its own boundary, often in the resume after the first. ``repeat/pay`` and ``behind/pay`` are traps
for the first process in which the tool ``pay`` returns: it dies before the answer is saved, so that
the call is run again if it may be, or right behind it, with all that the call has left running.
"""

import itertools
import random
import re
from collections.abc import Collection, Iterable, Sequence

import msgspec

ROOT = "root"
"""The word for the root run; other runs are named by what follows the root's id."""

BYTES = "bytes"
"""The event of a journal that has grown to so many bytes."""

KILL, FREEZE, FREEZE_KILL = "kill", "freeze", "freeze-kill"
"""SIGKILL; SIGSTOP and later SIGCONT; SIGSTOP and later SIGKILL."""

REPEAT, BEHIND = "repeat", "behind"
"""A trap before the answer of a call is saved, and one right after that."""

ACTOR, ZYGOTE, SUPERVISOR, TREE = "actor", "zygote", "supervisor", "tree"
VICTIMS = (
    (ACTOR,),
    (ROOT,),
    (ZYGOTE,),
    (SUPERVISOR,),
    (TREE,),
    (ACTOR, ROOT),
    (ACTOR, SUPERVISOR),
    (ACTOR, ZYGOTE),
    (SUPERVISOR, ZYGOTE),
)
"""Who is struck at once: the actor of the boundary's run, the root's, both servers, or all."""

DELAY_MS_MAX = 20.0
_STRIKE = re.compile(
    r"(?P<action>kill|freeze|freeze-kill)/(?P<victims>[a-z]+(\+[a-z]+)*)"
    r"/(?P<run>root|\d+\.\d+(\.\d+\.\d+)*)/(?P<event>[a-z_]+)/(?P<number>\d{1,9})"
    r"/(?P<delay>\d{1,4}(\.\d{1,2})?)"
)
_LURE = re.compile(r"(?P<when>repeat|behind)/(?P<tool>[a-zA-Z0-9_-]{1,64})")


class PlanError(Exception):
    """A text that is no plan; the words say what one looks like."""


class Boundary(msgspec.Struct, frozen=True, order=True):
    """The ``number``-th trace line of a type in one run, or a size of its journal."""

    run: str
    event: str
    number: int


class Strike(msgspec.Struct, frozen=True):
    """One blow: the processes that it hits at once, and when."""

    action: str
    victims: tuple[str, ...]
    boundary: Boundary
    delay_ms: float = 0.0

    def __str__(self) -> str:
        at = self.boundary
        victims = "+".join(self.victims)
        return f"{self.action}/{victims}/{at.run}/{at.event}/{at.number}/{self.delay_ms:g}"

    @property
    def kills(self) -> bool:
        """Whether a process dies of it."""
        return self.action != FREEZE


class Lure(msgspec.Struct, frozen=True):
    """What a trap waits for: the first return of a tool, in whichever run."""

    when: str
    tool: str

    def __str__(self) -> str:
        return f"{self.when}/{self.tool}"


class Plan(msgspec.Struct, frozen=True):
    """A trap or none, and the strikes of one round in order; nothing for an undisturbed one."""

    strikes: tuple[Strike, ...] = ()
    lure: Lure | None = None

    def __str__(self) -> str:
        return ",".join(map(str, [*([self.lure] if self.lure else []), *self.strikes]))


def parse(text: str) -> Plan:
    """Read back what ``str`` wrote; raises PlanError."""
    first, *rest = text.split(",")
    if found := _LURE.fullmatch(first):
        return Plan(tuple(map(_parse_strike, rest)), Lure(found["when"], found["tool"]))
    return Plan(tuple(map(_parse_strike, (first, *rest))))


def _parse_strike(text: str) -> Strike:
    found = _STRIKE.fullmatch(text)
    victims = tuple(found["victims"].split("+")) if found else ()
    if not found or not all((victim,) in VICTIMS for victim in victims):
        raise PlanError(
            f"{text!r} is no strike of a plan; one looks like kill/supervisor/root/turn/2/3.5"
        )
    boundary = Boundary(found["run"], found["event"], int(found["number"]))
    return Strike(found["action"], victims, boundary, float(found["delay"]))


def draw(
    boundaries: Iterable[Boundary], kills: int, rng: random.Random, tools: Collection[str] = ()
) -> list[Plan]:
    """So many plans, by chance: every kind of victim in turn, each at another boundary.

    Boundaries come again only when all were used. A quarter of the rounds freeze, and a quarter
    have a second strike, which often meets the resume after the first. Every other round is a trap
    for one of the ``tools``, as long as there are some.
    """
    order = sorted(boundaries)
    shuffled = [*order]
    rng.shuffle(shuffled)
    places = itertools.cycle(shuffled)
    kinds = itertools.cycle(rng.sample(VICTIMS, len(VICTIMS)))
    plans = [_plan(next(places), next(kinds), order, rng) for _ in range(kills)]
    traps = [
        Plan(lure=Lure(when, tool))
        for when in (REPEAT, BEHIND)
        for tool in rng.sample(sorted(tools), len(tools))
    ]
    traps = traps[: kills // 2]
    plans[1 : 2 * len(traps) : 2] = traps
    return plans


def _plan(
    place: Boundary, victims: tuple[str, ...], order: Sequence[Boundary], rng: random.Random
) -> Plan:
    action = rng.choice((KILL, KILL, KILL, KILL, KILL, KILL, FREEZE, FREEZE_KILL))
    strikes = [Strike(action, victims, place, _delay(rng))]
    if rng.random() < 0.25:
        again = rng.choice(order)
        strikes.append(Strike(KILL, rng.choice(VICTIMS), again, _delay(rng)))
    return Plan(tuple(strikes))


def _delay(rng: random.Random) -> float:
    return round(rng.uniform(0, DELAY_MS_MAX), 1) if rng.random() < 0.5 else 0.0


def every(boundaries: Iterable[Boundary]) -> list[Plan]:
    """A plan for every kind of victim at every boundary, each a SIGKILL at once."""
    return [
        Plan((Strike(KILL, victims, boundary),))
        for boundary in sorted(boundaries)
        for victims in VICTIMS
    ]
