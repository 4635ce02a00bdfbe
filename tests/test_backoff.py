"""Waiting between attempts."""

import email.utils
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.backoff import MAX_SECONDS, delay, parse_retry_after

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2", 2.0),
        (" 2 ", 2.0),
        ("0.5", 0.5),
        ("0", 0.0),
        ("999999", 60.0),
        ("9" * 300, 60.0),
        (email.utils.formatdate(NOW + 7, usegmt=True), 7.0),
        (email.utils.formatdate(NOW + 7), 7.0),
        (email.utils.formatdate(NOW - 7, usegmt=True), 0.0),
        (email.utils.formatdate(NOW + 1e6, usegmt=True), 60.0),
        ("Fri, 31 Dec 9999 23:59:59 -2359", 60.0),
    ],
)
def test_retry_after_is_read_in_every_form(value, seconds):
    """Whole and broken seconds and dates; a past date is 0, and nothing is over the cap."""
    assert parse_retry_after(value, NOW, 60.0) == seconds


@pytest.mark.parametrize("value", ["", "soon", "-1", "1e3", "nan", "inf", "2 s", "\u0661", "0x10"])
def test_retry_after_that_is_junk_is_none(value):
    """Junk never becomes a wait; the caller backs off by itself."""
    assert parse_retry_after(value, NOW, 60.0) is None


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=60))
def test_retry_after_takes_any_text(value):
    """No header of a server raises."""
    seconds = parse_retry_after(value, NOW, 60.0)
    assert seconds is None or 0.0 <= seconds <= 60.0


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers())
def test_delay_stays_under_its_ceiling(attempt, seed):
    """Full jitter: anywhere from 0 to 0.5 * 2**n seconds, at most 30."""
    seconds = delay(attempt, None, random.Random(seed))
    assert 0.0 <= seconds <= min(MAX_SECONDS, 0.5 * 2 ** min(attempt, 10))


def test_delay_keeps_what_the_provider_asked_for():
    """Retry-After is obeyed, 0 included."""
    assert delay(5, 0.0, random.Random(1)) == 0.0
    assert delay(0, 7.5, random.Random(1)) == 7.5


def test_delay_is_the_same_for_the_same_dice():
    """The dice are the caller's, so a test or a replay can repeat them."""
    assert delay(3, None, random.Random(4)) == delay(3, None, random.Random(4))
