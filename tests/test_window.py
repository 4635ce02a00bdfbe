"""The window: pure policies over sizes, and marks that only ever move forward."""

import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.calibration import Calibration
from actors.fit import Fitted, Overflow, fit, lowered_budget
from actors.window import Marks, Policy, Window

FIXED, NOTE, HEAD = 500, 25, 60
BAND, REFERENCE, OFF = Policy(high=1.0), Policy(name="reference"), Policy(name="off")


def window_of(*results: int, ledger_cap: int = 300) -> Window:
    """A window with one result a round."""
    window = Window(FIXED, note=NOTE, ledger_head=20, ledger_cap=ledger_cap)
    for size in results:
        window.add(HEAD, (size,), 15)
    return window


def fitted(window: Window, marks: Marks, budget: int, policy: Policy, *, cold=False) -> Fitted:
    """Fit, and expect that it works."""
    result = fit(window, marks, budget, policy, Calibration(), k0=1.0, cold=cold)
    assert isinstance(result, Fitted), result
    return result


rounds = st.lists(
    st.tuples(
        st.integers(10, 400),
        st.lists(st.integers(5, 3000), max_size=5),
        st.integers(5, 40),
        st.booleans(),
    ),
    min_size=1,
    max_size=40,
)
policies = st.builds(
    Policy,
    high=st.sampled_from(["auto", 0.7, 1.0]),
    low=st.sampled_from([0.25, 0.3, 0.5]),
    floor=st.sampled_from([0.1, 0.25]),
    batch=st.integers(1, 6),
)
ratios = st.floats(0.5, 3)


@settings(deadline=None, max_examples=60)
@given(rounds, policies, st.integers(1500, 20_000), st.lists(ratios, min_size=40, max_size=40))
def test_band_fits_and_its_marks_never_move_back(story, policy, budget, ks):
    """A request is within its budget whenever its newest round alone would be."""
    window = Window(FIXED, note=NOTE, ledger_head=20, ledger_cap=300)
    marks = Marks()
    for (head, results, line, person), k in zip(story, ks, strict=False):
        window.add(head, results, line, person=person and not results)
        known = Calibration(k, k, 1, 1, window.rounds)
        result = fit(window, marks, budget, policy, known, k0=1.0, cold=k > 2.5)
        if isinstance(result, Overflow):
            if results:
                newest = Window(FIXED, note=NOTE, ledger_head=20, ledger_cap=300)
                newest.add(head, results, line)
                least = newest.size(Marks(len(results) - 1)) + window.ledger_most
                assert k * least > budget - 2
            return
        assert result.after <= budget
        window.check(result.marks)
        assert result.marks.cleared_upto >= marks.cleared_upto
        assert result.marks.folded_upto >= marks.folded_upto
        assert result.changed == (result.marks != marks)
        if window.results:
            assert result.marks.cleared_upto < window.results or not result.changed
        marks = result.marks


@settings(deadline=None, max_examples=60)
@given(rounds, st.sampled_from([BAND, REFERENCE]), st.integers(1500, 20_000))
def test_a_fitting_done_twice_changes_nothing_more(story, policy, budget):
    """One pass: the same history under the new marks stays as it is, so nothing can loop."""
    window = Window(FIXED, note=NOTE, ledger_head=20, ledger_cap=300)
    for head, results, line, person in story:
        window.add(head, results, line, person=person and not results)
    first = fit(window, Marks(), budget, policy, Calibration(), k0=1.0)
    if isinstance(first, Fitted):
        again = fitted(window, first.marks, budget, policy)
        assert again.after <= budget
        assert not again.changed


def test_nothing_changes_while_the_request_fits():
    """Below the high mark the request only grows."""
    window = window_of(*[1000] * 8)
    expected = Fitted(Marks(), 8980, 8980, raw=8980, rounds=8)
    assert fitted(window, Marks(), 10_000, BAND) == expected


