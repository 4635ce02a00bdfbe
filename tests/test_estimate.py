"""Counts of tokens: three ways, each bounded in time, and what usage teaches about them."""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.calibration import K_MAX, Calibration
from actors.estimate import EXACT_CHARS_MAX, CounterName, by_bytes, by_script, counter_for
from actors.messages import ToolCall
from actors.testing.chapters import chapter_text
from actors.testing.corpus import CORPUS
from actors.tokens import count_message, count_text


@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize("language", CORPUS)
def test_estimate_is_within_its_error_in_every_language(language: str) -> None:
    """By bytes, before calibration: from 0.65 to 1.45 of the real count."""
    text = CORPUS[language] * 10
    assert 0.65 <= by_bytes(text) / count_text(text) <= 1.45


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("abcdefgh", 2), ("中文字", 3), ("привет", 3), ("ab中é", 2)]
)
def test_reference_counts_by_script(text: str, tokens: int) -> None:
    """ASCII four characters a token, Chinese and its like one, everything else two."""
    assert by_script(text) == tokens


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=200) | st.text(st.characters(categories=["Cs"]), max_size=20))
def test_no_text_breaks_a_count(text: str) -> None:
    """Any text has a count that is not negative, lone surrogates too; no text has none."""
    for count in (by_bytes, by_script):
        assert (count(text) > 0) == bool(text)


@pytest.mark.parametrize("letter", [" ", "a", "中", "\ud800", "<|endoftext|>"])
@pytest.mark.parametrize("choice", ["o200k", "bytes", "reference"])
def test_a_huge_text_is_counted_in_bounded_time(letter: str, choice: CounterName) -> None:
    """A million characters of anything take no more than a fifth of a second."""
    text = letter * (1_000_000 // len(letter))
    start = time.process_time()
    assert counter_for("m", choice=choice).text(text) > 10_000
    assert time.process_time() - start < 0.2


@pytest.mark.usefixtures("counting")
def test_real_counts_up_to_their_limit_take_bounded_time() -> None:
    """The longest text that is really counted keeps the loop no longer than a quarter second."""
    text = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=EXACT_CHARS_MAX))
    start = time.process_time()
    counter_for("gpt-4o").text(text)
    assert time.process_time() - start < 0.25


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4o-mini", "o200k"),
        ("openai/gpt-4.1", "o200k"),
        ("GPT-5", "o200k"),
        ("o3-mini", "o200k"),
        ("o1", "o200k"),
        ("gpt-4", "bytes"),
        ("gpt-4-turbo", "bytes"),
        ("olmo-2", "bytes"),
        ("o3x", "bytes"),
        ("llama-3.1-8b", "bytes"),
        ("", "bytes"),
    ],
)
def test_counter_is_chosen_by_the_name_of_the_model(model: str, name: str) -> None:
    """Real counts for models of these ranks, the estimate for all others."""
    assert counter_for(model).name == name


def test_a_scripted_model_is_really_counted() -> None:
    """Its provider bills by o200k whatever the script is called; a choice goes over all."""
    assert counter_for("plan", scripted=True).name == "o200k"
    assert counter_for("gpt-4o", choice="reference").name == "reference"


@pytest.mark.usefixtures("counting")
def test_a_message_is_counted_as_the_scripted_provider_bills_it() -> None:
    """Frame, role, text and calls: the same formula, so that nothing needs correcting."""
    calls = [ToolCall("x", "read_file", '{"path": "a"}')]
    expected = count_message("assistant", "hello", calls)
    assert counter_for("gpt-4o").message("assistant", "hello", calls) == expected


@pytest.mark.usefixtures("counting")
def test_calibration_brings_the_estimate_near_the_truth() -> None:
    """After one reply a request of the same kind is estimated to a few per cent."""
    text = chapter_text(2, 3000)
    raw, used = by_bytes(text), count_text(text)
    known = Calibration().measured(raw, used, 1, appended=False)
    assert known.tokens(2 * raw, 0, 1.3) == pytest.approx(2 * used, rel=0.02)


def test_calibration_takes_new_text_at_the_worse_ratio() -> None:
    """A run that changes from cheap text to dear text is not underestimated."""
    first = Calibration().measured(10_000, 10_000, 5, appended=False)
    second = first.measured(11_000, 13_000, 6, appended=True)
    assert second.k_delta == 3.0
    assert second.tokens(12_000, 1000, 1.3) == pytest.approx(12_000 * second.k + 1818, abs=2)


@pytest.mark.parametrize("used", [0, -5])
def test_calibration_ignores_a_usage_of_nothing(used: int) -> None:
    """A server that does not count leaves us with the first guess."""
    assert Calibration().measured(100, used, 1, appended=False) == Calibration()
    assert Calibration().tokens(100, 0, 1.3) == 130


def test_calibration_does_not_believe_everything() -> None:
    """A usage that is absurd is bounded."""
    assert Calibration().measured(10, 10**9, 1, appended=False).k == K_MAX


@settings(deadline=None)
@given(
    st.floats(0.25, 8),
    st.floats(0.25, 8),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(1, 10**6),
)
def test_raw_budget_is_the_other_side_of_tokens(
    k: float, k_delta: float, fresh: int, old: int, budget: int
) -> None:
    """Whatever is within the raw budget is within the budget."""
    known = Calibration(k, k_delta, 1, 1, 0)
    raw = old + fresh
    if raw <= known.raw_budget(budget, fresh, 1.3):
        assert known.tokens(raw, fresh, 1.3) <= budget + 1
