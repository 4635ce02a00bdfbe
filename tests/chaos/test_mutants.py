"""The suite fails when the design is broken: mistakes planted in the code are all caught."""

import pytest
from ground import Ground
from mutants import MUTANTS, Mutant
from workers import Worker

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_mistake_is_caught(ground: Ground, mutant: Mutant):
    """Without it a run keeps its promises; with it, the same run is seen to break this one."""
    ground.reference(mutant.script)
    _perform(ground, mutant)

    def with_mistake() -> str:
        mutant.plant()
        _perform(ground, mutant)
        return "nothing was noticed"

    words = Worker(with_mistake).wait(30.0)
    assert words.startswith(f"Broken: {mutant.promise}:"), words


def _perform(ground: Ground, mutant: Mutant) -> None:
    subject = ground.new_run(mutant.script, "process")
    try:
        subject.live(mutant.kill, stop_at=mutant.stop_at)
        subject.until_ended()
        subject.check_children(subject.check())
    finally:
        subject.remove()