def test_one_rewrite_goes_down_to_the_low_mark():
    """Over the budget, the oldest results are cleared until the newest quarter is left."""
    window = window_of(*[1000] * 10)
    result = fitted(window, Marks(), 10_000, BAND)
    assert result.marks.cleared_upto == 8
    assert window.whole_tokens(result.marks) == 2000
    assert (result.cleared, result.changed) == (8, True)


def test_newest_results_in_a_quarter_of_the_budget_stay():
    """What the floor protects is not cleared, even if the low mark is missed."""
    window = window_of(*[1000] * 6, *[100] * 60)
    result = fitted(window, Marks(), 10_000, BAND)
    assert window.whole_tokens(result.marks) >= 2400


def test_small_results_are_left_alone():
    """A result not larger than two notes is sent as it is."""
    window = window_of(*[2 * NOTE] * 40)
    before = window.size(Marks())
    assert window.size(Marks(cleared_upto=40)) == before


def test_a_cleared_front_is_folded_when_clearing_is_not_enough():
    """Calls and notes of many rounds become one line each, and then counts."""
    window = window_of(*[200] * 120)
    result = fitted(window, Marks(), 10_000, BAND)
    assert result.folded > 0
    assert result.after < 4000
    assert window.ledger(result.marks.folded_upto) <= 320


def test_whole_turns_of_the_user_are_folded_first():
    """The fold ends where a turn of the user begins, if one such place is enough."""
    window = Window(FIXED, note=NOTE, ledger_head=20, ledger_cap=300)
    for _ in range(4):
        window.add(40, (), 15, person=True)
        for _ in range(10):
            window.add(HEAD, (250,), 15)
    result = fitted(window, Marks(), 10_000, Policy(high=1.0, low=0.5))
    assert result.marks.folded_upto == 22
    assert result.after <= 5000


def test_a_pause_clears_for_free():
    """After a cold pause the request is rewritten from the low mark on; a warm one is not."""
    window = window_of(*[1000] * 6)
    assert not fitted(window, Marks(), 10_000, BAND).changed
    assert fitted(window, Marks(), 10_000, BAND, cold=True).cleared == 4


def test_parallel_results_are_cleared_one_by_one():
    """Fifty results of one round that do not fit together: the newest one stays."""
    window = Window(FIXED, note=NOTE, ledger_head=20, ledger_cap=300)
    window.add(HEAD, [1000] * 50, 15)
    result = fitted(window, Marks(), 10_000, BAND)
    assert result.marks.cleared_upto >= 45
    assert result.marks.folded_upto == 0


def test_a_result_too_large_alone_is_cut():
    """The newest result is cut when even alone it does not fit, and stays cut after that."""
    window = window_of(1000, 12_000)
    result = fitted(window, Marks(), 10_000, BAND)
    assert result.after <= 10_000
    assert result.marks.cut_result == 1
    window.add(HEAD, (200,), 15)
    assert fitted(window, result.marks, 10_000, BAND).after <= 10_000


@pytest.mark.parametrize("policy", [BAND, REFERENCE])
def test_what_cannot_fit_is_refused_with_its_parts(policy):
    """A budget below the system prompt and the tools fails before any call, with both numbers."""
    result = fit(window_of(100), Marks(), 400, policy, Calibration(), k0=1.0)
    assert isinstance(result, Overflow)
    assert "660 tokens and may have 400" in result.words
    assert "system prompt, task and tools 500" in result.words


def test_off_changes_nothing():
    """The policy off sends whatever there is."""
    result = fitted(window_of(*[1000] * 50), Marks(), 10_000, OFF)
    assert result == Fitted(Marks(), 53_500, 53_500)


def test_reference_clears_in_fours_from_the_whole_history():
    """Once the history is over the budget, a batch is cleared whenever four results are old."""
    window = window_of(*[1000] * 10)
    marks = fitted(window, Marks(), 10_000, REFERENCE).marks
    assert marks.cleared_upto == 8
    steps = []
    for _ in range(8):
        window.add(HEAD, (1000,), 15)
        marks = fitted(window, marks, 10_000, REFERENCE).marks
        steps.append(marks.cleared_upto)
    assert steps == [8, 8, 8, 12, 12, 12, 12, 16]


