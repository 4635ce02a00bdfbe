"""The calls that a run's ending says it waits for, without those that have their verdict by now.

An ending is recorded once and verdicts come later, into the journals of the runs whose calls they
are about; so what waits is always asked of those.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from actors.outcome import Approval, InDoubt, Interruption
from actors.state import State
from actors.verdict import waits

Data = dict[str, Any]


def interruption_now(why: Interruption | None, states: Mapping[str, State]) -> Data | None:
    """An interruption as JSON data; of one that waits for a person only what still waits.

    When all is answered the call on record stays, beside an empty ``pending``. ``states`` are those
    of the run and of all below it; a call whose run is not among them waits.
    """
    data: Data | None = msgspec.to_builtins(why)
    if data is None or not isinstance(why, Approval | InDoubt):
        return data
    waiting = [call for call in waiting_calls(data) if not _answered(call, states)]
    if not waiting:
        return data | {"pending": []}
    return waiting[0] | ({"pending": waiting} if len(waiting) > 1 else {})


def waiting_calls(data: Data | None) -> list[Data]:
    """The calls that wait for a person, of an interruption as JSON data."""
    if not data or data["type"] not in ("approval", "in_doubt"):
        return []
    return data.get("pending", [data])


def is_answered(data: Data | None) -> bool:
    """Whether a run waited for a person and has what it waited for, so that a resume goes on."""
    return bool(data) and data.get("pending") == []


def _answered(call: Data, states: Mapping[str, State]) -> bool:
    try:
        return not waits(states[call["run_id"]].call(call["call"]))
    except KeyError:
        return False  # Its journal is damaged, or gone.
