"""The suite fails when the design is broken: mistakes planted in trees are all caught."""

from collections.abc import Callable, Generator

import msgspec
import pytest
from forest import PLANTED, grown

from actors import custodian, fan_out, pending
from actors.child_report import ChildReport
from actors.events import Finished, Opened
from actors.state import State
from supervisor.chaos import round as rounds
from supervisor.chaos.plan import BYTES, Plan, parse
from supervisor.chaos.session import Session

pytestmark = pytest.mark.chaos
STRIKES = 6


def orphans_calls_answered() -> None:
    setattr(State, "orphaned", False)  # noqa: B010 - a property, which is replaced whole


def childs_money_not_counted() -> None:
    finished = fan_out._finished

    def free(ref: str, report: ChildReport) -> Finished:
        return msgspec.structs.replace(finished(ref, report), child_nusd=0)

    fan_out._finished = free


def plain_write_run_again() -> None:
    pending._in_doubt = lambda state, rules, call, run: run


def nothing_possibly_spent() -> None:
    opened = State._opened

    def forgetful(self: State, event: Opened) -> None:
        maybe = self.head.maybe_nusd
        opened(self, event)
        self.head.maybe_nusd = maybe

    State._opened = forgetful


def nothing_swept() -> None:
    custodian.sweep = lambda owners, spare=(): dict.fromkeys(owners, 0)


@pytest.fixture(scope="module")
def hammering() -> Generator[Session]:
    """Slow enough that a strike meets its victims, whatever else the machine does."""
    with grown("agents.scout.model=hammering_scout", "provider.latency_ms=20") as session:
        yield session


@pytest.fixture(scope="module")
def daemons() -> Generator[Session]:
    with grown("agents.scout.model=daemons", "provider.latency_ms=20") as session:
        yield session


def caught(session: Session, plan: Plan, plant: Callable[[], None]) -> str:
    """What is found broken with a mistake, where without it everything is kept."""
    (sound,) = session.perform([plan])
    assert not sound.failure
    PLANTED.append(plant)
    try:
        # A strike may come too late on a loaded machine, so there is more than one.
        for _ in range(STRIKES):
            (broken,) = session.perform([plan])
            if broken.failure:
                return broken.failure
    finally:
        PLANTED.clear()
    return ""


def test_an_orphans_answered_calls_are_caught(hammering: Session):
    """The lead would be told that its scouts were stopped, when only its supervisor had died."""
    plan = parse("kill/supervisor/2.0/turn/1/0")
    words = caught(hammering, plan, orphans_calls_answered)
    # The lead gives another answer, and a scout whom it gave up never ends.
    assert "answer:" in words or "I11:" in words


def test_uncounted_money_is_caught(hammering: Session):
    """A child's spending must stand in its parent's account."""
    plan = parse("kill/actor/2.0/turn/1/0")
    assert caught(hammering, plan, childs_money_not_counted).startswith("I9:")


def test_a_write_run_again_is_caught(hammering: Session):
    """A scout is killed while it hammers, so the call is in doubt and must stay so."""
    plan = parse("kill/actor/2.1/tool_start/1/60")
    assert "I6:" in caught(hammering, plan, plain_write_run_again)


def test_forgotten_spending_is_caught(hammering: Session):
    """A scout is killed while the model is asked, which was billed and never saved."""
    sizes = [one.number for one in hammering.boundaries if (one.run, one.event) == ("2.0", BYTES)]
    plan = parse(f"kill/actor/2.0/bytes/{min(sizes) + 1}/5")
    words = caught(hammering, plan, nothing_possibly_spent)
    # Its own state is not what its journal says, and less than was billed.
    assert "I10:" in words or "I7:" in words


def test_a_tool_that_is_left_is_caught(daemons: Session, monkeypatch: pytest.MonkeyPatch):
    """Whatever a scout's tool had started must be gone with its scout."""
    monkeypatch.setattr(rounds, "GONE_SECONDS", 1.0)
    plan = parse("freeze/actor/2.0/turn/1/0")
    assert caught(daemons, plan, nothing_swept).startswith("orphans:")
