"""How to test that your own agents survive: their processes are really killed, and checked.

Run it with ``pytest examples/test_my_agents.py``. Each round starts the tree of a configuration in
a folder of its own, strikes it, resumes it, and checks that it comes to the same answer, that no
turn was billed twice, that no write was made twice, and that no process is left behind.
"""

from pathlib import Path

import pytest

from actors.testing.chaos import Chaos

pytest_plugins = ["actors.testing.plugin"]

CONFIG = Path(__file__).parent.parent / "configs" / "research.toml"
SMALLER = ("run.task=Ask 3 questions about the log files.", "provider.latency_ms=20")

pytestmark = pytest.mark.chaos


def test_my_researcher_is_killed_in_mid_turn(exeunt_chaos: Chaos) -> None:
    """The run behind call 1.2 dies 10 ms after its first turn, while it works on the second."""
    report = exeunt_chaos(CONFIG, plans=["kill/actor/1.2/turn/1/10"], sets=SMALLER)
    assert report.ok, report
    assert report.struck == 1


def test_my_tree_is_killed_whole_and_frozen(exeunt_chaos: Chaos) -> None:
    """Everything dies at once; and another time the lead only stands still for a while."""
    plans = ["kill/tree/root/child_started/2/5", "freeze/root/1.0/turn/1/0"]
    report = exeunt_chaos(CONFIG, plans=plans, sets=SMALLER)
    assert report.ok, report


def test_my_agents_survive_whatever_is_struck(exeunt_chaos: Chaos) -> None:
    """Eight rounds by chance; the seed makes them the same ones each time."""
    report = exeunt_chaos(CONFIG, kills=8, seed=2025, sets=SMALLER)
    assert report.ok, report
    # Both tools of these agents only read. A plain write would be named here, since a kill in the
    # middle of it leaves nobody who knows whether it happened.
    assert not report.unsafe_tools
