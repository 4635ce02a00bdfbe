"""The state as a fold over the events: what each event changes, and what a resume forgets."""

from pathlib import Path

import msgspec
import pytest
from story import PROMPTS, Story, call

from actors.events import Abandoned, Finished, RunStopped, decoder, encoder
from actors.journal import read_events
from actors.messages import Nature, ResultKind
from actors.money import Usage
from actors.outcome import Cancelled, MaxTurns, Outcome, Status
from actors.record import Record
from actors.spec import Limits
from actors.state import RESTARTS_KEPT, fold


def test_a_fold_of_nothing_is_an_empty_run():
    state = fold([])
    assert (state.epoch, state.pending, state.outcome) == (0, [], None)


def test_the_first_open_says_what_the_run_is():
    """Later ones change who performs it, and neither its name nor its prompts."""
    story = Story(Limits(max_turns=3))
    story.open("resume")
    state = story.state
    assert (state.run_id, state.root, state.agent) == ("r1", "r1", "lead")
    assert state.prompts == PROMPTS
    assert (state.epoch, state.limits.max_turns) == (2, 3)
    assert state.first_opened_at < state.opened_at


def test_a_reply_adds_up():
    """Turns, tokens and money are sums over the saved replies."""
    story = Story()
    story.reply(call("look"), usage=Usage(100, 10, 64), cost_nusd=7)
    story.run("1.0", Nature.READ_ONLY)
    story.reply(text="done", usage=Usage(200, 20, estimated=True), cost_nusd=8)
    head = story.state.head
    assert (head.turns, head.tool_runs, head.estimated_turns) == (2, 1, 1)
    assert (head.input_tokens, head.output_tokens, head.cached_input_tokens) == (300, 30, 64)
    assert (head.cost_nusd, head.maybe_nusd) == (15, 0)


def test_calls_are_named_by_their_place():
    """Whatever ids the provider gave them."""
    story = Story()
    story.reply(call("look", call_id=""), call("look", call_id=""))
    assert [one.ref for one in story.state.pending] == ["1.0", "1.1"]


@pytest.mark.parametrize(
    "ref",
    ["", "0.0", "1", "1.-1", "-1.0", "1.1", "2.0", "01.0", "1.0.0", "1. 0", "x.y", "1.\u0660"],
)
def test_a_name_that_no_call_has_is_refused(ref: str):
    """Not even one that Python would take for an index."""
    story = Story()
    story.reply(call("look"))
    with pytest.raises(KeyError):
        story.state.call(ref)


def test_results_may_come_in_any_order():
    """Pending is what is not answered, in the order in which it was asked."""
    story = Story()
    story.reply(call("look"), call("write"), call("look"))
    story.finish("1.1")
    assert [one.ref for one in story.state.pending] == ["1.0", "1.2"]


def test_a_request_that_was_lost_was_possibly_paid_for():
    """A process that died with a request in flight adds its cap, once."""
    story = Story()
    story.ask(cap_nusd=50)
    story.open("restart")
    story.open("restart")
    assert story.state.head.maybe_nusd == 50
    assert story.state.spent_nusd == 50


def test_a_request_that_was_answered_was_not_lost():
    story = Story()
    story.ask(cap_nusd=50)
    story.reply(text="done", cost_nusd=3)
    story.open("restart")
    assert (story.state.head.cost_nusd, story.state.head.maybe_nusd) == (3, 0)


@pytest.mark.parametrize(("billed", "maybe"), [(True, 50), (False, 0)])
def test_a_failed_attempt_costs_its_cap_only_if_it_may_have_been_billed(billed: bool, maybe: int):
    story = Story()
    story.ask(cap_nusd=50)
    story.fail(maybe_billed=billed, cap_nusd=50)
    story.open("restart")
    assert story.state.head.maybe_nusd == maybe


def test_restarts_after_crashes_are_remembered():
    """The latest ones, with their times; a resume after an ending is none."""
    story = Story()
    for _ in range(RESTARTS_KEPT + 5):
        story.open("restart")
    assert len(story.state.head.restarts) == RESTARTS_KEPT
    assert story.state.head.restarts[-1] == story.now


