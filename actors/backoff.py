"""How long to wait before asking again: pure functions, with the clock and the dice passed in."""

import datetime
import email.utils
import math
import random
import re

BASE_SECONDS = 0.5
MAX_SECONDS = 30.0
_NUMBER = re.compile(r"[0-9]{1,300}(\.[0-9]{1,300})?")


def parse_retry_after(value: str, now: float, cap: float) -> float | None:
    """Read a Retry-After header: seconds from ``now``, between 0 and ``cap``; None for junk.

    Takes whole and broken seconds and HTTP dates (a past date is 0); ``now`` is in Unix seconds.
    """
    value = value.strip()
    if _NUMBER.fullmatch(value):
        return min(float(value), cap)
    try:
        moment = email.utils.parsedate_to_datetime(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        seconds = moment.timestamp() - now
    except (ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), cap) if math.isfinite(seconds) else None


def delay(attempt: int, retry_after: float | None, rng: random.Random) -> float:
    """Seconds to wait after failed attempt number ``attempt`` (from 0).

    What the provider asked for is kept, else between 0 and 0.5 * 2**attempt (at most 30) by lot,
    so that many runs cut off at once do not come back at once.
    """
    if retry_after is not None:
        return retry_after
    return rng.uniform(0.0, min(MAX_SECONDS, BASE_SECONDS * 2.0 ** min(attempt, 16)))
