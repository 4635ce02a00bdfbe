"""The calls that wait: in which order they are answered, run, or put to a person."""

import collections
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from story import Story, call, delete, look, post, rules, write

from actors import tool
from actors.decision import Answer, Ask, AskPerson, Calls, Finish, Run
from actors.messages import Nature, ResultKind, ToolCall
from actors.outcome import Approval, InDoubt, Status
from actors.pending import CRASHES_MAX, in_doubt_words
from actors.state import State
from actors.tools import Tool
from actors.verdict import Verdict, _given


def replied(*calls: ToolCall, **fields: Any) -> Story:
    """A run whose model has just asked for these calls."""
    story = Story(**fields)
    story.reply(*calls)
    return story


def runs(story: Story) -> list[str]:
    """The calls that would run now."""
    decision = story.decide()
    assert isinstance(decision, Calls), decision
    return [run.call.ref for run in decision.runs]


def answered(story: Story) -> Answer:
    """The one answer in words that would be given now."""
    decision = story.decide()
    assert isinstance(decision, Calls), decision
    assert decision.runs == ()
    (answer,) = decision.answers
    return answer


def one_run(story: Story) -> Run:
    decision = story.decide()
    assert isinstance(decision, Calls), decision
    (run,) = decision.runs
    return run


def asked_person(story: Story) -> bytes:
    """A person is asked about the one call that waits; returns the digest."""
    decision = story.decide()
    assert isinstance(decision, AskPerson), decision
    ((waiting, digest),) = decision.calls
    story.ask_person(waiting.ref, digest)
    return digest


def test_reads_go_side_by_side_and_writes_alone():
    """Read, read, write, read: the reads, then the write, then the read behind it."""
    story = replied(
        call("look"), call("look", '{"at": 1}'), call("write"), call("look", '{"at": 2}')
    )
    assert runs(story) == ["1.0", "1.1"]
    story.run("1.1", Nature.READ_ONLY)
    assert runs(story) == ["1.0"]
    story.run("1.0", Nature.READ_ONLY)
    assert runs(story) == ["1.2"]
    story.run("1.2")
    assert runs(story) == ["1.3"]


def test_a_read_behind_a_write_is_not_answered_from_before_it():
    """Its twin in front of the write saw another world."""
    story = replied(call("look"), call("write"), call("look"))
    story.run("1.0", Nature.READ_ONLY)
    assert runs(story) == ["1.1"]
    story.run("1.1")
    assert runs(story) == ["1.2"]


def test_a_read_that_succeeded_answers_its_twin_in_a_later_turn():
    """By tool and canonical arguments, not by the text or the id."""
    story = replied(call("look", '{ "at": 1 }', "a"))
    run = one_run(story)
    story.start("1.0", Nature.READ_ONLY, run.digest)
    story.finish("1.0", "one")
    story.reply(call("look", '{"at":1}', "b"))
    answer = answered(story)
    assert (answer.outcome, answer.content) == (ResultKind.DEDUPED, "one")


def test_a_read_that_failed_runs_again():
    """Only success is remembered."""
    story = replied(call("look"))
    story.start("1.0", Nature.READ_ONLY, one_run(story).digest)
    story.finish("1.0", "no", ResultKind.ERROR)
    story.reply(call("look"))
    assert runs(story) == ["2.0"]


def test_words_are_given_at_once_whatever_waits():
    """A call that cannot run has no effect, so its answer need not wait for its place."""
    story = replied(call("delete"), call("nothing"), call("look"))
    decision = story.decide()
    assert isinstance(decision, Calls)
    assert [answer.call.ref for answer in decision.answers] == ["1.1"]
    assert decision.runs == ()


def test_a_call_under_approval_holds_back_what_is_behind_it():
    """The person is asked once what could run before it has run."""
    story = replied(call("look"), call("delete"), call("look", '{"at": 1}'), call("write"))
    assert runs(story) == ["1.0"]
    story.run("1.0", Nature.READ_ONLY)
    digest = asked_person(story)
    decision = story.decide()
    assert isinstance(decision, Finish)
    assert decision.outcome.status is Status.INTERRUPTED
    assert isinstance(decision.outcome.interruption, Approval)
    assert decision.outcome.interruption.call == "1.1"
    story.verdict("1.1", "approve", digest)
    assert runs(story) == ["1.1"]


