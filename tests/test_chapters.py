"""The book of 40 chapters: read to the end by a model that is told how its window works."""

import time

import pytest

from actors.calibration import Calibration
from actors.composition import Composition
from actors.estimate import counter_for
from actors.fit import Fitted
from actors.messages import Assistant, Prompt, ResultKind, ref_of
from actors.request import request_body
from actors.testing.chapters import CHAPTERS, chapter_name, chapter_text, write_chapters
from actors.testing.chat import decode
from actors.testing.meter import Meter
from actors.testing.scripts import load, play
from actors.tokens import count_text
from actors.window import Marks, Policy

PROMPTS = (Prompt("system", "You read books."), Prompt("user", "Read the book."))


class Reading:
    """A run without processes: the script, a provider with a window, and requests fitted to it."""

    def __init__(self, script: str, budget: int | None, policy: Policy, model="gpt-4o") -> None:
        self.script = load()[script]
        self.composition = Composition(PROMPTS, b"[]", counter_for(model), budget, policy)
        self.marks, self.known = Marks(), Calibration()
        self.meter = Meter()
        self.largest = self.fittings = self.breaks = self.rereads = 0
        self.read: set[str] = set()

    def to_the_end(self, window: int, chars: int) -> str:
        """What the model says in the end, or ``refused``."""
        sent: list[bytes] = []
        for turn in range(1, 200):
            result = self.composition.fit(self.marks, self.known, cold=False)
            assert isinstance(result, Fitted)
            self.marks = result.marks
            self.fittings += result.changed
            messages = list(self.composition.messages(self.marks))
            self.breaks += messages[: len(sent)] != sent
            sent = messages
            chat = decode(request_body("m", b"[]", messages, 100, False))
            used = self.meter.measure(chat).input_tokens
            self.largest = max(self.largest, used)
            if used > window:
                return "refused"
            raw = self.composition.window.size(self.marks)
            rounds = self.composition.window.rounds
            self.known = self.known.measured(raw, used, rounds, appended=not result.changed)
            text, calls = play(self.script, chat.conversation())
            if not calls:
                return text or ""
            names = [call.arguments for call in calls]
            self.rereads += sum(name in self.read for name in names)
            self.read.update(names)
            numbers = [int("".join(filter(str.isdigit, name))) for name in names]
            results = [(ResultKind.OK, chapter_text(number, chars)) for number in numbers]
            refs = [ref_of(turn, n) for n in range(len(calls))]
            self.composition.add(Assistant(text, calls), refs, results)
        raise AssertionError("the reading never ended")


pytestmark = pytest.mark.usefixtures("counting")
WINDOW, CHARS = 4000, 1000


def test_chapters_are_files_in_many_languages(tmp_path):
    """Forty of them, always the same, and in tokens of very different price."""
    write_chapters(tmp_path, 1000)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [chapter_name(number) for number in range(1, CHAPTERS + 1)]
    texts = [(tmp_path / name).read_text(encoding="utf-8") for name in names]
    assert texts[6] == chapter_text(7, 1000)
    ratios = [count_text(text) / len(text) for text in texts]
    assert max(ratios) > 2.5 * min(ratios)


@pytest.mark.parametrize("policy", ["band", "reference"])
def test_all_chapters_are_read_within_the_window(policy):
    """A book of many windows is read to its end, and no request is refused."""
    reading = Reading("chapters", WINDOW, Policy(name=policy))
    assert reading.to_the_end(WINDOW, CHARS) == "I have read 40 of 40 chapters."
    assert len(reading.read) == CHAPTERS
    assert reading.breaks <= reading.fittings


def test_without_fitting_the_book_outgrows_the_window():
    """The policy off sends everything, until it is refused; the model is told nothing either."""
    reading = Reading("chapters", WINDOW, Policy(name="off"))
    assert "2 of 40 chapters and stop here to save space" in reading.to_the_end(WINDOW, CHARS)
    told = Reading("chapters", 2**40, Policy())
    assert told.to_the_end(WINDOW, CHARS) == "refused"


def test_a_model_that_looks_back_reads_again_what_was_taken_out():
    """Which it can, because the call is as good as new."""
    reading = Reading("chapters_reread", WINDOW, Policy())
    assert reading.to_the_end(WINDOW, CHARS) == "I have read 40 of 40 chapters."
    assert reading.rereads == 3


def test_a_tokenizer_that_is_not_ours_refuses_nothing():
    """The estimate by bytes, corrected by usage, keeps below a window 5 % larger than the budget.

    The book changes its language with every chapter, which is the worst case for a correction.
    """
    reading = Reading("chapters", int(WINDOW * 0.95), Policy(), model="of-another-maker")
    assert reading.to_the_end(WINDOW, CHARS) == "I have read 40 of 40 chapters."


def test_fitting_costs_little_beside_a_turn():
    """Fitting and joining a request of 1,000 turns: a millisecond a turn, flat while it grows."""
    composition = Composition(PROMPTS, b"[]", counter_for("x"), 200_000, Policy())
    read = load()["chapters"]
    chat = decode(request_body("m", b"[]", list(composition.messages(Marks())), 100, False))
    _, calls = play(read, chat.conversation())
    text = chapter_text(1, 400)
    marks, spent = Marks(), []
    for turn in range(1, 1001):
        message = Assistant("On.", calls)
        composition.add(message, [ref_of(turn, 0)], [(ResultKind.OK, text)])
        start = time.process_time()
        result = composition.fit(marks, Calibration(), cold=False)
        assert isinstance(result, Fitted)
        marks = result.marks
        composition.messages(marks)
        spent.append(time.process_time() - start)
    assert sum(spent) / len(spent) < 0.001
    assert sorted(spent)[900] < 0.0005
