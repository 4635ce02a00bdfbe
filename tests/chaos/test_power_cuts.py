"""With durability ``power``, what a barrier has passed outlives a power cut at any moment."""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from ground import Ground, Prepare, Subject
from plans import KILL_POINTS, SEED
from power import Disk, ForgetfulFs, NamelessFs, Op, RecordingFs, read_log
from workers import Worker

from actors import frame
from actors.events import AnyEvent, Asked, Started
from actors.journal import JOURNAL, Journal, JournalError
from actors.record import Record
from actors.testing.checker import check_run
from actors.testing.evidence import Broken, Evidence
from actors.testing.provider import Bill

pytestmark = pytest.mark.chaos

WHOLE_RUNS = max(40, KILL_POINTS // 8)
"""How many of the states are gone on from to the end of the run."""


class Cut(msgspec.Struct, frozen=True):
    """One moment of a recorded run, and one state that the disk may be in when the power goes."""

    number: int
    ledgers: tuple[int, ...]
    state: bytes | None
    before: str
    """The call that did not happen any more."""


class Recorded:
    """A run in one or more lives whose calls were written down."""

    def __init__(
        self,
        ground: Ground,
        kills: tuple[int | str, ...] = (),
        disk: type[RecordingFs] = RecordingFs,
        prepare: Prepare | None = None,
    ) -> None:
        self.subject = subject = ground.new_run("errand", "power")
        subject.prepare = prepare
        log = subject.home / "log"
        ledgers = (subject.notes, subject.effects, ground.bills_path)
        fs = disk(log, ledgers)
        for kill in kills:
            subject.live(kill, disk=fs)
        self.since = len(read_log(log)) if kills else 0
        """Where the last life begins."""
        assert subject.live(disk=fs).outcome
        self.ops: list[Op] = read_log(log)
        self.notes = subject.notes.read_bytes()
        self.effects = subject.effects.read_bytes()
        self.frames = frame.scan((subject.run_dir / JOURNAL).read_bytes()).frames

    def cuts(self, rng: random.Random) -> Iterator[Cut]:
        """Every moment of the last life, with the states that each may leave."""
        disk = Disk(self.subject.run_dir)
        for number, op in enumerate(self.ops):
            if number >= self.since:
                for state in disk.states(rng):
                    yield Cut(number, op.ledgers, state, f"{op.kind} {op.path}")
            disk.do(op)

    def barrier(self, cut: Cut) -> int:
        """The last frame whose barrier had returned before the cut."""
        lines = self.notes[: cut.ledgers[0]].decode().splitlines()
        return max((int(x.split()[2]) for x in lines if x.startswith("barrier")), default=0)

    def recover(self, cut: Cut, home: Path) -> int:
        """Open what is on the disk; returns the frames found. Raises Broken."""
        run_dir = home / "runs" / self.subject.start.run_id
        shutil.rmtree(home, ignore_errors=True)
        run_dir.mkdir(parents=True)
        if cut.state is not None:
            (run_dir / JOURNAL).write_bytes(cut.state)
        try:
            Journal.open(run_dir).close()
        except JournalError as error:
            raise Broken(f"I2: refused after a cut before {cut.before}: {error}") from error
        found = frame.scan((run_dir / JOURNAL).read_bytes()).frames
        written = [one.payload for one in self.frames]
        if [one.payload for one in found] != written[: len(found)]:
            raise Broken(f"I2: wrong data after a cut before {cut.before}")
        if len(found) < self.barrier(cut):
            words = f"{self.barrier(cut)} frames were durable and {len(found)} are found"
            raise Broken(f"I2: {words} after a cut before {cut.before}")
        return len(found)

    def go_on(self, cut: Cut, home: Path, *, with_trace: bool) -> None:
        """Resume a recovered run to its end and check every promise."""
        ground, first = self.subject.ground, self.subject
        (home / first.effects.name).write_bytes(self.effects[: cut.ledgers[1]])
        if with_trace:
            # The trace outran the journal: it tells what by now has never happened.
            shutil.copy(first.run_dir / "trace.jsonl", home / "runs" / first.start.run_id)
        start = msgspec.structs.replace(
            first.start, run_dir=str(home / "runs" / first.start.run_id)
        )
        again = Subject(ground, home, start)
        again.lives = 1
        again.prepare = first.prepare
        known = len(ground.bills.of(start.run_id))
        again.until_ended()
        bills = self._bills(cut) + ground.bills.of(start.run_id)[known:]
        lines = self.notes[: cut.ledgers[0]].decode().splitlines()
        durable = self.barrier(cut)
        notes = [x for x in lines if x.startswith("ack") and int(x.split()[2]) <= durable]
        evidence = again.evidence()
        check_run(
            Evidence(
                run_dir=again.run_dir,
                crashes=first.crashes + 1,
                bills=bills,
                effects=evidence.effects,
                notes=notes + evidence.notes,
                power_cut=True,
            ),
            ground.reference("errand"),
        )

    def _bills(self, cut: Cut) -> list[Bill]:
        with self.subject.ground.bills_path.open("rb") as file:
            lines = file.read(cut.ledgers[2]).splitlines()
        prefix = f"{self.subject.start.run_id}:".encode()
        return [msgspec.json.decode(line, type=Bill) for line in lines if prefix in line]


def test_what_a_barrier_passed_outlives_a_power_cut(ground: Ground):
    """In every state that a cut may leave at any moment of a run, and all goes on from there."""
    rng = random.Random(SEED + 3)
    recorded = Recorded(ground)
    _check(recorded, rng, WHOLE_RUNS)


@pytest.mark.parametrize(
    "kill", ["opened journal.x1", "half journal.x1", "synced_dir", "tool:put:after", 60, 90]
)
def test_a_power_cut_after_a_kill_is_survived_too(ground: Ground, kill: int | str):
    """What a killed process left unsynced is synced, or cut, by the one that goes on."""
    rng = random.Random(SEED + 4)
    recorded = Recorded(ground, (kill,))
    _check(recorded, rng, max(4, WHOLE_RUNS // 10))


def _check(recorded: Recorded, rng: random.Random, whole_runs: int) -> int:
    home = recorded.subject.home / "cut"
    cuts = list(recorded.cuts(rng))
    chosen = set(rng.sample(range(len(cuts)), min(whole_runs, len(cuts))))
    for index, cut in enumerate(cuts):
        try:
            recorded.recover(cut, home)
            if index in chosen:
                recorded.go_on(cut, home, with_trace=bool(index % 2))
        except Exception as error:
            error.add_note(f"EXEUNT_SEED={SEED}, a cut before call {cut.number}: {cut.before}")
            raise
    recorded.subject.remove()
    return len(cuts)


def _no_crc() -> None:
    parse = frame.parse

    def trusting(data: bytes, offset: int) -> tuple[frame.Frame, int] | None:
        if found := parse(data, offset):
            return found
        if offset + frame.OVERHEAD > len(data):
            return None
        magic, _, flags, length, seq, epoch, previous = frame._HEAD.unpack_from(data, offset)
        end = offset + frame.OVERHEAD + length
        if magic != frame.MAGIC or end > len(data):
            return None
        (crc,) = frame._CRC.unpack_from(data, offset + frame._HEAD.size)
        payload = bytes(data[offset + frame.HEADER_SIZE : end - 4])
        return frame.Frame(seq, epoch, flags, crc, payload, offset, end - offset), previous

    frame.parse = trusting


def _without_barrier(kind: type[AnyEvent]) -> Callable[[], None]:
    def plant() -> None:
        add = Record.add

        async def add_unsynced(self: Record, *events: AnyEvent, barrier: bool = False) -> None:
            of_kind = bool(events) and isinstance(events[0], kind)
            await add(self, *events, barrier=barrier and not of_kind)

        Record.add = add_unsynced

    return plant


@pytest.mark.parametrize(
    ("disk", "plant"),
    [(ForgetfulFs, None), (NamelessFs, None), (RecordingFs, _no_crc)],
    ids=["no fdatasync", "no directory sync", "no crc"],
)
def test_a_mistake_of_the_disk_is_caught(
    ground: Ground, disk: type[RecordingFs], plant: Prepare | None
):
    """Some state that a power cut may leave betrays it."""

    def with_mistake() -> str:
        if plant:
            plant()
        recorded = Recorded(ground, disk=disk)
        for seed in range(5):
            _check(recorded, random.Random(SEED + seed), 0)
        return "nothing was noticed"

    words = Worker(with_mistake).wait(60.0)
    assert words.startswith("Broken: I2:"), words


@pytest.mark.parametrize(
    ("plant", "moment", "promise"),
    [
        (_without_barrier(Asked), "boundary model:after", "I3"),
        (_without_barrier(Started), "boundary tool:put:after", "I8"),
    ],
    ids=["model.asked not synced", "tool.started not synced"],
)
def test_a_write_that_is_not_synced_is_caught(
    ground: Ground, plant: Prepare, moment: str, promise: str
):
    """What happened outside is not told inside, when the power goes right after it."""
    ground.reference("errand")

    def with_mistake() -> str:
        recorded = Recorded(ground, prepare=plant)
        home = recorded.subject.home / "cut"
        for cut in recorded.cuts(random.Random(SEED)):
            if cut.before == moment:
                recorded.recover(cut, home)
                recorded.go_on(cut, home, with_trace=False)
        return "nothing was noticed"

    words = Worker(with_mistake).wait(60.0)
    assert words.startswith(f"Broken: {promise}:"), words
