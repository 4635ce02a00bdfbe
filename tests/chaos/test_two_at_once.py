"""One run has one writer, whoever else tries."""

import pytest
from ground import Ground

from actors.events import Opened
from actors.journal import Held, Journal, read_events
from actors.outcome import Status

pytestmark = pytest.mark.chaos


def test_a_second_resume_is_refused_and_appends_nothing(ground: Ground):
    """It is told which process holds the run; the first one goes on undisturbed."""
    subject = ground.new_run("hammering", "process")
    subject.live("tool:hammer:before")
    first = subject.begin()
    journal = subject.run_dir / "journal.x1"
    while not any(isinstance(e, Opened) and e.epoch == 2 for e in read_events(subject.run_dir)):
        pass
    first_pid = first.pid
    second = subject.begin().wait()
    third = subject.begin().wait()
    end = subject.bury(first.wait())
    refusals = [refused for refused in (second.refused, third.refused) if refused]
    if end.outcome and len(refusals) < 2:
        # The first had ended before the second came, which then found nothing to do.
        assert journal.exists()
    for refused in refusals:
        assert f"is held by process {first_pid}" in refused
    assert end.outcome
    assert end.outcome.status is Status.COMPLETED
    assert max(e.epoch for e in read_events(subject.run_dir) if isinstance(e, Opened)) == 2
    subject.check(like=False)


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
