"""What a model says and is told: assistant messages with their calls, and the results of those."""

import enum

import msgspec


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call as the model wrote it: ``arguments`` is its raw text, ``id`` only a label."""

    id: str
    name: str
    arguments: str


class Assistant(msgspec.Struct, frozen=True, omit_defaults=True):
    """One reply of the model; calls keep the order in which they were written."""

    text: str | None = None
    calls: tuple[ToolCall, ...] = ()


class Prompt(msgspec.Struct, frozen=True):
    """A message that no model wrote: ``role`` is ``system`` or ``user``."""

    role: str
    text: str


class ResultKind(enum.StrEnum):
    """What became of a call; the words for the model stand in the content."""

    OK = "ok"
    ERROR = "error"
    REJECTED = "rejected"
    DEDUPED = "deduped"
    IN_DOUBT = "in_doubt"
    CRASHED = "crashed"
    CANCELLED = "cancelled"


class Nature(enum.StrEnum):
    """What may be done with a call that was started and has no result (read from the record)."""

    READ_ONLY = "read_only"
    KEYED = "keyed"
    PROBED = "probed"
    WRITE = "write"
    CHILD = "child"


def ref_of(turn: int, index: int) -> str:
    """The name of a call in its run, whatever id the provider gave it."""
    return f"{turn}.{index}"
