"""The loop as a pure function: a table of states and what is decided in them."""

from collections.abc import Callable

import msgspec
import pytest
from story import NOW, Story, call, rules

from actors.decision import Ask, Calls, Finish
from actors.events import Finished
from actors.loop import OUTPUT_TOKENS_MIN
from actors.messages import Nature, ResultKind
from actors.money import Prices, Usage
from actors.outcome import Cancelled, MaxBudget, MaxTurns, Outcome, Status
from actors.spec import ErrorPolicy, Limits
from actors.state import RESTARTS_KEPT, State

PRICES = Prices(2_000_000, 200_000, 12_000_000)


def test_a_new_run_asks_the_model():
    """Nothing is outstanding, so the model is asked, at once and for turn 1."""
    assert Story().decide() == Ask(turn=1, max_output=1000, cap_nusd=0, not_before=0.0)


def test_the_worst_case_of_a_turn_is_its_cap():
    """Input as counted, output as limited, at the run's prices."""
    story = Story(prices=PRICES)
    decision = story.decide(input_tokens=500)
    assert isinstance(decision, Ask)
    assert decision.cap_nusd == 500 * 2000 + 1000 * 12000


def test_pending_calls_come_before_the_model():
    """A reply with calls is followed by its calls, whatever the limits say meanwhile."""
    story = Story(Limits(max_turns=1))
    story.reply(call("look"))
    decision = story.decide()
    assert isinstance(decision, Calls)
    assert [run.call.ref for run in decision.runs] == ["1.0"]


def test_a_limit_ends_the_run_once_the_calls_are_answered():
    """Checked before the model is asked, and after the last call."""
    story = Story(Limits(max_turns=1))
    story.reply(call("look"))
    story.run("1.0", Nature.READ_ONLY)
    assert story.decide() == Finish(Outcome(Status.MAX_TURNS, MaxTurns(1)))


@pytest.mark.parametrize(
    ("text", "finish", "outcome"),
    [
        ("yes", "stop", Outcome(Status.COMPLETED, output="yes")),
        ("yes", "anything", Outcome(Status.COMPLETED, output="yes")),
        (
            "ye",
            "length",
            Outcome(Status.COMPLETED, output="ye\n[The answer was cut off at the output limit.]"),
        ),
        (
            None,
            "stop",
            Outcome(Status.FAILED, error="the model sent an answer with nothing in it"),
        ),
        (
            " \n",
            "stop",
            Outcome(Status.FAILED, error="the model sent an answer with nothing in it"),
        ),
        (
            None,
            "length",
            Outcome(
                Status.FAILED,
                error="the model reached its output limit before it had said anything; "
                "raise max_output_tokens in [provider]",
            ),
        ),
        (
            "yes",
            "content_filter",
            Outcome(Status.FAILED, error="the provider's content filter withheld the answer"),
        ),
    ],
    ids=["stop", "other", "length", "null", "blank", "thoughts", "filter"],
)
def test_a_reply_without_calls_is_the_answer(text: str | None, finish: str, outcome: Outcome):
    """On the last turn too: what was answered within the limits is complete."""
    story = Story(Limits(max_turns=1))
    story.reply(text=text, finish=finish)
    assert story.decide() == Finish(outcome)


def test_text_beside_calls_is_no_answer():
    """A model that thinks aloud while it calls is not done."""
    story = Story()
    story.reply(call("look"), text="Let me look.")
    story.run("1.0", Nature.READ_ONLY)
    assert isinstance(story.decide(), Ask)


def stopped(story: Story) -> None:
    story.stop("lunch")


def broken(story: Story) -> None:
    story.finish("1.0", "no", ResultKind.ERROR, permanent=True)


