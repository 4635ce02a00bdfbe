"""The frames between a supervisor and an actor: 4-byte little-endian length, then msgpack.

Bulk data never passes here: state goes to disk, and a frame over ``FRAME_MAX`` is refused.
"""

import struct
from typing import Generic, Literal, TypeVar

import msgspec

from actors.spec import LimitChange, RunSpec

FRAME_MAX = 16 * 1024 * 1024
_LENGTH = struct.Struct("<I")


class Stop(msgspec.Struct, frozen=True, tag="stop", tag_field="t"):
    """Supervisor to actor: cancel everything, answer what is pending, write the ending."""

    reason: str
    who: str


class Start(msgspec.Struct, frozen=True, tag="start", tag_field="t", kw_only=True):
    """Supervisor to actor, first frame: perform this run. The key travels here and nowhere else."""

    run_id: str
    root_id: str
    ref: str = ""
    """The parent's call that a child answers; empty for a root."""
    run_dir: str
    spec: RunSpec
    base_url: str
    """Where the provider is; empty for a process that has none, which then reaches no port."""
    api_key: str | None = None
    raised: LimitChange = LimitChange()
    why: str = "start"
    """``start``, ``resume`` or ``restart`` (after a crash, counted against the intensity)."""
    crash: str = ""
    """How the last process ended, when this is a restart."""
    stop: Stop | None = None
    """A Stop that was asked for before: what is left is recorded, and no user's code is loaded."""
    fail: str = ""
    """Why the run ends failed, when only its record is missing; no user's code is loaded."""
    shutdown_seconds: float = 5.0


class Tell(msgspec.Struct, frozen=True, tag="tell", tag_field="t"):
    """Supervisor to actor: a person's message, for the model's next turn."""

    text: str
    who: str


class ChildEnded(msgspec.Struct, frozen=True, tag="child_ended", tag_field="t"):
    """Supervisor to actor: read the child's journal; or why there is no child, in words."""

    ref: str
    refused: str = ""


class StartChild(msgspec.Struct, frozen=True, tag="start_child", tag_field="t"):
    """Actor to supervisor: run the child of this call; its id is ours and the ref."""

    ref: str
    agent: str
    task: str
    limit_nusd: int | None


class StopChild(msgspec.Struct, frozen=True, tag="stop_child", tag_field="t"):
    """Actor to supervisor: stop the child of this call."""

    ref: str
    reason: str


class Hello(msgspec.Struct, frozen=True, tag="hello", tag_field="t"):
    """Actor to supervisor: the journal is open and ours."""

    pid: int
    epoch: int


class Traced(msgspec.Struct, frozen=True, tag="traced", tag_field="t"):
    """Actor to supervisor: one trace line, for whoever watches."""

    line: bytes


class Ended(msgspec.Struct, frozen=True, tag="ended", tag_field="t"):
    """Actor to supervisor: the ending is on disk (phase one of a Stop); it waits for our EOF."""

    status: str


class Leaving(msgspec.Struct, frozen=True, tag="leaving", tag_field="t"):
    """Actor to supervisor: only my end stops a blocking tool; start me again."""

    reason: str


class Refused(msgspec.Struct, frozen=True, tag="refused", tag_field="t"):
    """Actor to supervisor: the run cannot be opened (held, corrupt, newer, unusable), in words."""

    kind: str
    words: str


class Check(msgspec.Struct, frozen=True, tag="check", tag_field="t", kw_only=True):
    """Supervisor to a checking process, its only frame: load what these runs need of the user's."""

    specs: tuple[RunSpec, ...]
    """Not empty, and all with the same resources and sandbox."""
    folder: str
    """One that exists and where no sandbox may write, like a run's directory."""
    tool: str = ""
    arguments: str = ""
    """JSON that is held against the schema of ``tool``, if one is named."""


class Place(msgspec.Struct, frozen=True):
    """What of an agent's configuration something is said about."""

    agent: str
    part: Literal["confinement", "module", "stop_when", "tool", "child", "arguments"]
    name: str = ""


class Loading(msgspec.Struct, frozen=True, tag="loading", tag_field="t"):
    """Checking process to supervisor: this is loaded next, whatever becomes of me."""

    place: Place


class Checked(msgspec.Struct, frozen=True, tag="checked", tag_field="t"):
    """Checking process to supervisor, last frame: what is wrong, and where; no words: nothing."""

    place: Place
    words: str = ""


ToActor = Start | Stop | Tell | ChildEnded
FromActor = Hello | Traced | StartChild | StopChild | Ended | Leaving | Refused
FromCheck = Loading | Checked

FrameT = TypeVar("FrameT")

_to_actor = msgspec.msgpack.Decoder(ToActor)
_from_actor = msgspec.msgpack.Decoder(FromActor)
_to_check = msgspec.msgpack.Decoder(Check)
_from_check = msgspec.msgpack.Decoder(FromCheck)
_encoder = msgspec.msgpack.Encoder()


class FrameError(Exception):
    """The peer sent something that is no frame of ours: too large, cut short, or garbage."""


def encode(frame: ToActor | FromActor | Check | FromCheck) -> bytes:
    """A frame ready to send; raises FrameError over ``FRAME_MAX``."""
    body = _encoder.encode(frame)
    if len(body) > FRAME_MAX:
        raise FrameError(f"a frame of {len(body)} bytes is over the limit of {FRAME_MAX}")
    return _LENGTH.pack(len(body)) + body


class FrameDecoder(Generic[FrameT]):
    """Turns received bytes into frames of one direction."""

    def __init__(self, decoder: "msgspec.msgpack.Decoder[FrameT]") -> None:
        self._decoder = decoder
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[FrameT]:
        """Add bytes and return the frames that are now whole; raises FrameError on garbage."""
        self._buffer += data
        frames: list[FrameT] = []
        start = 0
        while len(self._buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            if length > FRAME_MAX:
                raise FrameError(f"a frame of {length} bytes is over the limit of {FRAME_MAX}")
            end = start + _LENGTH.size + length
            if len(self._buffer) < end:
                break
            try:
                frames.append(self._decoder.decode(self._buffer[start + _LENGTH.size : end]))
            except msgspec.MsgspecError as error:
                raise FrameError(f"a frame that cannot be read: {error}") from error
            start = end
        del self._buffer[:start]
        return frames


def to_actor() -> FrameDecoder[ToActor]:
    """A decoder for what a supervisor sends."""
    return FrameDecoder(_to_actor)


def from_actor() -> FrameDecoder[FromActor]:
    """A decoder for what an actor sends."""
    return FrameDecoder(_from_actor)


def to_check() -> FrameDecoder[Check]:
    """A decoder for what a checking process is asked."""
    return FrameDecoder(_to_check)


def from_check() -> FrameDecoder[FromCheck]:
    """A decoder for what a checking process answers."""
    return FrameDecoder(_from_check)
