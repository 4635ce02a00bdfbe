"""Requests made of a run's rounds: valid, within the budget, and the same at the front."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.arrival import arrival_limit, cut_result
from actors.calibration import Calibration
from actors.composition import Composition
from actors.estimate import counter_for
from actors.fit import Fitted, Overflow
from actors.ledger import COUNTED_TOKENS, Line, ledger_text, main_argument
from actors.messages import Assistant, Prompt, ResultKind, ToolCall, ref_of
from actors.request import request_body
from actors.testing.chat import decode
from actors.window import Marks, Policy
from actors.window_words import CLEARED_NOTE, FOLDED_NOTE, MODEL_PARAGRAPH

PROMPTS = (Prompt("system", "Be brief."), Prompt("user", "Read everything."))
COUNTER = counter_for("some-model")
READ = ToolCall("theirs", "read_file", '{"path":"notes.txt"}')


def composition(budget: int | None, policy: Policy | None = None) -> Composition:
    """One without tools, counted by bytes."""
    return Composition(PROMPTS, b"[]", COUNTER, budget, policy or Policy(high=1.0))


def add(composition: Composition, turn: int, *texts: str, kind=ResultKind.OK) -> None:
    """Add a turn with one call for each result."""
    calls = tuple(ToolCall(f"id{n}", "read_file", READ.arguments) for n in range(len(texts)))
    refs = [ref_of(turn, n) for n in range(len(texts))]
    composition.add(Assistant("So:", calls), refs, [(kind, text) for text in texts])


def fitted(composition: Composition, marks: Marks, *, cold=False) -> Fitted:
    """Fit without calibration, and expect that it works."""
    result = composition.fit(marks, Calibration(), cold=cold)
    assert isinstance(result, Fitted), result
    return result


def body(composition: Composition, marks: Marks) -> bytes:
    """The request in this shape."""
    return request_body("m", b"[]", composition.messages(marks), 100, True)


sizes = st.lists(st.lists(st.integers(0, 4000), min_size=1, max_size=4), min_size=1, max_size=20)


@settings(deadline=None, max_examples=60)
@given(sizes, st.integers(600, 6000), st.sampled_from([Policy(), Policy(name="reference")]))
def test_a_request_begins_like_the_one_before_unless_it_was_fitted(story, budget, policy):
    """And every request is one that a strict provider takes: no call without its result."""
    composed = composition(budget, policy)
    marks, before = Marks(), b""
    for turn, lengths in enumerate(story, 1):
        add(composed, turn, *("word " * (length // 5) for length in lengths))
        result = composed.fit(marks, Calibration(), cold=False)
        if isinstance(result, Overflow):
            return
        assert result.changed == (result.marks != marks)
        marks = result.marks
        request = body(composed, marks)
        decode(request)
        if not result.changed:
            assert request.startswith(before)
        before = request[: request.rindex(b'],"max_tokens"')]
        shown = [json.loads(message) for message in composed.messages(marks)]
        raw = sum(
            COUNTER.message(
                m["role"],
                m["content"],
                [ToolCall("", **c["function"]) for c in m.get("tool_calls", ())],
            )
            for m in shown
        )
        # The lines of a ledger are counted one by one, which rounds up.
        assert raw <= composed.window.size(marks)
        assert result.after <= budget


@settings(deadline=None, max_examples=30)
@given(sizes, st.integers(1000, 6000))
def test_a_restart_makes_the_same_request(story, budget):
    """From the history and the saved marks alone, whatever happened in between."""
    first = composition(budget)
    marks = Marks()
    for turn, lengths in enumerate(story, 1):
        add(first, turn, *("word " * (length // 5) for length in lengths))
        result = first.fit(marks, Calibration(0.9, 1.2, 1, 1, turn), cold=False)
        if isinstance(result, Overflow):
            return
        marks = result.marks
        first.messages(marks)
    second = composition(budget)
    for turn, lengths in enumerate(story, 1):
        add(second, turn, *("word " * (length // 5) for length in lengths))
    assert body(second, marks) == body(first, marks)


def test_the_model_is_told_once_and_only_where_something_is_fitted():
    """The paragraph ends the system prompt, whatever stands in it, and is there without one."""
    told = json.loads(composition(5000).messages(Marks())[0])
    assert told["content"] == f"Be brief.\n\n{MODEL_PARAGRAPH}"
    for budget, policy in ((None, Policy()), (5000, Policy(name="off"))):
        untold = composition(budget, policy).messages(Marks())[0]
        assert json.loads(untold)["content"] == "Be brief."
    alone = Composition((PROMPTS[1],), b"", COUNTER, 5000, Policy()).messages(Marks())
    assert [json.loads(message)["content"] for message in alone] == [
        MODEL_PARAGRAPH,
        "Read everything.",
    ]


def test_cleared_results_keep_their_message_and_folded_rounds_are_listed():
    """The note is constant; the ledger names tool, argument and size."""
    composed = composition(5000)
    for turn in range(1, 5):
        add(composed, turn, "word " * 200)
    shown = [json.loads(m) for m in composed.messages(Marks(cleared_upto=3, folded_upto=1))]
    assert [m["role"] for m in shown] == ["system", "user", "user", *["assistant", "tool"] * 3]
    assert shown[2]["content"] == f"{FOLDED_NOTE}\n- read_file notes.txt: 1000 characters"
    assert [m["content"] == CLEARED_NOTE for m in shown[4::2]] == [True, True, False]


def test_what_a_person_said_is_never_left_out():
    """It stands where it was said, and in the ledger once its place is folded."""
    composed = composition(3000)
    for turn in range(1, 60):
        add(composed, turn, "word " * 100)
        if turn in (3, 4):
            composed.add_said(f"Do not forget item {turn}!\nPlease.")
            assert b"Do not forget" in composed.messages(Marks())[-1]
    result = fitted(composed, Marks())
    assert result.marks.folded_upto > 6
    request = body(composed, result.marks)
    decode(request)
    ledger = json.loads(composed.messages(result.marks)[2])["content"]
    assert ledger.endswith(
        "The user said: Do not forget item 3!\nPlease.\n"
        "The user said: Do not forget item 4!\nPlease."
    )
    assert result.after <= 3000


@pytest.mark.parametrize("kind", [ResultKind.CRASHED, ResultKind.CANCELLED, ResultKind.IN_DOUBT])
def test_an_answer_in_words_never_blocks_clearing(kind):
    """A call that was never run has an answer like any other, and is cleared like any other."""
    composed = composition(4000)
    for turn in range(1, 20):
        add(composed, turn, "word " * 200, kind=kind if turn == 1 else ResultKind.OK)
    result = fitted(composed, Marks())
    assert result.marks.cleared_upto > 1
    assert f"read_file notes.txt: {kind.value}" in body(composed, result.marks).decode()


def test_a_call_without_an_answer_is_no_round():
    """Whoever feeds the window must wait until every call of a reply has its answer."""
    with pytest.raises(ValueError, match="zip"):
        composition(5000).add(Assistant("So:", (READ, READ)), ["1.0", "1.1"], [])


def test_a_result_that_would_fill_the_window_is_cut_at_arrival():
    """Head and tail stay, and the model learns how to read the rest; small ones stay whole."""
    composed = composition(4000)
    add(composed, 1, "word " * 20_000, "small")
    messages = [json.loads(message) for message in composed.messages(Marks())]
    big, small = messages[-2]["content"], messages[-1]["content"]
    assert small == "small"
    assert len(big) < 10_000
    assert big.startswith("word word")
    assert big.endswith("word word ")
    assert "call read_file with offset=" in big
    assert fitted(composed, Marks()).after <= 4000


def test_fifty_results_of_one_round_share_the_room():
    """None of them is cleared before the model has seen it."""
    composed = composition(20_000)
    add(composed, 1, *["word " * 2000] * 50)
    result = fitted(composed, Marks())
    assert result.marks == Marks()
    assert CLEARED_NOTE.encode() not in body(composed, Marks())


def test_the_offset_names_the_byte_at_which_the_head_ends():
    """Also for a result that was read from an offset, and in bytes, not characters."""
    text = "привет " * 2000
    call = ToolCall("x", "read_file", '{"path":"a","offset":1000}')
    cut = cut_result(call, text, 300, COUNTER)
    head = cut.partition("\n[")[0]
    assert f"offset={1000 + len(head.encode())} " in cut
    assert COUNTER.text(cut) <= 300
    assert "ask for less" in cut_result(ToolCall("x", "search", "{}"), text, 300, COUNTER)


@settings(deadline=None)
@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=60), st.integers(-10, 20_000))
def test_results_of_a_round_keep_within_their_room(sizes, room):
    """Whole where they fit; else the small ones whole and the large ones all as long."""
    limit = arrival_limit(sizes, room)
    if limit is None:
        assert sum(sizes) <= room
    elif room >= 2 * len(sizes):
        assert sum(min(size, limit) for size in sizes) <= room


def test_a_ledger_keeps_its_newest_lines_and_counts_the_others():
    """Within its cap, and with the note alone when there is none."""
    lines = [Line(f"tool{n % 2}", f"- tool{n % 2} {n}: 9 characters", 10) for n in range(100)]
    text = ledger_text(lines, COUNTED_TOKENS + 200)
    assert text.splitlines()[1] == "- before these, calls by tool: tool0 40, tool1 40"
    assert text.splitlines()[2:] == [line.text for line in lines[80:]]
    assert ledger_text(lines, 0) == FOLDED_NOTE


@pytest.mark.parametrize(
    ("arguments", "main"),
    [
        ('{"limit": 3, "path": "a\\nb"}', "a b"),
        ('{"limit": 3}', '{"limit": 3}'),
        ("not json", "not json"),
        ('{"x": "' + "y" * 500 + '"}', "y" * 79 + "…"),
        ("[" * 100_000, "[" * 79 + "…"),
    ],
)
def test_the_main_argument_is_the_first_text(arguments, main):
    """On one line and short, whatever a model wrote."""
    assert main_argument(arguments) == main


def test_without_a_budget_nothing_is_counted_until_asked():
    """A run without limits never pays for a tokenizer."""
    counted = []
    counter = type(COUNTER)("spy", lambda text: counted.append(text) or len(text), 1.0, False)
    composed = Composition(PROMPTS, b"[]", counter, None, Policy())
    add(composed, 1, "result")
    fitted(composed, Marks())
    composed.messages(Marks())
    assert counted == []
    assert composed.tokens(Marks(), Calibration()) > 0
    assert counted


def test_a_budget_of_nothing_is_refused():
    """With the number."""
    with pytest.raises(ValueError, match="not 0"):
        composition(0)
