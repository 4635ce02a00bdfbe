"""One session for all plans against the same tree: its provider, and the tree undisturbed."""

from collections.abc import Generator

import pytest
from forest import POINTS, SEED, grown

from supervisor.chaos.session import Session


@pytest.fixture(scope="session")
def tree() -> Generator[Session]:
    with grown() as session:
        assert not session.varying
        yield session


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say the seed, of a run that passed as well."""
    terminalreporter.write_line(f"trees: EXEUNT_SEED={SEED} EXEUNT_TREE_POINTS={POINTS}")
