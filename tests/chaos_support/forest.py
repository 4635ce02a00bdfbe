"""Trees of real processes that are struck: sessions over small configurations, and their plans."""

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from errand_tools import LEDGERS

from actors import backoff, zygote
from actors.testing.evidence import read_effects
from supervisor import child
from supervisor.chaos.plan import Boundary, Plan, parse
from supervisor.chaos.round import Round
from supervisor.chaos.session import Session, open_session
from supervisor.config import load_config

SUPPORT = Path(__file__).parent
MEMORY = Path("/dev/shm")
POINTS = int(os.environ.get("EXEUNT_TREE_POINTS") or "500")
SEED = int(os.environ.get("EXEUNT_SEED") or random.SystemRandom().randrange(1 << 32))
PLAN = os.environ.get("EXEUNT_TREE_PLAN")
"""One plan to be performed instead of all."""
WORKERS = 2
FAILURES_MAX = 5

PLANTED: list[Callable[[], None]] = []
"""Mistakes that are planted in the lives that begin while they stand here."""


def hurry(home: Path) -> None:
    """What a life does first: nothing in it shall wait for longer than it must."""
    os.environ[LEDGERS] = str(home)
    backoff.BASE_SECONDS = 0.01
    child.BACK_OFF_SECONDS = (0.01,)
    zygote.GRACE_SECONDS = 0.3
    for plant in PLANTED:
        plant()


@contextmanager
def grown(
    *sets: str,
    config: str = "tree.toml",
    prepare: Callable[[Path], None] | None = None,
    where: Path | None = None,
    crashes: int = 0,
) -> Generator[Session]:
    """A session, of whose lives each begins with ``prepare``."""

    def first(home: Path) -> None:
        hurry(home)
        if prepare:
            prepare(home)

    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="exeunt-forest-", dir=where or memory))
    try:
        with open_session(
            load_config(SUPPORT / config, sets),
            folder,
            prepare=first,
            crashes=crashes,
            effects=lambda home, run_id: read_effects(home / f"effects-{run_id}"),
        ) as session:
            yield session
    finally:
        shutil.rmtree(folder)


def strike_all(session: Session, plans: Sequence[Plan], test: str) -> list[Round]:
    """Perform all plans; raises AssertionError that names those that failed, and how to see.

    ``test`` is the pytest node to replay a failing plan with.
    """
    if PLAN:
        plans = [parse(PLAN)]
    print(f"{len(plans)} plans, EXEUNT_SEED={SEED}")
    rounds: list[Round] = []
    failures: list[str] = []
    for one in session.perform(plans, WORKERS):
        rounds.append(one)
        if one.failure:
            replay = f"EXEUNT_TREE_PLAN={one.plan} python -P -m pytest -q {test}"
            failures.append(f"{one.plan}: {one.failure}\nTo see it again:\n  {replay}\n")
        if len(failures) >= FAILURES_MAX:
            break
    if failures:
        raise AssertionError(f"EXEUNT_SEED={SEED}\n" + "\n".join(failures))
    return rounds


def at(session: Session, run: str, event: str) -> list[Boundary]:
    """The boundaries of one kind in one run."""
    return [one for one in session.boundaries if (one.run, one.event) == (run, event)]
