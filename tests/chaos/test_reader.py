"""Whatever becomes of its bytes, a journal is read right, shortened at its end, or refused."""

import random
from pathlib import Path

import pytest
from ground import Ground
from plans import KILL_POINTS, SEED

from actors import frame
from actors.journal import JOURNAL, Corrupt, Journal, JournalError, read_events

pytestmark = pytest.mark.chaos

FLIPS = 1500 if KILL_POINTS <= 500 else 20_000


@pytest.fixture(params=["power", "process"])
def journal(ground: Ground, request: pytest.FixtureRequest) -> Path:
    """The journal of a run that was killed once, so that it has two epochs."""
    subject = ground.new_run("errand", request.param)
    subject.live("tool:put:after")
    subject.until_ended()
    return subject.run_dir / JOURNAL


def test_a_flipped_bit_never_gives_wrong_data(journal: Path):
    """It is refused, but in the last frames, where it cannot be told from a torn tail."""
    rng = random.Random(SEED + 5)
    data = journal.read_bytes()
    frames = frame.scan(data).frames
    events = read_events(journal.parent)
    process = b"durability\xa7process" in data
    refused = 0
    for _ in range(FLIPS):
        bit = rng.randrange(len(data) * 8)
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        journal.write_bytes(damaged)
        hit = next(i for i, one in enumerate(frames) if bit // 8 < one.offset + one.size)
        later = frames[hit + 1 :]
        must_refuse = later and (process or any(f.flags & frame.SYNCED for f in later))
        try:
            found = read_events(journal.parent)
        except JournalError:
            refused += 1
            # A frame of a later version, or no journal at all, is never taken for a torn tail.
            foreign = hit == 0 or damaged[frames[hit].offset + 2] > frame.VERSION
            assert must_refuse or foreign, f"bit {bit} in frame {hit + 1} is refused"
        else:
            assert not must_refuse, f"bit {bit} in frame {hit + 1} is not refused"
            assert found == events[:hit], f"bit {bit} in frame {hit + 1} gives wrong data"
    assert refused > FLIPS * 0.8


def test_a_damaged_journal_is_refused_and_left_alone(journal: Path):
    """The words name the byte; nothing is cut and nothing is appended."""
    data = bytearray(journal.read_bytes())
    data[frame.scan(bytes(data)).frames[3].offset + 40] ^= 4
    journal.write_bytes(data)
    with pytest.raises(Corrupt, match="is damaged at byte"):
        Journal.open(journal.parent)
    assert journal.read_bytes() == data


def test_a_lost_doubled_or_foreign_frame_is_refused(journal: Path):
    """The chain of crcs tells each of them from a journal."""
    data = journal.read_bytes()
    frames = frame.scan(data).frames
    fifth, sixth = frames[4], frames[5]
    one = data[fifth.offset : sixth.offset]
    lost = data[: fifth.offset] + data[sixth.offset :]
    doubled = data[: sixth.offset] + one + data[sixth.offset :]
    foreign, _ = frame.encode(
        fifth.payload, seq=fifth.seq, epoch=fifth.epoch, flags=fifth.flags, previous=12345
    )
    swapped = data[: fifth.offset] + foreign + data[sixth.offset :]
    for broken in (lost, doubled, swapped):
        journal.write_bytes(broken)
        with pytest.raises(Corrupt):
            read_events(journal.parent)


def test_a_journal_cut_at_any_byte_is_a_sound_prefix(journal: Path):
    """No cut gives an event that was not written, or loses one before it."""
    data = journal.read_bytes()
    whole = frame.scan(data).frames
    payloads = [one.payload for one in whole]
    step = 1 if KILL_POINTS > 500 else 3
    expected = 0
    for size in range(0, len(data) + 1, step):
        while expected < len(whole) and whole[expected].offset + whole[expected].size <= size:
            expected += 1
        scan = frame.scan(data[:size])
        assert not scan.later
        assert len(scan.frames) == expected, f"cut at byte {size}"
        assert scan.frames[-1].payload == payloads[expected - 1] if expected else True


def test_zeros_behind_a_journal_are_a_torn_tail(journal: Path):
    """A file that grew before its data came is cut back to its last frame."""
    data = journal.read_bytes()
    for zeros in (1, 27, 28, 512, 5000):
        journal.write_bytes(data + bytes(zeros))
        opened = Journal.open(journal.parent)
        assert opened.dropped == zeros
        opened.close()
        assert journal.read_bytes() == data