def test_a_verdict_for_other_arguments_approves_nothing():
    """A verdict names the arguments that were shown."""
    story = replied(call("delete", '{"what": 1}'))
    digest = asked_person(story)
    story.verdict("1.0", "approve", b"x" * 16)
    assert isinstance(story.decide(), Finish)
    story.verdict("1.0", "approve", digest)
    assert one_run(story).arguments.values == {"what": 1}


@pytest.mark.parametrize("word", ["done", "not_done", "run_again", "", "yes"])
def test_only_the_word_approve_approves(word: str):
    """An answer to another question lets no call run that never ran."""
    story = replied(call("delete"))
    story.verdict("1.0", word, asked_person(story))
    assert isinstance(story.decide(), Finish)


def test_an_edit_is_approved_by_the_verdict_that_brought_it():
    """The verdict names what was shown; what runs is the edit."""
    story = replied(call("delete", '{"what": 1}'))
    story.verdict("1.0", "approve", asked_person(story), args='{"what": 2}')
    assert one_run(story).arguments.values == {"what": 2}


@pytest.mark.parametrize("args", [None, '{"what": 2}'], ids=["as shown", "edited"])
def test_a_tool_that_changed_voids_its_approvals(args: str | None):
    """The schema and the description are a part of what was approved."""

    @tool(needs_approval=True, name="delete")
    async def other(what: int = 0, force: bool = True) -> str:
        """Delete, by force."""
        return ""

    story = replied(call("delete", '{"what": 1}'))
    digest = asked_person(story)
    story.verdict("1.0", "approve", digest, args=args)
    assert runs(story) == ["1.0"]
    story.rules = rules(other)
    story.verdict("1.0", "approve", asked_person(story))
    assert one_run(story).arguments.values == {"what": 2 if args else 1, "force": True}


def test_a_verdict_for_a_call_nobody_was_asked_about_counts_by_its_digest():
    """A right digest is a right digest; a wrong one is void."""
    story = replied(call("delete", '{"what": 1}'))
    story.verdict("1.0", "approve", b"", args='{"what": 2}')
    assert isinstance(story.decide(), AskPerson)


def test_a_rejection_is_words():
    story = replied(call("delete"))
    story.verdict("1.0", "reject", asked_person(story), reason="evidence")
    answer = answered(story)
    assert answer.outcome is ResultKind.REJECTED
    assert answer.content == (
        "rejected: a person declined this call, and it was not run. The reason: evidence"
    )


IN_DOUBT = in_doubt_words(State())
PROBED = tool(probe=lambda to, key: "unknown", name="write")(write.function)


@pytest.mark.parametrize(
    ("one", "nature", "again", "probed"),
    [
        (look, Nature.READ_ONLY, True, False),
        (post, Nature.KEYED, True, False),
        (write, Nature.WRITE, False, False),
        (PROBED, Nature.PROBED, True, True),
        (write, Nature.PROBED, False, False),
        (look, Nature.WRITE, False, False),
        (write, Nature.READ_ONLY, True, False),
    ],
    ids=["read", "keyed", "write", "probed", "probe is gone", "now a read", "was a read"],
)
def test_a_started_call_is_treated_as_it_was_recorded(
    one: Tool, nature: Nature, again: bool, probed: bool
):
    """Whatever the tool is declared as now, the record says what may be done."""
    story = replied(call(one.name), rules_=rules(one))
    story.start("1.0", nature, one_run(story).digest)
    story.open("restart")
    if again:
        run = one_run(story)
        assert (run.attempt, run.probe_first) == (2, probed)
    else:
        answer = answered(story)
        assert (answer.outcome, answer.content) == (ResultKind.IN_DOUBT, IN_DOUBT)


async def again(to: int = 0) -> str:
    """Do."""
    return str(to)


async def otherwise(to: int = 0, why: str = "") -> str:
    """Do."""
    return f"{to}{why}"


async def demanding(to: int = 0, *, why: str) -> str:
    """Do."""
    return f"{to}{why}"


FLAGS: list[dict[str, Any]] = [
    {},
    {"read_only": True},
    {"keyed": True},
    {"keyed": True, "needs_approval": True},
    {"keyed": True, "needs_approval": True, "description": "Do it."},
    {"probe": lambda key, **arguments: "not_done"},
    {"probe": lambda key, **arguments: "not_done", "needs_approval": True},
    {"needs_approval": True},
]
EDITED = (again, otherwise, demanding)
VARIANTS = [tool(name="do", **flags)(function) for flags in FLAGS for function in EDITED]
"""One tool as it may be before and after somebody edits its module."""