@pytest.mark.parametrize(
    ("happens", "words", "outcome"),
    [
        (
            stopped,
            "cancelled, lunch",
            Outcome(Status.INTERRUPTED, Cancelled("lunch", "user")),
        ),
        (
            broken,
            "the run failed, look: no",
            Outcome(Status.FAILED, error="look: no"),
        ),
    ],
    ids=["stop", "fatal"],
)
def test_an_ending_underway_answers_every_call_first(
    happens: Callable[[Story], None], words: str, outcome: Outcome
):
    """No transcript is left with an open call, and no call starts any more."""
    story = Story()
    story.reply(call("look"), call("look", '{"at": 1}'), call("write"), call("delete"))
    story.start("1.0", Nature.READ_ONLY)
    story.start("1.1", Nature.READ_ONLY)
    happens(story)
    decision = story.decide()
    assert isinstance(decision, Calls)
    assert not decision.runs
    told = {answer.call.ref: answer.content for answer in decision.answers}
    assert told["1.1"] == f"stopped before it ended: {words}"
    assert told["1.2"] == told["1.3"] == f"not run: {words}"
    for answer in decision.answers:
        assert answer.outcome is ResultKind.CANCELLED
        story.finish(answer.call.ref, answer.content, answer.outcome)
    assert story.decide() == Finish(outcome)


def test_a_stop_goes_before_an_answer():
    """A Stop that was requested is how the run ends, whatever came in meanwhile."""
    story = Story()
    story.stop()
    story.reply(text="done")
    assert story.decide() == Finish(Outcome(Status.INTERRUPTED, Cancelled("enough", "user")))


def test_a_failed_attempt_is_made_again_but_not_before_its_time():
    """The wait is in the decision, and the turn is the same."""
    story = Story()
    story.ask()
    story.fail(retry_at=NOW + 50)
    assert story.decide() == Ask(turn=1, max_output=1000, cap_nusd=0, not_before=NOW + 50)


def test_attempts_come_to_an_end():
    """``max_retries`` after the first one."""
    story = Story()
    for _ in range(2):
        story.fail()
        assert isinstance(story.decide(), Ask)
    story.fail(words="still busy")
    assert story.decide() == Finish(
        Outcome(Status.FAILED, error="gave up after 3 attempts: still busy")
    )


def test_waiting_comes_to_an_end():
    """A provider that asks for ever longer waits is given up after ten minutes."""
    story = Story()
    story.fail(retry_at=NOW + 1000)
    assert story.decide() == Finish(Outcome(Status.FAILED, error="gave up after 600 s: busy"))


def test_a_permanent_failure_is_not_tried_again():
    """Its words are the run's error."""
    story = Story()
    story.fail(permanent=True, words="no such model")
    assert story.decide() == Finish(Outcome(Status.FAILED, error="no such model"))


def test_a_saved_reply_forgets_the_failures_before_it():
    """Attempts are counted per turn."""
    story = Story()
    story.fail()
    story.fail()
    story.reply(call("look"))
    story.run("1.0", Nature.READ_ONLY)
    story.fail()
    assert isinstance(story.decide(), Ask)


def test_identical_failures_end_the_run():
    """``repeat_limit`` of the same call, other calls between them or not."""
    story = Story(rules_=rules(errors=ErrorPolicy(repeat_limit=2)))
    for turn in (1, 2):
        story.reply(call("look", '{"at": 5}'), call("look", f'{{"at": {turn}}}'))
        story.run(f"{turn}.0", Nature.READ_ONLY, content="no", outcome=ResultKind.ERROR)
        story.run(f"{turn}.1", Nature.READ_ONLY)
        if turn == 1:
            assert isinstance(story.decide(), Ask)
    assert story.decide() == Finish(
        Outcome(Status.FAILED, error="the same call failed 2 times, look: no")
    )


def test_three_cut_replies_end_the_run():
    """A model whose every message is cut makes no headway."""
    story = Story()
    for turn in (1, 2, 3):
        assert isinstance(story.decide(), Ask)
        story.reply(call("look"), finish="length")
        story.finish(f"{turn}.0", "cut", ResultKind.OK)
    assert story.decide() == Finish(
        Outcome(
            Status.FAILED,
            error="3 replies in a row were cut off at the output limit; "
            "raise max_output_tokens in [provider]",
        )
    )


