"""``exeunt chaos`` as a pytest fixture, for tests of your own agents.

Switch it on in the ``conftest.py`` beside your tests, or in one test module::

    from actors.testing.chaos import Chaos

    pytest_plugins = ["actors.testing.plugin"]

    def test_my_agents_survive(exeunt_chaos: Chaos) -> None:
        report = exeunt_chaos("my_agents.toml", kills=10, seed=1)
        assert report.ok, report
"""

import pytest

from actors.testing.chaos import Chaos


@pytest.fixture
def exeunt_chaos() -> Chaos:
    """Run a configuration again and again, and kill a part of its tree each time."""
    return Chaos()