@settings(max_examples=200, deadline=None)
@given(
    before=st.sampled_from([one for one in VARIANTS if not one.schema.get("required")]),
    now=st.sampled_from([*VARIANTS, None]),
    policy=st.sampled_from([None, "words", "stop"]),
    edited=st.sampled_from([None, '{"to": 2}']),
    happened=st.sampled_from([None, True]),
    yes=st.booleans(),
)
def test_a_call_is_run_again_only_as_what_it_was(
    before: Tool,
    now: Tool | None,
    policy: str | None,
    edited: str | None,
    happened: bool | None,
    yes: bool,
):
    """A tool that changed behind a crash runs nothing again that may have taken effect.

    The same holds for one that wants an approval now; a person's word decides, or the model is
    told.
    """
    story = replied(call("do"), rules_=rules(before, on_in_doubt=policy))
    if before.needs_approval:
        story.verdict("1.0", "approve", asked_person(story), args=edited)
    run = one_run(story)
    story.start("1.0", before.nature, run.digest)
    story.rules = rules(*([now] if now else [look]), on_in_doubt=policy)
    story.open("restart")
    decision = story.decide()
    ran = decision.runs if isinstance(decision, Calls) else ()
    same = now is not None and (now.nature, now.schema, now.description) == (
        before.nature,
        before.schema,
        before.description,
    )
    if before.nature is Nature.READ_ONLY:
        # It changed nothing, so it is as if it had not been started.
        assert now is None or not (ran and now.needs_approval)
        return
    may = same and before.nature in (Nature.KEYED, Nature.PROBED)
    assert now is not None or not ran
    if may and now and (before.needs_approval or not now.needs_approval):
        assert [(one.attempt, one.probe_first) for one in ran] == [
            (2, before.nature is Nature.PROBED)
        ]
        return
    assert not ran
    if isinstance(decision, Calls):
        assert [one.content for one in decision.answers] == [IN_DOUBT]
        return
    assert isinstance(decision, Finish)
    doubt = decision.outcome.interruption
    assert isinstance(doubt, InDoubt)
    assert doubt.args == ({"to": 2} if before.needs_approval and edited else {})
    story.end(decision.outcome)
    # What the person says is taken, and is the last word.
    word = _given(story.state, Verdict(ref="1.0", yes=yes, who="p", happened=happened))
    assert word
    story.tell(word)
    story.open("resume")
    decision = story.decide()
    assert isinstance(decision, Calls)
    if word.verdict == "run_again" and now and not now.schema.get("required"):
        assert [one.tool for one in decision.runs] == [now]
    else:
        assert not decision.runs
        assert [one.outcome for one in decision.answers] == [ResultKind.IN_DOUBT]


@pytest.mark.parametrize("nature", [Nature.READ_ONLY, Nature.KEYED, Nature.PROBED])
def test_a_call_that_ends_its_process_is_given_up(nature: Nature):
    """Three attempts, then words."""
    story = replied(call("post"))
    for _ in range(CRASHES_MAX):
        story.start("1.0", nature)
        story.open("restart")
    answer = answered(story)
    assert answer.outcome is ResultKind.CRASHED
    assert answer.content == "This call ended the process 3 times and was not run again."


@pytest.mark.parametrize(
    ("policy", "one", "stops"),
    [
        (None, write, False),
        (None, delete, True),
        ("words", delete, False),
        ("stop", write, True),
    ],
)
def test_a_write_in_doubt_is_told_or_put_to_a_person(policy: str | None, one: Tool, stops: bool):
    """By policy; without one, tools under approval stop the run."""
    story = replied(call(one.name), call("look"), rules_=rules(on_in_doubt=policy))
    story.start("1.0")
    story.open("restart")
    decision = story.decide()
    if stops:
        assert isinstance(decision, Finish)
        assert isinstance(decision.outcome.interruption, InDoubt)
        assert decision.outcome.interruption.call == "1.0"
    else:
        assert isinstance(decision, Calls)
        assert decision.answers[0].content == IN_DOUBT


def test_run_again_holds_for_one_run():
    """A process that dies in it again leaves the call in doubt again."""
    story = replied(call("write"), rules_=rules(on_in_doubt="stop"))
    story.start("1.0")
    story.open("restart")
    story.verdict("1.0", "run_again", b"")
    assert one_run(story).attempt == 2
    story.start("1.0")
    story.open("restart")
    assert isinstance(story.decide(), Finish)