def after_one_turn(state: State) -> str | None:
    return "one is enough" if state.head.turns else None


@pytest.mark.parametrize(
    ("limits", "reason", "who"),
    [
        (Limits(deadline_seconds=2.0), "the deadline of 2 s is reached", "deadline"),
        (Limits(max_tokens=110), "the cap of 110 tokens is reached (110 used)", "max_tokens"),
        (Limits(stop_after_tool="look"), "look has run", "stop_after_tool"),
        (Limits(), "one is enough", "stop_when"),
    ],
    ids=["deadline", "max_tokens", "stop_after_tool", "stop_when"],
)
def test_further_stop_conditions_name_themselves(limits: Limits, reason: str, who: str):
    """Each is an interruption with its own reason, and can be resumed."""
    conditions = (after_one_turn,) if who == "stop_when" else ()
    story = Story(limits, rules_=rules(stop_conditions=conditions))
    assert isinstance(story.decide(), Ask)
    story.reply(call("look"))
    story.run("1.0", Nature.READ_ONLY)
    assert story.decide() == Finish(Outcome(Status.INTERRUPTED, Cancelled(reason, who)))


def test_the_deadline_counts_only_what_was_performed():
    """A night between two processes is not the run's time."""
    story = Story(Limits(deadline_seconds=10.0))
    story.reply(call("look"))
    story.run("1.0", Nature.READ_ONLY)
    story.end(Outcome(Status.INTERRUPTED, Cancelled("lunch")))
    story.now += 10_000
    story.open("resume")
    assert isinstance(story.decide(), Ask)


BUDGET = Limits(max_budget_nusd=10_000_000)


def test_a_strict_budget_buys_what_it_can():
    """The output limit shrinks to what the rest pays for, and the cap fits the rest."""
    story = Story(BUDGET, PRICES)
    story.reply(call("look"), cost_nusd=4_000_000)
    story.run("1.0", Nature.READ_ONLY)
    decision = story.decide(input_tokens=500)
    assert isinstance(decision, Ask)
    assert decision.max_output == (6_000_000 - 500 * 2000) // 12_000
    assert decision.cap_nusd <= 6_000_000


def test_a_strict_budget_ends_before_it_buys_too_little():
    """A turn that pays for hardly any output is not asked at all."""
    story = Story(BUDGET, PRICES)
    needed = 500 * 2000 + OUTPUT_TOKENS_MIN * 12_000
    story.reply(call("look"), cost_nusd=10_000_000 - needed)
    story.run("1.0", Nature.READ_ONLY)
    decision = story.decide(input_tokens=500)
    assert isinstance(decision, Ask)
    assert (decision.max_output, decision.cap_nusd) == (OUTPUT_TOKENS_MIN, needed)
    decision = story.decide(input_tokens=501)
    assert isinstance(decision, Finish)
    assert decision.outcome.status is Status.MAX_BUDGET
    assert isinstance(decision.outcome.interruption, MaxBudget)
    assert decision.outcome.interruption.next_turn_usd == (needed + 2000) / 1e9


def test_a_budget_that_is_not_strict_ends_once_it_is_spent():
    """Anything that is left buys a whole turn."""
    limits = Limits(max_budget_nusd=10_000_000, strict_budget=False)
    story = Story(limits, PRICES)
    story.reply(call("look"), cost_nusd=9_999_999)
    story.run("1.0", Nature.READ_ONLY)
    decision = story.decide(input_tokens=50_000)
    assert isinstance(decision, Ask)
    assert decision.max_output == 1000
    story.reply(call("look"), cost_nusd=1)
    story.run("2.0", Nature.READ_ONLY)
    decision = story.decide()
    assert isinstance(decision, Finish)
    assert decision.outcome.status is Status.MAX_BUDGET


