"""What a damaged journal still holds on either side of its first unsound byte."""

from pathlib import Path

import msgspec

from actors.events import AnyEvent, Replied, Started, decoder
from actors.journal import JOURNAL, Corrupt, read_data, sound
from actors.messages import Nature
from actors.state import State, fold


class Damage(msgspec.Struct, frozen=True):
    """What a cut at ``offset`` keeps, and what it takes off, as far as that can be read."""

    offset: int
    """Of the first unsound byte."""
    size: int
    """Bytes from there on."""
    kept: State
    """The run as it stands after the cut."""
    events: int
    """Sound events behind the damage."""
    turns: int
    """Turns among them, which are asked and paid for again."""
    cost_nusd: int
    """What those turns cost, in 1e-9 USD."""
    calls: tuple[str, ...]
    """Calls among them that change something, as ``2.0 delete_file``: they may be run again."""


def damage_of(run_dir: Path) -> Damage | None:
    """The damage that makes every other verb refuse a journal; None when it can be used.

    Raises JournalError for what no cut mends: nothing sound before it, or a later version.
    """
    path = run_dir / JOURNAL
    data = read_data(run_dir)
    try:
        sound(data, path)
    except Corrupt:
        scan, events = sound(data, path, cut_damage=True)
    else:
        return None
    if not events:
        raise Corrupt(
            f"{path} is damaged from its beginning, so a cut would keep nothing. Nothing was "
            "changed; restore the file from a copy, or start the run anew"
        )
    behind = [event for found in scan.later if (event := _decoded(found.payload))]
    replied = [event for event in behind if isinstance(event, Replied)]
    changing = (Nature.WRITE, Nature.KEYED, Nature.PROBED)
    calls = [
        f"{event.ref} {event.name}"
        for event in behind
        if isinstance(event, Started) and event.nature in changing
    ]
    return Damage(
        offset=scan.end,
        size=len(data) - scan.end,
        kept=fold(events),
        events=len(scan.later),
        turns=len(replied),
        cost_nusd=sum(event.cost_nusd for event in replied),
        calls=tuple(dict.fromkeys(calls)),
    )


def _decoded(payload: bytes) -> AnyEvent | None:
    try:
        return decoder.decode(payload)
    except msgspec.MsgspecError:
        return None