def test_an_approval_does_not_let_a_call_run_twice():
    """What a person approved was started; that it is unknown is another question."""
    story = replied(call("delete"))
    story.verdict("1.0", "approve", asked_person(story))
    story.start("1.0")
    story.open("restart")
    decision = story.decide()
    assert isinstance(decision, Finish)
    assert isinstance(decision.outcome.interruption, InDoubt)


def test_a_cut_message_runs_nothing():
    """Whatever its calls look like."""
    story = Story()
    story.reply(call("look"), call("write"), call("delete"), finish="length")
    decision = story.decide()
    assert isinstance(decision, Calls)
    assert decision.runs == ()
    assert [answer.outcome for answer in decision.answers] == [ResultKind.ERROR] * 3


def test_a_tool_that_vanished_says_so():
    """The model once had it; a name that never was is another mistake."""
    story = replied(call("write"), call("wirte"))
    story.rules = rules(look)
    story.open("resume")
    decision = story.decide()
    assert isinstance(decision, Calls)
    gone, unknown = (answer.content for answer in decision.answers)
    assert gone == "error: the tool write no longer exists. Available: look"
    assert unknown == "error: there is no tool 'wirte'. Available: look"


# ---------------------------------------------------------------------------------------------
# Any run at all: messages of any calls, processes that die anywhere, persons who say anything.

NATURES = {"look": Nature.READ_ONLY, "write": Nature.WRITE, "post": Nature.KEYED}
some_call = st.builds(
    call,
    st.sampled_from(["look", "look", "write", "post", "delete", "nothing"]),
    st.sampled_from(["{}", "", '{"at": 1}', '{"to": 2}', '{"what": 1}', "[]", '{"at"']),
    st.sampled_from(["x", "", "y"]),
)
messages = st.lists(st.lists(some_call, min_size=1, max_size=6), min_size=1, max_size=4)
dice = st.lists(st.integers(0, 9), max_size=60)


class AnyRun:
    """Performs what is decided, as a process would that dies by the dice."""

    def __init__(self, said: list[list[ToolCall]], thrown: list[int], policy: str | None) -> None:
        self.story = Story(rules_=rules(on_in_doubt=policy, max_restarts=1000))
        self.said = said
        self.thrown = iter(thrown)
        self.starts: collections.Counter[str] = collections.Counter()
        self.order: list[tuple[str, str]] = []
        self.digests: dict[str, bytes] = {}
        self.again: set[str] = set()

    def throw(self) -> int:
        return next(self.thrown, 9)

    def live(self) -> Status:
        """Go on to an ending, and return it."""
        for _ in range(1000):
            decision = self.story.decide()
            match decision:
                case Ask():
                    assert not self.story.state.pending, "pending calls come first"
                    self.hear()
                case Calls():
                    assert decision.answers or decision.runs
                    self.perform(decision)
                case AskPerson(calls=calls):
                    for waiting, digest in calls:
                        self.story.ask_person(waiting.ref, digest)
                        self.digests[waiting.ref] = digest
                case Finish(outcome=outcome):
                    self.story.end(outcome)
                    if not isinstance(outcome.interruption, Approval | InDoubt):
                        return outcome.status
                    self.answer(outcome.interruption)
                    self.story.open("resume")
        raise AssertionError("the run comes to no end")

    def hear(self) -> None:
        turn = self.story.state.head.turns
        self.story.ask()
        if self.throw() == 0:
            self.story.open("restart")
        elif turn < len(self.said):
            finish = "length" if self.throw() == 1 else ""
            self.story.reply(*self.said[turn], finish=finish)
        else:
            self.story.reply(text="done")

    def perform(self, batch: Calls) -> None:
        for one in batch.answers:
            self.story.finish(one.call.ref, one.content, one.outcome)
        running: list[Run] = []
        for run in batch.runs:
            ref = run.call.ref
            self.check_place(run, [other.call.ref for other in batch.runs])
            self.story.start(ref, run.tool.nature, run.digest)
            self.starts[ref] += 1
            self.order.append(("start", ref))
            running.append(run)
        for run in running:
            if self.throw() == 0:
                self.story.open("restart")
                return
            kind = ResultKind.ERROR if self.throw() == 0 else ResultKind.OK
            # Each failure in other words would still be the same failing call.
            self.story.finish(run.call.ref, "said", kind)
            self.order.append(("end", run.call.ref))

    def check_place(self, run: Run, batch: list[str]) -> None:
        """A write starts when all before it have ended, and nothing starts beside it."""
        state, ref = self.story.state, run.call.ref
        before = [c for c in state.turns[-1].calls if c.ref < ref]
        if run.tool.nature is not Nature.READ_ONLY:
            assert batch == [ref]
            assert all(c.result for c in before)
        for other in before:
            tool_before = self.story.rules.catalogue.get(other.written.name)
            if tool_before and tool_before.nature is not Nature.READ_ONLY:
                assert other.result, "no call overtakes a write"

    def answer(self, interruption: Approval | InDoubt) -> None:
        ref, thrown = interruption.call, self.throw()
        if isinstance(interruption, InDoubt):
            word = ("run_again", "done", "not_done")[thrown % 3]
            if word == "run_again":
                self.again.add(ref)
            self.story.verdict(ref, word, b"")
        else:
            word = "approve" if thrown > 4 else "reject"
            self.story.verdict(ref, word, self.digests[ref])