def test_what_was_possibly_spent_counts():
    """A budget is held against spent and possibly spent together."""
    story = Story(Limits(max_budget_nusd=10_000_000, strict_budget=False), PRICES)
    story.ask(cap_nusd=10_000_000)
    story.fail(maybe_billed=True, cap_nusd=10_000_000)
    decision = story.decide()
    assert isinstance(decision, Finish)
    assert isinstance(decision.outcome.interruption, MaxBudget)
    assert decision.outcome.interruption.possibly_spent_usd == 0.01


def test_a_spent_budget_says_where_all_of_it_went():
    """The run's own, what is not known, and what the runs below spent: the amounts add up."""
    story = Story(BUDGET, PRICES)
    story.reply(call("look"), cost_nusd=1_000_000)
    story.start("1.0", Nature.CHILD)
    story.tell(Finished(ref="1.0", outcome=ResultKind.OK, content="x", child_nusd=6_500_000))
    decision = story.decide(input_tokens=500)
    assert isinstance(decision, Finish)
    why = decision.outcome.interruption
    assert isinstance(why, MaxBudget)
    assert (why.spent_usd, why.possibly_spent_usd, why.children_usd) == (0.001, 0.0, 0.0065)
    whole = why.spent_usd + why.possibly_spent_usd + why.children_usd + why.next_turn_usd
    assert whole > why.max_budget_usd
    assert decision.outcome.reason == (
        "the budget of $0.010000 does not cover another turn: $0.001000 spent, $0.000000 possibly "
        "spent, $0.006500 by the runs below, the next turn may cost $0.004072"
    )


def test_three_opens_that_brought_nothing_are_a_crash_loop():
    """Whatever kills the process while the model is asked is not paid for without end."""
    story = Story()
    for _ in range(2):
        story.ask()
        story.open("restart")
        assert isinstance(story.decide(), Ask)
    story.ask()
    story.open("restart")
    assert story.decide() == Finish(
        Outcome(Status.FAILED, error="crash loop while asking for turn 1")
    )


@pytest.mark.parametrize("most", [0, 3, RESTARTS_KEPT - 1])
def test_too_many_restarts_in_a_period_are_a_crash_loop(most: int):
    """Counted in the journal, so that killing the supervisor does not reset it.

    The highest number that a configuration may have is one that can be passed.
    """
    story = Story(rules_=rules(max_restarts=most, restart_period_seconds=1000.0))
    for turn in range(1, most + 2):
        story.reply(call("look"))
        story.run(f"{turn}.0", Nature.READ_ONLY)
        assert isinstance(story.decide(), Ask)
        story.open("restart")
    assert story.decide() == Finish(
        Outcome(Status.FAILED, error=f"crash loop: restarted more than {most} times in 1000 s")
    )


def test_restarts_that_lie_far_apart_are_no_crash_loop():
    """Only those within the period count."""
    story = Story(rules_=rules(max_restarts=3, restart_period_seconds=60.0))
    for turn in range(1, 10):
        story.reply(call("look"))
        story.run(f"{turn}.0", Nature.READ_ONLY)
        story.now += 30
        story.open("restart")
    assert isinstance(story.decide(), Ask)


def test_deciding_changes_nothing():
    """A pure function: the same state, the same decision, and the state as it was."""
    story = Story()
    story.reply(call("look"), call("write"), call("look"))
    before = msgspec.msgpack.encode(story.state)
    first, second = story.decide(), story.decide()
    assert first == second
    assert msgspec.msgpack.encode(story.state) == before


def test_usage_is_summed_for_the_limits():
    story = Story(Limits(max_tokens=1000))
    story.reply(call("look"), usage=Usage(900, 99))
    story.run("1.0", Nature.READ_ONLY)
    assert isinstance(story.decide(), Ask)