def test_reference_drops_turns_then_rounds():
    """What clearing does not mend is dropped: whole turns of the user, then whole rounds."""
    window = window_of(*[30] * 200, ledger_cap=0)
    marks = fitted(window, Marks(), 5000, REFERENCE).marks
    assert 0 < marks.folded_upto < 199
    assert (
        window.size(marks)
        <= 5000
        < window.size(msgspec.structs.replace(marks, folded_upto=marks.folded_upto - 1))
    )


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        (Marks(cleared_upto=-1), "cleared_upto is -1, and must lie in 0 to 3"),
        (Marks(cleared_upto=4), "cleared_upto is 4, and must lie in 0 to 3"),
        (Marks(0, -2), "folded_upto is -2, and must lie in 0 to 3"),
        (Marks(0, 2), "cleared_upto is 0, but the folded rounds have 2 results"),
        (Marks(cut_tokens=-5), "cut_tokens is -5, and must lie in 0 to 1000000000000"),
        (Marks(budget=-1), "budget is -1, and must lie in 0 to 1000000000000"),
        (Marks(cut_result=3), "cut_result is 3, and must lie in -1 to 2"),
    ],
)
def test_marks_that_cannot_be_are_refused_with_both_numbers(marks, words):
    """A journal that says so is wrong, and nothing is sent on its word."""
    with pytest.raises(ValueError, match=words):
        window_of(1, 2, 3).check(marks)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "best"}, "there is no window policy 'best'"),
        ({"low": 0.1}, "floor 0.25, low 0.1"),
        ({"high": 1.2}, "high 1.2"),
        ({"floor": -1}, "floor -1"),
        ({"batch": 0}, "not 0 and 0.1"),
        ({"cached_share": 2.0}, "not 4 and 2"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(fields, words):
    """With the numbers that are wrong."""
    with pytest.raises(ValueError, match=words):
        Policy(**fields)


@pytest.mark.parametrize(
    ("size", "limit", "used", "lowered"),
    [
        (9000, 8000, None, 7600),
        (6000, 8000, 12_000, 3800),
        (6000, None, None, 4000),
        (6000, 8000, None, 4000),
        (6000, 0, 0, 4000),
        (6000, -5, 10, 4000),
    ],
)
def test_a_refused_budget_shrinks_to_the_number_named_else_by_a_third(size, limit, used, lowered):
    """In our own count, so that a tokenizer that differs from ours is allowed for."""
    assert lowered_budget(size, limit, used) == lowered


def test_a_refusal_that_counts_the_reply_leaves_room_for_it():
    """4,000 tokens and a reply of 1,000 in a window of 4,096: what is asked next fits with it."""
    lowered = lowered_budget(4000, 4096, 5000, max_output=1000)
    assert lowered > 2000
    assert lowered + 1000 <= 4096
    assert lowered_budget(4000, 3000, 4000, max_output=1000) == 2850


def test_a_lowered_budget_is_a_mark():
    """What a provider refused once is not built again after a restart."""
    window = window_of(*[1000] * 8)
    result = fitted(window, Marks(budget=6000), 10_000, BAND)
    assert result.after <= 6000
    assert result.marks.budget == 6000


def test_marks_survive_the_journal():
    """They are arrays, and a shorter one from an earlier version has defaults."""
    marks = Marks(8, 2, 7, 100, 6000)
    data = msgspec.msgpack.encode(marks)
    assert msgspec.msgpack.decode(data, type=Marks) == marks
    assert msgspec.msgpack.decode(msgspec.msgpack.encode([8, 2]), type=Marks) == Marks(8, 2)


@pytest.mark.parametrize("policy", [Policy(), REFERENCE])
def test_fitting_a_long_history_takes_less_than_a_millisecond(policy):
    """At 1,000 turns, whether anything is cleared or not."""
    best = 1.0
    for _ in range(5):
        window = window_of(*[300] * 1000)
        start = time.process_time()
        marks = fitted(window, Marks(), 60_000, policy).marks
        fitted(window, marks, 60_000, policy)
        best = min(best, time.process_time() - start)
    assert best < 0.001
