"""The journal: one writer, all or nothing, and nothing is cut that is not a torn tail."""

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from story import Story, call

from actors import frame
from actors.events import SCHEMA, AnyEvent, Asked, Opened, encoder
from actors.fs import Fs
from actors.journal import (
    JOURNAL,
    LOCK,
    TORN,
    Corrupt,
    DiskFailed,
    Held,
    Journal,
    JournalError,
    NewerSchema,
    hostname,
    read_events,
)
from actors.messages import Nature


class CountingFs(Fs):
    """A disk that notes what is asked of it, and fails on order."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.fails: OSError | None = None
        self.half = False

    def write(self, fd: int, data: bytes) -> None:
        self.did.append("write")
        if self.fails:
            if self.half:
                os.write(fd, data[: len(data) // 2])
            raise self.fails
        super().write(fd, data)

    def sync(self, fd: int) -> None:
        self.did.append("sync")
        if self.fails:
            raise self.fails
        super().sync(fd)

    def sync_dir(self, path: Path) -> None:
        self.did.append(f"sync_dir {path.name}")
        super().sync_dir(path)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "r1"
    folder.mkdir()
    return folder


def opened(epoch: int = 1, durability: str = "power", **fields: object) -> Opened:
    first = Story().events[0]
    assert isinstance(first, Opened)
    return msgspec.structs.replace(first, epoch=epoch, durability=durability, **fields)


@contextmanager
def opening(
    run_dir: Path, durability: str = "power", fs: Fs | None = None
) -> Generator[Journal, None, None]:
    """A journal whose ``run.opened`` is written."""
    journal = Journal.open(run_dir, fs or Fs())
    try:
        event = opened(journal.epoch + 1, durability)
        journal.begin(event)
        journal.write(event)
        yield journal
    finally:
        journal.close()


def told() -> list[AnyEvent]:
    """Some events."""
    story = Story()
    story.ask(1)
    story.reply(call("look"))
    story.run("1.0", Nature.READ_ONLY)
    return story.events[1:]


async def test_what_was_appended_is_read_back(run_dir: Path) -> None:
    """In this process, in the next one, and without the lock."""
    events = told()
    with opening(run_dir) as journal:
        await journal.append(*events, barrier=True)
        assert read_events(run_dir)[1:] == events
    with opening(run_dir) as journal:
        assert journal.events[1:] == events
        assert journal.epoch == 2
    assert [e.epoch for e in read_events(run_dir) if isinstance(e, Opened)] == [1, 2]


def test_several_events_are_one_write(run_dir: Path) -> None:
    """All or nothing: a kill between them cannot be."""
    fs = CountingFs()
    with opening(run_dir, fs=fs) as journal:
        fs.did.clear()
        journal.write(*told())
    assert fs.did == ["write"]


def test_a_second_comer_is_refused_with_the_owners_pid(run_dir: Path) -> None:
    """In words that say what to do, and the file is not touched."""
    with opening(run_dir):
        before = (run_dir / JOURNAL).read_bytes()
        with pytest.raises(Held) as caught:
            Journal.open(run_dir)
        assert (run_dir / JOURNAL).read_bytes() == before
    assert str(caught.value) == (
        "run r1 is held by process 1 on h (epoch 1). Stop it with: exeunt stop r1"
    )
    with opening(run_dir) as journal:
        assert journal.epoch == 2


def test_the_lock_ends_with_its_process(run_dir: Path) -> None:
    """Kill -9 frees it at once; nobody has to judge whether a lock is stale."""
    code = (
        "import sys, time, pathlib\n"
        "from actors.journal import Journal\n"
        "Journal.open(pathlib.Path(sys.argv[1]))\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(run_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parent.parent,
    ) as owner:
        assert owner.stdout
        assert owner.stdout.readline() == b"held\n"
        with pytest.raises(Held):
            Journal.open(run_dir)
        owner.kill()
        owner.wait()
    Journal.open(run_dir).close()


def test_a_lock_file_with_anything_in_it_is_only_words(run_dir: Path) -> None:
    """What stands in the lock file is for the message, and decides nothing."""
    (run_dir / LOCK).write_bytes(b"\xff\x00")
    with opening(run_dir) as journal:
        os.pwrite(journal._lock_fd, b"\xff" * 300, 0)
        with pytest.raises(Held):
            Journal.open(run_dir)


def test_an_epoch_is_the_next_one(run_dir: Path) -> None:
    """A bug that would write under an old epoch stops here."""
    journal = Journal.open(run_dir)
    try:
        with pytest.raises(AssertionError):
            journal.begin(opened(2))
    finally:
        journal.close()


def flags(run_dir: Path) -> list[int]:
    return [found.flags for found in frame.scan((run_dir / JOURNAL).read_bytes()).frames]


async def test_a_frame_says_what_was_on_disk_before_it(run_dir: Path) -> None:
    """SYNCED on the first frame after a barrier, and on no other."""
    asked = Asked(turn=1, input_estimate=1, max_output=1, cap_nusd=1)
    with opening(run_dir) as journal:
        journal.write(asked)
        await journal.append(asked, barrier=True)
        journal.write(asked, asked)
        journal.write(asked)
        await journal.sync()
        journal.write(asked)
    assert flags(run_dir) == [0, 0, 0, frame.SYNCED, 0, 0, frame.SYNCED]


async def test_a_new_process_trusts_no_earlier_sync(run_dir: Path) -> None:
    """What a process of the past wrote counts as synced once we have synced."""
    with opening(run_dir) as journal:
        await journal.sync()
    with opening(run_dir) as journal:
        await journal.sync()
        journal.write(*told()[:1])
    assert flags(run_dir) == [0, 0, frame.SYNCED]


async def test_process_durability_never_syncs(run_dir: Path) -> None:
    """A barrier costs nothing, and no frame claims to follow one."""
    fs = CountingFs()
    with opening(run_dir, "process", fs) as journal:
        fs.did.clear()
        await journal.append(*told(), barrier=True)
    assert "sync" not in fs.did
    assert set(flags(run_dir)) == {0}


async def test_a_barrier_with_nothing_new_costs_nothing(run_dir: Path) -> None:
    fs = CountingFs()
    with opening(run_dir, fs=fs) as journal:
        await journal.sync()
        fs.did.clear()
        await journal.sync()
    assert fs.did == []


def test_a_new_journal_has_its_name_on_the_disk(run_dir: Path) -> None:
    """The run directory and the one above it are synced before anything is promised."""
    fs = CountingFs()
    Journal.open(run_dir, fs).close()
    assert fs.did == [f"sync_dir {run_dir.name}", f"sync_dir {run_dir.parent.name}"]


def test_files_are_private_whatever_the_umask(run_dir: Path) -> None:
    before = os.umask(0)
    try:
        with opening(run_dir):
            pass
        (run_dir / JOURNAL).write_bytes((run_dir / JOURNAL).read_bytes() + b"X1")
        Journal.open(run_dir).close()
    finally:
        os.umask(before)
    for name in (JOURNAL, LOCK):
        assert (run_dir / name).stat().st_mode & 0o777 == 0o600
    assert (run_dir / TORN).stat().st_mode & 0o777 == 0o700


async def written(run_dir: Path, durability: str = "power") -> bytes:
    """A journal of five frames, each after a barrier; returns its bytes."""
    with opening(run_dir, durability) as journal:
        await journal.sync()
        for event in told():
            await journal.append(event, barrier=True)
    return (run_dir / JOURNAL).read_bytes()


@pytest.mark.parametrize("durability", ["power", "process"])
async def test_a_torn_tail_is_cut_and_kept_aside(run_dir: Path, durability: str) -> None:
    """Wherever the last frame was torn: the rest is read, the bytes are saved, appends go on."""
    data = await written(run_dir, durability)
    last = frame.scan(data).frames[-1]
    for cut in range(last.offset + 1, len(data), 7):
        (run_dir / JOURNAL).write_bytes(data[:cut])
        assert len(read_events(run_dir)) == 4
        assert (run_dir / JOURNAL).stat().st_size == cut
        journal = Journal.open(run_dir)
        assert len(journal.events) == 4
        assert journal.dropped == cut - last.offset
        event = opened(2)
        journal.begin(event)
        journal.write(event)
        journal.close()
        assert read_events(run_dir)[-1] == event
        assert (run_dir / TORN / f"{last.offset}-{cut}").read_bytes() == data[last.offset : cut]


@pytest.mark.parametrize("junk", [bytes(512), b"X", b"X1\x01", b"X1\x01\x00" + bytes(40)])
async def test_a_run_whose_first_frame_is_torn_begins_anew(run_dir: Path, junk: bytes) -> None:
    """Nothing was promised yet."""
    (run_dir / JOURNAL).write_bytes(junk)
    journal = Journal.open(run_dir)
    assert (journal.events, journal.epoch, journal.dropped) == ([], 0, len(junk))
    journal.close()


@pytest.mark.parametrize("durability", ["power", "process"])
async def test_damage_before_the_tail_is_refused(run_dir: Path, durability: str) -> None:
    """In words with the offset, and nothing is changed."""
    data = bytearray(await written(run_dir, durability))
    frames = frame.scan(bytes(data)).frames
    data[frames[1].offset + 40] ^= 1
    (run_dir / JOURNAL).write_bytes(data)
    for read in (read_events, Journal.open):
        with pytest.raises(Corrupt) as caught:
            read(run_dir)
        assert f"is damaged at byte {frames[1].offset}: 3 sound frames follow" in str(caught.value)
    assert (run_dir / JOURNAL).read_bytes() == data
    assert not (run_dir / TORN).exists()


async def test_a_block_of_zeros_in_the_middle_is_damage(run_dir: Path) -> None:
    data = bytearray(await written(run_dir))
    frames = frame.scan(bytes(data)).frames
    data[frames[2].offset : frames[3].offset] = bytes(frames[2].size)
    (run_dir / JOURNAL).write_bytes(data)
    with pytest.raises(Corrupt):
        Journal.open(run_dir)


def test_unsynced_frames_after_a_hole_are_a_torn_tail(run_dir: Path) -> None:
    """A power cut may lose a page and keep the next one, as long as nothing was promised."""
    with opening(run_dir) as journal:
        journal.write(*told())
    data = bytearray((run_dir / JOURNAL).read_bytes())
    frames = frame.scan(bytes(data)).frames
    data[frames[1].offset : frames[2].offset] = bytes(frames[1].size)
    (run_dir / JOURNAL).write_bytes(data)
    journal = Journal.open(run_dir)
    assert len(journal.events) == 1
    journal.close()


@pytest.mark.parametrize(
    "junk",
    [
        b"\x80\x04\x95\x15\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x06run_id\x94\x8c\x02r1\x94s.",
        b'{"run_id": "r1"}\n',
        b"\x89PNG\r\n\x1a\n" + bytes(100),
        os.urandom(8).replace(b"X", b"Y").replace(b"\0", b"\1") * 100,
    ],
    ids=["pickle", "json", "png", "noise"],
)
def test_a_file_that_is_no_journal_is_refused(run_dir: Path, junk: bytes) -> None:
    """It is nobody's torn tail, so it is left as it is, and certainly not run."""
    (run_dir / JOURNAL).write_bytes(junk)
    for read in (read_events, Journal.open):
        with pytest.raises(Corrupt, match="is no journal of Exeunt"):
            read(run_dir)
    assert (run_dir / JOURNAL).read_bytes() == junk


