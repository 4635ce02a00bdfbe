"""The numbers that options take, refused in words where they are none."""

import argparse

COUNT_MAX = 1_000_000_000
AMOUNT_MAX = 31_536_000.0
SEEDS = 1 << 32
"""How many seeds there are, counted from 0: whatever is drawn can be typed."""


def count(text: str) -> int:
    """A whole number of at least 1."""
    return _whole(text, 1, COUNT_MAX)


def count_or_zero(text: str) -> int:
    """A whole number, or none."""
    return _whole(text, 0, COUNT_MAX)


def seed(text: str) -> int:
    """A seed of chance."""
    return _whole(text, 0, SEEDS - 1)


def port(text: str) -> int:
    """A port; 0 is any."""
    return _whole(text, 0, 65535)


def _whole(text: str, least: int, most: int) -> int:
    # Cut before it is turned into a number: int() of a very long text is slow and then refused.
    if not text.isascii() or not text.isdigit() or not least <= int(text[:20]) <= most:
        raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most}")
    return int(text)


def amount(text: str) -> float:
    """A number above 0."""
    value = amount_or_zero(text)
    if not value:
        raise argparse.ArgumentTypeError("expected a number above 0")
    return value


def amount_or_zero(text: str) -> float:
    """A number, or 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= AMOUNT_MAX:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to {AMOUNT_MAX:.0f}")
    return value
