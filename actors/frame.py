"""The frames of a journal file, and how a torn tail is told from damage.

::

    0  u16 magic "X1"          4  u32 payload length     20 u32 crc of the previous frame
    2  u8  frame version = 1   8  u64 seq (1, 2, 3 ...)  24 u32 crc32(header[0:24] + payload)
    3  u8  flags: 1 = SYNCED   16 u32 epoch              28 payload, then u32 frame length

SYNCED says: everything before this frame was on disk when this one was written. The chain of
crcs catches a lost, doubled or foreign frame. It is against accidents, not against tampering.
"""

import struct
from collections.abc import Iterator
from zlib import crc32

import msgspec

MAGIC = 0x3158
MAGIC_BYTES = struct.pack("<H", MAGIC)
VERSION = 1
SYNCED = 1
FRAME_MAX = 16 * 1024 * 1024

_HEAD = struct.Struct("<HBBIQII")
_CRC = struct.Struct("<I")
HEADER_SIZE = _HEAD.size + _CRC.size
OVERHEAD = HEADER_SIZE + _CRC.size


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One sound frame and where it stands in the file."""

    seq: int
    epoch: int
    flags: int
    crc: int
    payload: bytes
    offset: int
    size: int


def encode(payload: bytes, *, seq: int, epoch: int, flags: int, previous: int) -> tuple[bytes, int]:
    """A frame ready to append, and its crc; raises ValueError over ``FRAME_MAX``."""
    if len(payload) > FRAME_MAX:
        raise ValueError(f"a frame of {len(payload)} bytes is over the limit of {FRAME_MAX}")
    head = _HEAD.pack(MAGIC, VERSION, flags, len(payload), seq, epoch, previous)
    crc = crc32(payload, crc32(head))
    return b"".join((head, _CRC.pack(crc), payload, _CRC.pack(OVERHEAD + len(payload)))), crc


def parse(data: bytes | memoryview, offset: int) -> tuple[Frame, int] | None:
    """The frame at ``offset`` with the crc it names as its predecessor's, or None if unsound."""
    if offset + OVERHEAD > len(data):
        return None
    magic, version, flags, length, seq, epoch, previous = _HEAD.unpack_from(data, offset)
    end = offset + OVERHEAD + length
    if magic != MAGIC or version != VERSION or length > FRAME_MAX or end > len(data):
        return None
    start = offset + HEADER_SIZE
    payload = bytes(data[start : start + length])
    (crc,) = _CRC.unpack_from(data, offset + _HEAD.size)
    (size,) = _CRC.unpack_from(data, end - _CRC.size)
    if size != OVERHEAD + length:
        return None
    if crc32(payload, crc32(data[offset : offset + _HEAD.size])) != crc:
        return None
    return Frame(seq, epoch, flags, crc, payload, offset, size), previous


class Scan(msgspec.Struct):
    """What a file holds: its sound prefix, and sound frames behind the first unsound byte."""

    frames: list[Frame]
    end: int
    """Offset behind the last frame of the sound prefix."""
    later: list[Frame]
    """Sound frames behind the first unsound byte; a torn tail has none that is SYNCED."""


def scan(data: bytes) -> Scan:
    """Read frames up to the first unsound one, then look whether sound ones follow it."""
    frames: list[Frame] = []
    offset, crc, epoch = 0, 0, 0
    while found := parse(data, offset):
        frame, previous = found
        if frame.seq != len(frames) + 1 or previous != crc or frame.epoch < epoch:
            break
        frames.append(frame)
        offset, crc, epoch = offset + frame.size, frame.crc, frame.epoch
    later = list(_sound_after(data, offset, len(frames))) if offset < len(data) else []
    return Scan(frames, offset, later)


def _sound_after(data: bytes, offset: int, seq: int) -> Iterator[Frame]:
    at = data.find(MAGIC_BYTES, offset)
    while at != -1:
        found = parse(data, at)
        if found and found[0].seq > seq:
            yield found[0]
            at = data.find(MAGIC_BYTES, at + found[0].size)
        else:
            at = data.find(MAGIC_BYTES, at + 1)