@settings(max_examples=60, deadline=None)
@given(messages, dice, st.sampled_from([None, "words", "stop"]))
def test_any_run_keeps_its_promises(
    said: list[list[ToolCall]], thrown: list[int], policy: str | None
):
    """Every call ends answered, no plain write starts twice, and effects keep their order."""
    run = AnyRun(said, thrown, policy)
    run.live()
    state = run.story.state
    for turn in state.turns:
        for one in turn.calls:
            assert one.result, "every call is answered"
            plain = one.written.name in ("write", "delete")
            if plain and one.ref not in run.again:
                assert run.starts[one.ref] <= 1, "a plain write is started at most once"
            assert run.starts[one.ref] <= CRASHES_MAX
    started = [ref for what, ref in run.order if what == "start"]
    writes = [ref for ref in dict.fromkeys(started) if state.call(ref).written.name != "look"]
    assert writes == sorted(writes, key=lambda ref: tuple(map(int, ref.split("."))))


@settings(max_examples=40, deadline=None)
@given(messages, dice)
def test_any_run_folds_to_what_it_was_in_memory(said: list[list[ToolCall]], thrown: list[int]):
    """A replay of the events is the state that performed them."""
    run = AnyRun(said, thrown, None)
    run.live()
    again = Story(rules_=run.story.rules)
    again.state = type(again.state)()
    for event in run.story.events:
        again.state.apply(msgspec.msgpack.decode(msgspec.msgpack.encode(event), type=type(event)))
    assert again.state == run.story.state


@settings(max_examples=40, deadline=None)
@given(messages, dice, st.integers(0, 30))
def test_a_stop_at_any_moment_leaves_no_call_open(
    said: list[list[ToolCall]], thrown: list[int], moment: int
):
    """Nothing starts any more, every call is answered, and the ending is the Stop."""
    run = AnyRun(said, thrown, None)
    events = iter(range(moment))
    tell = run.story.tell

    class Pressed(Exception):
        pass

    def count(event: Any) -> None:
        if next(events, None) is None:
            raise Pressed
        tell(event)

    run.story.tell = count
    try:
        run.live()
    except Pressed:
        run.story.tell = tell
        if run.story.state.outcome is None:
            run.story.stop()
            before = run.starts.total()
            assert run.live() is Status.INTERRUPTED
            assert run.starts.total() == before
            assert not run.story.state.pending


def test_an_approval_of_long_arguments_is_recorded_as_an_excerpt():
    """However many calls wait, the record of the ending stays small; the calls stand whole."""

    @tool(needs_approval=True)
    async def send(text: str) -> str:
        """Send."""
        return text

    calls = [call("send", f'{{"text": "{n}{"x" * 300_000}"}}') for n in range(60)]
    story = replied(*calls, rules_=rules(send))
    asked = story.decide()
    assert isinstance(asked, AskPerson)
    for one, digest in asked.calls:
        story.ask_person(one.ref, digest)
    ending = story.decide()
    assert isinstance(ending, Finish)
    assert len(msgspec.msgpack.encode(ending.outcome.interruption)) < 1_000_000


def test_a_call_in_doubt_says_how_its_process_ended():
    """Where its supervisor saw it, so that the model knows what not to repeat."""
    story = replied(call("write"))
    story.start("1.0", Nature.WRITE)
    story.open("restart", crash="killed by SIGKILL, very likely by the system")
    assert (
        "process was killed (killed by SIGKILL, very likely by the system) and"
        in answered(story).content
    )
    assert "process was killed and" in IN_DOUBT