@pytest.mark.parametrize("why", ["resume", "restart"])
def test_an_ending_is_no_crash(why: str):
    """Opens that follow an ending count neither as restarts nor as stalled."""
    story = Story()
    story.end(Outcome(Status.MAX_TURNS, MaxTurns(1)))
    story.open(why)
    assert (story.state.head.restarts, story.state.head.stalled_opens) == ((), 0)


def test_leaving_on_purpose_is_no_crash():
    """A process that says it must leave, or was told to stop, did not crash."""
    story = Story()
    story.reply(call("look"))
    story.start("1.0", Nature.READ_ONLY)
    story.tell(Abandoned(ref="1.0", words="took too long"))
    story.open("resume")
    assert story.state.head.stalled_opens == 0
    assert story.state.call("1.0").abandoned == "took too long"


def test_headway_forgets_stalled_opens():
    """Each reply and each result does."""
    story = Story()
    story.open("restart")
    story.open("restart")
    assert story.state.head.stalled_opens == 2
    story.reply(call("look"))
    assert story.state.head.stalled_opens == 0
    story.open("restart")
    story.finish("1.0")
    assert story.state.head.stalled_opens == 0


def test_a_resume_forgets_the_stop_and_the_ending():
    """They are history; what was done stays done."""
    story = Story()
    story.reply(call("look"))
    story.stop()
    story.finish("1.0", "cancelled", ResultKind.CANCELLED)
    story.end(Outcome(Status.INTERRUPTED, Cancelled("enough")))
    story.open("resume")
    assert (story.state.stop, story.state.outcome, story.state.ask_failures) == (None, None, [])
    assert story.state.head.turns == 1


def test_a_crash_forgets_no_stop():
    """Kill -9 during a Stop resumes into the Stop, not into work."""
    story = Story()
    story.stop()
    story.open("restart")
    assert story.state.stop


def test_the_first_stop_counts():
    story = Story()
    story.stop("first")
    story.stop("second")
    assert story.state.stop
    assert story.state.stop.reason == "first"


def test_a_verdict_opens_a_run_without_performing_it():
    """The ending stands until somebody resumes; no time passes, nothing counts as crashed."""
    story = Story()
    story.reply(call("delete"))
    story.ask_person("1.0", b"d")
    ending = Outcome(Status.INTERRUPTED, Cancelled("stands for an approval"))
    story.end(ending)
    active = story.state.head.active_seconds
    story.now += 5000
    story.open("verdict")
    story.verdict("1.0", "approve", b"d", args='{"what": 2}')
    state = story.state
    assert (state.outcome, state.performing, state.epoch) == (ending, False, 2)
    assert state.head.active_seconds == active
    assert state.call("1.0").arguments == '{"what": 2}'
    story.open("resume")
    assert (state.outcome, state.head.stalled_opens) == (None, 0)
    assert state.call("1.0").verdict


def test_only_performed_time_is_active():
    """The time between two processes is nobody's."""
    story = Story()
    story.reply(call("look"))
    story.run("1.0", Nature.READ_ONLY)
    story.end(Outcome(Status.INTERRUPTED, Cancelled("lunch")))
    active = story.state.head.active_seconds
    story.now += 10_000
    story.open("resume")
    assert story.state.head.active_seconds == active


@pytest.mark.parametrize("nature", [n for n in Nature if n is not Nature.READ_ONLY])
def test_a_write_empties_the_memory_of_reads(nature: Nature):
    """As soon as it starts: it may have taken effect even if nobody hears of it again."""
    story = Story()
    story.reply(call("look"))
    story.run("1.0", Nature.READ_ONLY)
    assert story.state.read_results
    story.reply(call("write"))
    story.start("2.0", nature)
    assert story.state.read_results == {}


def test_only_reads_that_succeeded_are_remembered():
    story = Story()
    story.reply(call("look"), call("look", '{"at": 1}'), call("write"))
    story.run("1.0", Nature.READ_ONLY, outcome=ResultKind.ERROR)
    story.run("1.1", Nature.READ_ONLY)
    assert list(story.state.read_results.values()) == ["1.1"]


