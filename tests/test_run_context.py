"""Whole runs that outgrow the model's window."""

import re
from collections.abc import Callable

import pytest
from world import Watched, World

from actors.events import Asked, AskFailed, ContextFitted
from actors.journal import Corrupt
from actors.opening import open_run
from actors.outcome import Status
from actors.spec import ContextSpec, LimitChange
from actors.testing.chapters import write_chapters
from actors.window import Marks, PolicyName

WINDOW, CHARS = 4000, 1000


class Killed(BaseException):
    """What ends a process in the middle of a run."""


class Deadly(Watched):
    """A disk beside which a run is ended at every third of its boundaries of one name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._passed = 0

    def boundary(self, name: str) -> None:
        super().boundary(name)
        self._passed += name == self._name
        if name == self._name and self._passed % 3 == 0:
            raise Killed


@pytest.fixture
def library(world: World) -> World:
    """A world whose workspace holds the book."""
    write_chapters(world.workspace, CHARS)
    return world


def fit(world: World, budget: int | None, policy: PolicyName = "band") -> None:
    """Fit the run's requests to a budget."""
    world.change(context=ContextSpec(budget_tokens=budget, policy=policy))


@pytest.mark.parametrize("policy", ["band", "reference"])
async def test_a_book_of_many_windows_is_read_to_its_end(
    library: World, policy: PolicyName
) -> None:
    """No request is refused, each is as large as was expected, and the trace says what was done."""
    fit(library, WINDOW, policy)
    await library.provide("chapters", window_tokens=WINDOW)
    outcome = await library.perform()
    assert outcome.output == "I have read 40 of 40 chapters."
    events = library.events
    assert not [event for event in events if isinstance(event, AskFailed)]
    fitted = [event for event in events if isinstance(event, ContextFitted)]
    assert fitted
    assert len(library.lines("context_fitted")) == len(fitted)
    assert all(event.input_estimate <= WINDOW for event in events if isinstance(event, Asked))


@pytest.mark.parametrize("budget", [None, WINDOW])
async def test_without_fitting_the_model_gives_up_early(library: World, budget: int | None) -> None:
    """Nobody has told it that its window is looked after."""
    fit(library, budget, "off")
    await library.provide("chapters", window_tokens=WINDOW)
    assert "2 of 40 chapters and stop here" in str((await library.perform()).output)


async def test_a_request_that_is_too_long_is_sent_once_more_and_smaller(library: World) -> None:
    """The provider's window is smaller than the budget: the run learns it, and goes on."""
    fit(library, 3 * WINDOW)
    library.ask(max_retries=0)
    await library.provide("chapters", window_tokens=WINDOW)
    outcome = await library.perform()
    assert outcome.output == "I have read 40 of 40 chapters."
    events = library.events
    assert [e.kind for e in events if isinstance(e, AskFailed)] == ["overflow"]
    assert 0 < library.state.head.marks.budget <= WINDOW


async def test_a_request_that_nobody_fits_is_not_sent_again(library: World) -> None:
    """With the policy off a refusal is final, and says so in words for the person."""
    fit(library, WINDOW, "off")
    await library.provide("runaway", window_tokens=150)
    outcome = await library.perform()
    assert outcome.status is Status.FAILED
    kinds = [event.kind for event in library.events if isinstance(event, AskFailed)]
    assert kinds == ["overflow"]
    assert "nothing is lost" in str(outcome.error).lower()


async def test_a_budget_below_the_system_prompt_fails_before_any_call(library: World) -> None:
    """The parts are named with their sizes, and nothing is asked."""
    fit(library, 100)
    await library.provide("chapters")
    outcome = await library.perform()
    assert outcome.status is Status.FAILED
    numbers = re.search(
        r"needs (\d+) tokens and may have 100 \(system prompt, task and tools (\d+)\)",
        str(outcome.error),
    )
    assert numbers
    assert int(numbers[1]) == int(numbers[2]) > 100
    assert not [event for event in library.events if isinstance(event, Asked)]


async def test_a_window_too_small_for_anything_fails_in_words(library: World) -> None:
    """Shrinking was tried once; then a person is told what to do."""
    fit(library, WINDOW)
    await library.provide("chapters", window_tokens=50)
    outcome = await library.perform()
    assert outcome.status is Status.FAILED
    assert "budget" in str(outcome.error)


async def test_marks_that_cannot_be_are_refused_with_both_numbers(library: World) -> None:
    """A journal that says so is not sent on its word."""
    fit(library, WINDOW)
    await library.provide("chapters")
    async with open_run(library.start(), library.fs) as run:
        run.record.write(
            ContextFitted(
                marks=Marks(cleared_upto=-3), before=0, after=0, cleared=0, folded=0, why="budget"
            )
        )
    with pytest.raises(Corrupt, match="cleared_upto is -3, and must lie in 0 to 0"):
        await library.perform("resume")


async def test_a_resumed_run_sends_what_it_would_have_sent(library: World) -> None:
    """Stopped in the middle of the book, it goes on from the saved marks, and clears for free."""
    fit(library, WINDOW)
    library.limit(max_turns=25)
    await library.provide("chapters", window_tokens=WINDOW)
    assert (await library.perform()).status is Status.MAX_TURNS
    before = library.state.head.marks
    assert before.cleared_upto > 0
    outcome = await library.perform("resume", raised=LimitChange(max_turns=100))
    assert outcome.output == "I have read 40 of 40 chapters."
    marks = [event.marks for event in library.events if isinstance(event, ContextFitted)]
    cleared = [one.cleared_upto for one in marks]
    assert cleared == sorted(cleared)
    bills = library.bills()
    resumed = bills[25]
    assert resumed["cached_input_tokens"] > 0.6 * resumed["input_tokens"]


async def test_after_a_long_pause_clearing_is_free(library: World) -> None:
    """The provider's cache is cold when a person comes back, so a half-full window is made small.

    Before the pause the same size of request was let be.
    """
    fit(library, WINDOW)
    library.limit(max_turns=7)
    await library.provide("chapters", window_tokens=WINDOW)
    await library.perform()
    assert library.lines("context_fitted") == []
    context = ContextSpec(budget_tokens=WINDOW, cold_after_seconds=1e-6)
    library.change(context=context)
    await library.perform("resume", raised=LimitChange(max_turns=8))
    (line,) = library.lines("context_fitted")
    assert (line["why"], line["before"] < WINDOW) == ("cold", True)
    assert line["after"] < 0.6 * line["before"]


@pytest.mark.slow
@pytest.mark.parametrize("boundary", ["model:before", "model:after"])
async def test_a_run_that_is_killed_again_and_again_is_fitted_as_one_that_was_not(
    make_world: Callable[[], World], boundary: str
) -> None:
    """The marks stand in the journal before the request leaves, and never move back."""
    marks: list[list[Marks]] = []
    for deadly in (False, True):
        world = make_world()
        write_chapters(world.workspace, CHARS)
        fit(world, WINDOW)
        await world.provide("chapters", window_tokens=WINDOW)
        world.change(max_restarts=100)
        if deadly:
            world.fs = Deadly(boundary)
        outcome, why = None, "start"
        while outcome is None:
            try:
                outcome = await world.perform(why)
            except* Killed:
                why = "restart"
        assert outcome.output == "I have read 40 of 40 chapters."
        assert world.state.epoch > 10 or not deadly
        marks.append([e.marks for e in world.events if isinstance(e, ContextFitted)])
    assert marks[0] == marks[1] != []