@pytest.mark.parametrize("name", [JOURNAL, LOCK])
def test_a_link_is_not_followed(run_dir: Path, tmp_path: Path, name: str) -> None:
    """Neither to read nor to write."""
    target = tmp_path / "elsewhere"
    target.write_bytes(b"precious")
    (run_dir / name).symlink_to(target)
    with pytest.raises(JournalError):
        Journal.open(run_dir)
    if name == JOURNAL:
        with pytest.raises(JournalError):
            read_events(run_dir)
    assert target.read_bytes() == b"precious"


def raw(run_dir: Path, payload: bytes) -> None:
    """A journal of one frame with any payload."""
    data, _ = frame.encode(payload, seq=1, epoch=1, flags=0, previous=0)
    (run_dir / JOURNAL).write_bytes(data)


def refused_as_newer(run_dir: Path, words: str) -> None:
    before = (run_dir / JOURNAL).read_bytes()
    for read in (read_events, Journal.open):
        with pytest.raises(NewerSchema) as caught:
            read(run_dir)
        assert words in str(caught.value)
        assert "Use the version that wrote it, or a later one." in str(caught.value)
    assert (run_dir / JOURNAL).read_bytes() == before


def test_a_later_schema_is_refused(run_dir: Path) -> None:
    """An older program would lose what it does not know."""
    raw(run_dir, encoder.encode(opened(schema=SCHEMA + 1)))
    refused_as_newer(run_dir, f"schema {SCHEMA + 1}, this one knows {SCHEMA}")


