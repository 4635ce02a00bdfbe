"""Golden journals: what a released version wrote is read for ever, and comes to the same."""

import json
import shutil
import typing
from pathlib import Path
from typing import Any

import pytest
from golden_runs import GOLDEN, RUNS, told

from actors import frame
from actors.events import SCHEMA, SCHEMAS, AnyEvent, decoder
from actors.journal import JOURNAL, Journal, read_events
from actors.state import fold

FILES = sorted(GOLDEN.glob("*.x1"))


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def run_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A run directory with a golden journal in it."""
    shutil.copy(request.param, tmp_path / JOURNAL)
    return tmp_path


def expected(request_stem: str) -> Any:
    return json.loads((GOLDEN / f"{request_stem}.json").read_bytes())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_golden_journal_comes_to_the_same(path: Path, tmp_path: Path) -> None:
    """State, transcript and money; fields that are new since then do not count."""
    shutil.copy(path, tmp_path / JOURNAL)
    said = json.loads(json.dumps(told(fold(read_events(tmp_path)))))
    then = expected(path.stem)
    assert only_known(said, then) == then


def only_known(said: Any, then: Any) -> Any:
    """What was said, without the keys that nobody knew then."""
    if isinstance(then, dict):
        return {key: only_known(said[key], value) for key, value in then.items()}
    if isinstance(then, list) and len(then) == len(said):
        return [only_known(one, other) for one, other in zip(said, then, strict=True)]
    return said


def test_a_golden_journal_can_be_gone_on_with(run_dir: Path) -> None:
    """It is opened for writing as it is: nothing of it is torn or cut."""
    before = (run_dir / JOURNAL).read_bytes()
    journal = Journal.open(run_dir)
    assert (journal.dropped, journal.size) == (0, len(before))
    journal.close()


def test_every_schema_has_golden_journals() -> None:
    """A new schema, or a new kind of run, comes with a file of it."""
    stems = {path.stem for path in FILES}
    assert {stem.split("-")[0] for stem in stems} == {str(number) for number in SCHEMAS}
    assert {f"{SCHEMA}-{name}" for name in RUNS} <= stems
    assert all(words for words in SCHEMAS.values())


def test_every_event_stands_in_a_golden_journal() -> None:
    """An event that is new needs a golden run in which it happens."""
    seen: set[type] = set()
    for path in GOLDEN.glob(f"{SCHEMA}-*.x1"):
        for found in frame.scan(path.read_bytes()).frames:
            seen.add(type(decoder.decode(found.payload)))
    assert seen == set(typing.get_args(AnyEvent))
