"""One run has one writer, whoever else tries."""

import pytest
from ground import Ground, Prepare, Subject
from mutants import lock_not_taken

from actors.events import Opened
from actors.journal import Held, Journal, read_events
from actors.outcome import Status
from actors.testing.evidence import read_effects
from actors.testing.lives import LifeEnd

pytestmark = pytest.mark.chaos


def _two_resumes(ground: Ground, prepare: Prepare | None) -> tuple[Subject, LifeEnd, LifeEnd]:
    """Kill a run, then resume it twice while it works in a subprocess for a while."""
    subject = ground.new_run("hammering", "process")
    subject.live("model:before")
    subject.prepare = prepare
    first = subject.begin()
    while not read_effects(subject.effects):
        pass
    second = subject.begin().wait()
    return subject, subject.bury(first.wait()), second


def test_a_second_resume_is_refused_and_appends_nothing(ground: Ground):
    """It is told which process holds the run; the first one goes on undisturbed."""
    subject, first, second = _two_resumes(ground, None)
    assert first.outcome
    assert first.outcome.status is Status.COMPLETED
    if second.refused:
        assert "is held by process" in second.refused
    else:
        # On a busy machine the first may have ended before the second came.
        assert second.outcome == first.outcome
    opened = [e for e in read_events(subject.run_dir) if isinstance(e, Opened)]
    assert len(opened) == 2
    subject.check(like=False)


def test_a_lock_that_is_not_taken_is_noticed(ground: Ground):
    """Two writers spoil a journal, and the checker sees it."""
    with pytest.raises(AssertionError, match=r"I1:|could not|Error"):
        _two_resumes(ground, lock_not_taken)[0].check(like=False)


def test_who_has_lost_the_lock_cannot_be_overtaken(ground: Ground):
    """In one process too: the second writer is refused while the first is open."""
    subject = ground.new_run("errand", "process")
    subject.live("tool:put:before")
    first = Journal.open(subject.run_dir)
    before = first.path.read_bytes()
    with pytest.raises(Held, match="is held by process"):
        Journal.open(subject.run_dir)
    first.close()
    assert first.path.read_bytes() == before
    subject.until_ended()
    subject.check()


def test_recovery_is_idempotent(ground: Ground):
    """A journal that is opened and closed changes in nothing but the torn tail it loses once."""
    subject = ground.new_run("errand", "process")
    subject.live(20)
    subject.live("half journal.x1")
    whole = subject.run_dir / "journal.x1"
    torn = whole.read_bytes()
    first = Journal.open(subject.run_dir)
    assert first.dropped == len(torn) - first.size > 0
    first.close()
    once = whole.read_bytes()
    assert torn.startswith(once)
    second = Journal.open(subject.run_dir)
    assert second.dropped == 0
    second.close()
    assert whole.read_bytes() == once
    assert torn[len(once) :] in [p.read_bytes() for p in (subject.run_dir / "torn").iterdir()]
    subject.until_ended()
    subject.check()


def test_a_completed_run_is_opened_without_a_trace(ground: Ground):
    """A resume of a run that has its answer gives it again and appends nothing."""
    subject = ground.new_run("errand", "process")
    first = subject.live()
    before = (subject.run_dir / "journal.x1").read_bytes()
    assert subject.live().outcome == first.outcome
    assert (subject.run_dir / "journal.x1").read_bytes() == before