def test_an_unknown_event_is_refused(run_dir: Path) -> None:
    """It is never skipped."""
    raw(run_dir, msgspec.msgpack.encode({"t": "tool.finished2", "at": 1.0}))
    refused_as_newer(run_dir, "tool.finished2")


@pytest.mark.parametrize(
    "payload", [b"", b"\xc1", b"\x00", msgspec.msgpack.encode([1, 2]), msgspec.msgpack.encode({})]
)
def test_a_sound_frame_with_another_payload_is_refused(run_dir: Path, payload: bytes) -> None:
    raw(run_dir, payload)
    refused_as_newer(run_dir, "another version of Exeunt")


def test_a_later_frame_version_is_refused(run_dir: Path) -> None:
    """A file whose frames are of a later layout is not taken for a torn tail and cut."""
    data, _ = frame.encode(b"whatever", seq=1, epoch=1, flags=0, previous=0)
    (run_dir / JOURNAL).write_bytes(data[:2] + b"\x02" + data[3:])
    refused_as_newer(run_dir, "frame version 2, this one knows 1")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "disk full; make room and resume the run"),
        (errno.EDQUOT, "disk full; make room and resume the run"),
        (errno.EIO, "Input/output error; mend that and resume the run"),
    ],
)
@pytest.mark.parametrize("half", [False, True])
async def test_a_failed_write_leaves_whole_frames_and_nothing_more(
    run_dir: Path, number: int, words: str, half: bool
) -> None:
    """The rest of a frame is cut off at once, and no later append is taken."""
    fs = CountingFs()
    with opening(run_dir, fs=fs) as journal:
        await journal.sync()
        size = (run_dir / JOURNAL).stat().st_size
        fs.fails, fs.half = OSError(number, os.strerror(number)), half
        for _ in range(2):
            with pytest.raises(DiskFailed, match=words):
                await journal.append(*told(), barrier=True)
            fs.fails = None
        assert (run_dir / JOURNAL).stat().st_size == size
    with opening(run_dir) as journal:
        assert len(journal.events) == 1


async def test_a_failed_sync_is_never_tried_again(run_dir: Path) -> None:
    """A second one may report success for pages that are lost."""
    fs = CountingFs()
    with opening(run_dir, fs=fs) as journal:
        fs.fails = OSError(errno.EIO, "Input/output error")
        with pytest.raises(DiskFailed):
            await journal.sync()
        fs.fails = None
        fs.did.clear()
        with pytest.raises(DiskFailed):
            await journal.append(*told(), barrier=True)
    assert fs.did == []


def test_a_run_directory_that_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="No such file"):
        Journal.open(tmp_path / "nowhere")
    with pytest.raises(JournalError, match="No such file"):
        read_events(tmp_path / "nowhere")


def test_opening_and_closing_changes_nothing(run_dir: Path) -> None:
    """Recovery is idempotent: only a ``run.opened`` makes an epoch."""
    with opening(run_dir):
        pass
    before = (run_dir / JOURNAL).read_bytes()
    for _ in range(2):
        Journal.open(run_dir).close()
    assert (run_dir / JOURNAL).read_bytes() == before


def test_the_lock_names_this_machine(run_dir: Path) -> None:
    assert hostname() == socket.gethostname()
