"""One provider and one folder for all runs that are killed, in memory where it can be."""

import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from ground import SUPPORT, Ground
from plans import KILL_POINTS, SEED

from actors.testing.lives import serving
from actors.testing.provider import ProviderSettings
from actors.tokens import encoding

MEMORY = Path("/dev/shm")


@pytest.fixture(scope="session")
def ground() -> Generator[Ground]:
    encoding()  # once, so that no life pays for it
    where = MEMORY if os.access(MEMORY, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="exeunt-chaos-", dir=where))
    bills = folder / "bills"
    settings = ProviderSettings(
        ledger=str(bills), modules=("errand_scripts",), search_path=(str(SUPPORT),)
    )
    try:
        with serving(settings) as base_url:
            yield Ground(folder, base_url, bills)
    finally:
        shutil.rmtree(folder)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say the seed, of a run that passed as well."""
    terminalreporter.write_line(f"chaos: EXEUNT_SEED={SEED} EXEUNT_KILL_POINTS={KILL_POINTS}")
