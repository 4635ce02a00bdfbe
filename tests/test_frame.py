"""Frames: whole or not there, and a torn tail is told from damage."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors import frame
from actors.frame import FRAME_MAX, HEADER_SIZE, OVERHEAD, SYNCED, encode, parse, scan


def chain(*payloads: bytes, flags: int = 0, epoch: int = 1) -> bytes:
    """A file with these payloads."""
    data, crc = b"", 0
    for seq, payload in enumerate(payloads, 1):
        chunk, crc = encode(payload, seq=seq, epoch=epoch, flags=flags, previous=crc)
        data += chunk
    return data


def payloads(data: bytes) -> list[bytes]:
    return [found.payload for found in scan(data).frames]


THREE = [b"one", b"", b"three" * 1000]


def test_frames_come_back_as_they_were_written():
    data = chain(*THREE)
    found = scan(data)
    assert [f.payload for f in found.frames] == THREE
    assert [f.seq for f in found.frames] == [1, 2, 3]
    assert (found.end, found.later) == (len(data), [])
    assert len(data) == 3 * OVERHEAD + sum(map(len, THREE))


def test_the_layout_is_the_documented_one():
    """Other programs may read a journal: nothing of this may move."""
    data, crc = encode(b"abc", seq=5, epoch=7, flags=SYNCED, previous=0x01020304)
    assert data[:4] == b"X1" + bytes([1, 1])
    assert data[4:8] == (3).to_bytes(4, "little")
    assert data[8:16] == (5).to_bytes(8, "little")
    assert data[16:20] == (7).to_bytes(4, "little")
    assert data[20:24] == bytes([4, 3, 2, 1])
    assert data[24:28] == crc.to_bytes(4, "little")
    assert data[28:31] == b"abc"
    assert data[31:] == len(data).to_bytes(4, "little")


def test_the_end_of_a_file_names_its_last_frame():
    """The trailer lets a reader go backwards."""
    data = chain(*THREE)
    size = int.from_bytes(data[-4:], "little")
    found = parse(data, len(data) - size)
    assert found
    assert found[0].payload == THREE[-1]


def test_a_payload_over_the_limit_is_refused():
    with pytest.raises(ValueError, match="over the limit"):
        encode(bytes(FRAME_MAX + 1), seq=1, epoch=1, flags=0, previous=0)


def test_a_length_over_the_limit_is_no_frame():
    """A damaged length asks for no memory."""
    data = bytearray(chain(b"abc"))
    data[4:8] = (FRAME_MAX + 1).to_bytes(4, "little")
    assert parse(bytes(data), 0) is None


def test_every_cut_leaves_a_sound_prefix():
    """Wherever the power went, what is read is what was written before."""
    data = chain(b"one", b"two", b"three")
    ends = [
        0,
        *itertools.accumulate(OVERHEAD + len(payload) for payload in (b"one", b"two", b"three")),
    ]
    for cut in range(len(data)):
        found = scan(data[:cut])
        assert found.end == max(end for end in ends if end <= cut)
        assert found.later == []


def test_every_flipped_bit_is_found():
    """No wrong data is read; what follows a damaged frame is seen."""
    data = chain(b"one", b"two", b"three")
    whole = payloads(data)
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        found = scan(bytes(flipped))
        read = [f.payload for f in found.frames]
        assert read == whole[: len(read)]
        assert len(read) < 3
        assert len(found.later) == 2 - len(read)


@pytest.mark.parametrize(
    "order", [(0, 0, 1), (1, 0), (0, 2), (0, 1, 1, 2)], ids=["doubled", "first", "lost", "again"]
)
def test_a_frame_out_of_its_place_is_not_read(order: tuple[int, ...]):
    """The chain finds frames that were lost, doubled or moved."""
    data = chain(b"one", b"two", b"three")
    size = OVERHEAD + 3
    pieces = [data[:size], data[size : 2 * size], data[2 * size :]]
    moved = b"".join(pieces[number] for number in order)
    read = payloads(moved)
    assert read == [b"one", b"two", b"three"][: len(read)]
    assert len(read) < len(order)


def test_a_frame_of_another_file_is_not_read():
    """Even with the right number in the right place."""
    data, other = chain(b"one", b"two"), chain(b"oha", b"tow")
    size = OVERHEAD + 3
    assert payloads(data[:size] + other[size:]) == [b"one"]


def test_an_epoch_never_falls():
    """What an old owner wrote after a new one is not read."""
    first, crc = encode(b"one", seq=1, epoch=2, flags=0, previous=0)
    late, _ = encode(b"late", seq=2, epoch=1, flags=0, previous=crc)
    found = scan(first + late)
    assert [f.payload for f in found.frames] == [b"one"]
    assert len(found.later) == 1


def test_later_frames_tell_whether_they_were_synced():
    """That is what makes damage of a torn tail."""
    first, crc = encode(b"one", seq=1, epoch=1, flags=0, previous=0)
    second, crc = encode(b"two", seq=2, epoch=1, flags=0, previous=crc)
    third, _ = encode(b"three", seq=3, epoch=1, flags=SYNCED, previous=crc)
    found = scan(first + bytes(len(second)) + third)
    assert found.end == len(first)
    assert [f.flags for f in found.later] == [SYNCED]


def test_a_payload_that_looks_like_a_frame_is_data():
    """The magic bytes in a payload start nothing while its own frame is sound."""
    inner = chain(b"inner")
    data = chain(inner, b"outer")
    assert payloads(data) == [inner, b"outer"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=5), st.binary(max_size=200))
def test_whatever_follows_the_frames_the_prefix_is_read(parts: list[bytes], junk: bytes):
    """Any bytes at all after the last frame change nothing before it, and raise nothing."""
    data = chain(*parts)
    found = scan(data + junk)
    assert [f.payload for f in found.frames][: len(parts)] == parts
    assert found.end >= len(data)


def test_sizes_are_what_the_format_says():
    assert (HEADER_SIZE, OVERHEAD, frame.MAGIC_BYTES) == (28, 32, b"X1")
