"""A parent's journal that is cut behind damage: its tree goes on, with no child mistaken."""

import contextlib
import functools
import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest
from grove import Grove, ask

from actors import frame
from actors.events import Replied
from actors.journal import JOURNAL, take_lock
from actors.testing.scripts import Conversation, Say
from supervisor.cli import main


@contextlib.contextmanager
def holding(run_dir: Path) -> Generator[None, None, None]:
    """Hold a run, as an actor does that its supervisor's death has left behind."""
    lock = take_lock(run_dir)
    try:
        yield
    finally:
        os.close(lock)


def test_a_tree_goes_on_after_a_repair_and_no_child_answers_another_call(
    grove: Grove, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is asked anew may be another question, so the child of the cut call is put aside.

    Not while one of both is held: an orphan in its grace would write on where nobody looks.
    """
    asked = ["first"]

    def lead(heard: Conversation):
        if heard.turn == 0:
            return ask("kept")
        return ask(asked[-1]) if heard.turn == 1 else Say(" ".join(heard.results))

    grove.agent("lead", lead, "research")
    grove.agent("researcher", lambda heard: Say(f"about {heard.task}"))
    grove.behind(research="researcher")

    async def first() -> None:
        report = await grove.run()
        assert report.output == "completed: about kept completed: about first"

    async def again() -> None:
        report = await grove.supervisor.resume("r1")
        assert report.output == "completed: about kept completed: about second"
        assert [child.run_id for child in report.children] == ["r1.1.0", "r1.2.0"]

    # One provider for both, as the address of it stands in the run's configuration.
    async def both() -> None:
        await first()
        journal = grove.supervisor.state_dir.run_dir("r1") / JOURNAL
        data = bytearray(journal.read_bytes())
        turns = [n for n, event in enumerate(grove.supervisor.state_dir.events("r1"))
                 if isinstance(event, Replied)]  # fmt: skip
        data[frame.scan(bytes(data)).frames[turns[1]].offset + 40] ^= 4
        journal.write_bytes(data)
        asked.append("second")
        state = str(grove.folder / "state")
        before = journal.read_bytes()
        for held in ("r1", "r1.2.0"):
            with holding(grove.supervisor.state_dir.run_dir(held)):
                assert main(["journal", "repair", "r1", "--yes", "--state-dir", state]) == 2
            assert f"run {held} is held by process" in capsys.readouterr().err
            assert journal.read_bytes() == before
            assert grove.runs() == ["r1", "r1.1.0", "r1.2.0"]
        assert main(["journal", "repair", "r1", "--yes", "--state-dir", state]) == 0
        aside = list((journal.parent / "torn").glob("*.runs/r1.2.0"))
        assert len(aside) == 1
        await again()

    grove.play(functools.partial(both))
    told = capsys.readouterr().err
    assert "the runs of calls that are cut were put beside it: r1.2.0" in told
    bills = Counter(bill["key"] for bill in grove.bills())
    assert {key: times for key, times in bills.items() if times > 1} == {
        "r1:2": 2, "r1:3": 2, "r1.2.0:1": 2,
    }  # fmt: skip
