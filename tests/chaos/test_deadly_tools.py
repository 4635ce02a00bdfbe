"""Tools that kill, block or outlive their process do not take the run with them."""

import pytest
from errand_scripts import ANSWER
from ground import Ground

from actors import opening
from actors.messages import ResultKind
from actors.outcome import Status
from actors.testing.evidence import read_effects

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("why", ["resume", "restart"])
def test_a_call_that_kills_its_process_is_given_up_after_three_times(ground: Ground, why: str):
    """The model is told so in words, and the run goes on to its answer."""
    subject = ground.new_run("poisoned", "power")
    subject.why = why
    for _ in range(3):
        assert subject.live().killed
    end = subject.until_ended()
    assert end.outcome
    assert end.outcome.output == ANSWER
    state = subject.check(like=False)
    result = state.call("1.1").result
    assert result
    assert result.outcome is ResultKind.CRASHED
    assert "ended the process 3 times" in result.content
    assert len([e for e in subject.evidence().effects if e.ref == "1.1"]) == 3


def test_a_run_that_only_crashes_while_asking_fails_in_words(ground: Ground):
    """Each crash may cost a model call, so a crash loop has an end, and the money is told."""
    subject = ground.new_run("errand", "power")
    for _ in range(3):
        assert subject.live("model:after").killed
    end = subject.until_ended()
    assert end.outcome
    assert end.outcome.status is Status.FAILED
    assert end.outcome.error == "crash loop while asking for turn 1"
    state = subject.check(like=False)
    assert len(subject.evidence().bills) == 3
    assert state.head.cost_nusd == 0


def test_a_tool_that_blocks_for_good_ends_with_its_process(ground: Ground):
    """The process leaves on purpose, which is no crash, and the next one tells the model."""
    subject = ground.new_run("wedged", "power")
    first = subject.live()
    assert first.left
    end = subject.until_ended()
    assert end.outcome
    assert end.outcome.output == ANSWER
    state = subject.check(like=False)
    result = state.call("2.0").result
    assert result
    assert "wedge did not end within 0.05 s and was stopped" in result.content
    assert state.head.stalled_opens == 0


def test_a_process_that_leaves_may_be_killed_at_any_step(ground: Ground):
    """Leaving on purpose is as safe as everything else."""
    subject = ground.new_run("wedged", "process")
    total = len(subject.live().steps) + 2
    for kill in range(1, total + 1, 3):
        subject = ground.new_run("wedged", "process")
        subject.live(kill)
        subject.until_ended()
        state = subject.check(like=False)
        assert state.outcome
        assert state.outcome.output == ANSWER
        subject.remove()


def test_a_resume_waits_for_the_tools_of_a_killed_process(ground: Ground):
    """A subprocess that outlives its actor is over before anybody goes on with the run."""
    subject = ground.new_run("hammering", "process")
    life = subject.begin()
    while not read_effects(subject.effects):
        pass
    life.kill()
    subject.bury(life.wait())
    ended = subject.home / f"{subject.effects.name}.ended"
    assert not ended.exists()
    subject.until_ended()
    # It happened once, it was over when the run went on, and it is told as in doubt.
    assert ended.read_text() == "ended\n"
    result = subject.check(like=False).call("1.0").result
    assert result
    assert result.outcome is ResultKind.IN_DOUBT


def test_a_resume_beside_a_tool_that_does_not_end_is_refused(ground: Ground):
    """In words that say what to do, and nothing is appended."""
    subject = ground.new_run("hammering", "process")
    life = subject.begin()
    while not read_effects(subject.effects):
        pass
    life.kill()
    subject.bury(life.wait())
    before = (subject.run_dir / "journal.x1").read_bytes()

    def hurry() -> None:
        opening.EFFECTS_SECONDS_MAX = 0.0

    subject.prepare = hurry
    refused = subject.begin().wait().refused
    assert refused
    assert "is still running; end it, then resume the run" in refused
    assert (subject.run_dir / "journal.x1").read_bytes() == before
    subject.prepare = None
    assert subject.until_ended().outcome