def test_failures_are_counted_since_the_last_success():
    """Of the same call with the same arguments."""
    story = Story()
    for turn in (1, 2):
        story.reply(call("look"))
        story.run(f"{turn}.0", Nature.READ_ONLY, content="no", outcome=ResultKind.ERROR)
    (failures,) = story.state.failures.values()
    assert (failures.count, failures.words) == (2, "look: no")
    story.reply(call("look"))
    story.run("3.0", Nature.READ_ONLY)
    assert story.state.failures == {}


def test_cut_replies_are_counted_in_a_row():
    story = Story()
    story.reply(call("look"), finish="length")
    story.finish("1.0")
    assert story.state.head.cut_replies == 1
    story.reply(call("look"))
    assert story.state.head.cut_replies == 0


def test_a_permanent_error_is_the_runs_error():
    """The first one counts."""
    story = Story()
    story.reply(call("look"), call("write"))
    story.finish("1.0", "no", ResultKind.ERROR, permanent=True)
    story.finish("1.1", "neither", ResultKind.ERROR, permanent=True)
    assert story.state.fatal == "look: no"


def test_tools_that_ran_are_known_by_name():
    story = Story()
    story.reply(call("look"), call("write"))
    story.run("1.0", Nature.READ_ONLY)
    assert story.state.tool_names_run == {"look"}


def test_every_event_survives_the_journal():
    """Encoded and decoded it is the same event, and folds to the same state."""
    story = Story(Limits(max_budget_nusd=5))
    story.ask(7)
    story.fail(maybe_billed=True, cap_nusd=7)
    story.ask(7)
    story.reply(call("delete", '{"what": 1}'), call("look"), text="a\x00b 🦆")
    story.ask_person("1.0", b"\xff" * 16)
    story.verdict("1.0", "approve", b"\xff" * 16, args="{}", reason="why not")
    story.start("1.0")
    story.finish("1.0", "x" * 1000)
    story.run("1.1", Nature.READ_ONLY, outcome=ResultKind.ERROR, permanent=True)
    story.stop()
    story.end(Outcome(Status.INTERRUPTED, Cancelled("enough", "user")))
    again = [decoder.decode(encoder.encode(event)) for event in story.events]
    assert again == story.events
    assert fold(again) == story.state


def test_a_field_that_is_new_has_a_default():
    """Events of an older version lack fields of this one: every new field must bear that."""
    event = Finished(ref="1.0", outcome=ResultKind.OK, content="x")
    slim = {"t": "tool.finished", "ref": "1.0", "outcome": "ok", "content": "x"}
    assert decoder.decode(msgspec.msgpack.encode(slim)) == event


async def test_the_head_in_each_frame_is_the_state_at_that_frame(tmp_path: Path):
    """What a frame stores of the state is what a fold up to it gives."""
    story = Story()
    story.ask(9)
    story.reply(call("look"), call("write"))
    story.run("1.0", Nature.READ_ONLY)
    story.run("1.1")
    story.reply(text="done", cost_nusd=4)
    story.end(Outcome(Status.COMPLETED, output="done"))
    record = Record(tmp_path)
    record.journal.begin(story.events[0])  # pyright: ignore[reportArgumentType]
    await record.add(*story.events)
    record.close()
    again = Record(tmp_path)
    try:
        assert again.state == record.state
    finally:
        again.close()
    events = read_events(tmp_path)
    for number, event in enumerate(events, 1):
        head = getattr(event, "head", None)
        if head is not None:
            assert head == fold(events[:number]).head
    assert isinstance(events[-1], RunStopped)
    assert events[-1].head
    assert events[-1].head.cost_nusd == 4


def test_a_read_beside_a_child_is_not_remembered_past_it():
    """It may be older than what the child wrote meanwhile."""
    story = Story()
    story.reply(call("research"), call("look"), call("look"))
    story.start("1.0", Nature.CHILD)
    story.run("1.1", Nature.READ_ONLY)
    assert story.state.read_results
    story.finish("1.0")
    assert not story.state.read_results
