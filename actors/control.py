"""The packets between a supervisor and its zygote: one msgpack value and some descriptors each."""

import array
import socket
from typing import Any

import msgspec

PACKET_MAX = 64 * 1024
"""Longest packet in bytes; what is larger belongs on disk."""

FDS_MAX = 2

Ancillary = list[tuple[int, int, bytes]]


class Spawn(msgspec.Struct, frozen=True, tag="spawn", tag_field="t"):
    """Supervisor to zygote, with the actor's end of its channel and its log file."""

    id: int
    role: str
    name: str
    env: dict[str, str]


class Ready(msgspec.Struct, frozen=True, tag="ready", tag_field="t"):
    """Zygote to supervisor, first packet: warmed up, after this much CPU time."""

    cpu_seconds: float


class Unfit(msgspec.Struct, frozen=True, tag="unfit", tag_field="t"):
    """Zygote to supervisor, instead of Ready: why it goes.

    ``preload`` is true when the program is broken (a preload failed) and false when the machine
    lacks something that the plain spawner can do without.
    """

    words: str
    preload: bool


class Spawned(msgspec.Struct, frozen=True, tag="spawned", tag_field="t"):
    """Zygote to supervisor, with the new process's pidfd."""

    id: int
    pid: int


class Failed(msgspec.Struct, frozen=True, tag="failed", tag_field="t"):
    """Zygote to supervisor: no process was made, in words."""

    id: int
    words: str


class Exited(msgspec.Struct, frozen=True, tag="exited", tag_field="t"):
    """Zygote to supervisor: reaped and swept; ``status`` is the wait status."""

    pid: int
    status: int
    cpu_seconds: float
    max_rss_kib: int
    swept: int


FromZygote = Ready | Unfit | Spawned | Failed | Exited

_encoder = msgspec.msgpack.Encoder()


def encode(packet: Spawn | FromZygote) -> bytes:
    """A packet ready to send; raises ValueError over ``PACKET_MAX``."""
    data = _encoder.encode(packet)
    if len(data) > PACKET_MAX:
        raise ValueError(f"a packet of {len(data)} bytes is over the limit of {PACKET_MAX}")
    return data


def rights(fds: list[int]) -> list[tuple[int, int, Any]]:
    """The ancillary data that carries these descriptors."""
    if not fds:
        return []
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]


def received_fds(ancillary: Ancillary) -> list[int]:
    """The descriptors that came with a packet; the kernel leaves out those that found no room."""
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return list(fds)
