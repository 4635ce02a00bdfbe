"""What a parent reads of its child, from the child's journal alone."""

from pathlib import Path
from typing import Any

import pytest
from golden_runs import journal_bytes
from story import Story, call

from actors.child_report import (
    FINDINGS_MAX,
    OUTPUT_MAX,
    ChildReport,
    kind_of,
    read_child,
    reason_of,
)
from actors.events import Finished, Started, StopRequested
from actors.journal import JOURNAL, JournalError
from actors.messages import Nature, ResultKind
from actors.outcome import (
    ORPHANED,
    Approval,
    Cancelled,
    InDoubt,
    MaxBudget,
    MaxTurns,
    Outcome,
    Status,
)

APPROVAL = Approval("r1", "1.0", "delete", {}, ("r1",))
IN_DOUBT = InDoubt("r1", "1.0", "write", {}, ("r1",))
NOTHING = "; no result so far"


def report_of(story: Story, run_dir: Path, refused: str = "") -> ChildReport:
    (run_dir / JOURNAL).write_bytes(journal_bytes(story.events))
    return read_child(run_dir, refused)


def turn(story: Story, text: str | None = None, content: str = "seen", **fields: Any) -> None:
    """One turn that looks at something."""
    story.reply(call("look"), text=text, cost_nusd=10)
    story.run(f"{story.state.head.turns}.0", Nature.READ_ONLY, content=content, **fields)


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome(Status.COMPLETED, output="It was 7."), "completed: It was 7."),
        (Outcome(Status.COMPLETED), "completed: no result"),
        (Outcome(Status.FAILED, error="no key"), f"failed: no key{NOTHING}"),
        (Outcome(Status.FAILED), f"failed: no reason was recorded{NOTHING}"),
        (
            Outcome(Status.MAX_TURNS, MaxTurns(6)),
            f"max_turns_exceeded after 0 turns{NOTHING}",
        ),
        (
            Outcome(Status.MAX_BUDGET, MaxBudget(0.05, 0.04, 0.0, 0.02)),
            f"budget_exceeded after 0 turns{NOTHING}",
        ),
        (
            Outcome(Status.INTERRUPTED, Cancelled("lunch")),
            f"interrupted after 0 turns (lunch){NOTHING}",
        ),
    ],
)
def test_the_outcomes_word_comes_first(tmp_path: Path, outcome: Outcome, words: str):
    """Then the text; what has none says so."""
    story = Story()
    story.end(outcome)
    report = report_of(story, tmp_path)
    assert (report.words, report.status) == (words, outcome.status)
    assert report.waits is None


@pytest.mark.parametrize("waits", [APPROVAL, IN_DOUBT], ids=["approval", "in doubt"])
def test_a_child_that_waits_for_a_person_has_no_answer_yet(
    tmp_path: Path, waits: Approval | InDoubt
):
    story = Story()
    story.reply(call("delete"))
    story.end(Outcome(Status.INTERRUPTED, waits))
    report = report_of(story, tmp_path)
    assert (report.waits, report.status) == (waits, Status.INTERRUPTED)


def test_a_child_that_never_began_says_so(tmp_path: Path):
    """Without a directory, and with one that holds no journal."""
    words = "no result: it was never started"
    assert read_child(tmp_path / "r1.1.0") == ChildReport(words, "", 0)
    assert read_child(tmp_path) == ChildReport(words, "", 0)


def test_a_child_without_an_ending_tells_how_far_it_came(tmp_path: Path):
    story = Story()
    turn(story)
    words = "no result yet after 1 turn; findings so far:\nlook gave: seen"
    assert report_of(story, tmp_path) == ChildReport(words, "", 10)


def test_a_child_without_an_ending_and_findings_says_so_once(tmp_path: Path):
    story = Story()
    story.reply(call("look"), text=None, cost_nusd=10)
    assert report_of(story, tmp_path) == ChildReport("no result yet after 1 turn", "", 10)


def test_findings_are_what_was_said_and_read_last(tmp_path: Path):
    """The last three of each, in the order of the turns; errors are no findings."""
    story = Story()
    for number in range(5):
        turn(story, f"thought {number}", f"content {number}")
    turn(story, " ", "error: no", outcome=ResultKind.ERROR)
    story.end(Outcome(Status.MAX_TURNS, MaxTurns(6)))
    assert report_of(story, tmp_path).words == (
        "max_turns_exceeded after 6 turns; findings so far:\n"
        "thought 2\nthought 3\nthought 4\n"
        "look gave: content 2\nlook gave: content 3\nlook gave: content 4"
    )


def test_findings_and_outputs_are_bounded(tmp_path: Path):
    """Nothing that a child says fills its parent's window."""
    story = Story()
    for _ in range(3):
        turn(story, "t" * 50_000, "c" * 50_000)
    story.stop()
    story.end(Outcome(Status.INTERRUPTED, Cancelled("lunch")))
    assert len(report_of(story, tmp_path).words) < FINDINGS_MAX + 500
    story.open("resume")
    story.reply(text="x" * 1_000_000)
    story.end(Outcome(Status.COMPLETED, output="x" * 1_000_000))
    words = report_of(story, tmp_path).words
    assert OUTPUT_MAX / 2 < len(words) <= OUTPUT_MAX + 500


def told_of_child(story: Story, ref: str, content: str, status: str) -> None:
    """A call with a run behind it is answered with that run's report."""
    story.start(ref, Nature.CHILD)
    outcome = ResultKind.OK if status == "completed" else ResultKind.ERROR
    story.tell(Finished(ref=ref, outcome=outcome, content=content, child_status=status))


def test_findings_are_also_what_children_found_however_they_ended(tmp_path: Path):
    """An answer as it is, of all else what was found; a child without findings is left out."""
    story = Story()
    story.reply(*(call("research", f'{{"at": {number}}}') for number in range(3)))
    found = "From the child: interrupted after 1 turn (lunch); findings so far:\nlook gave: 7"
    told_of_child(story, "1.0", f"stopped before it ended: lunch. {found}", "interrupted")
    told_of_child(story, "1.1", f"failed: no key{NOTHING}", "failed")
    told_of_child(story, "1.2", "completed: It was 7.", "completed")
    story.end(Outcome(Status.INTERRUPTED, Cancelled("lunch")))
    assert report_of(story, tmp_path).words == (
        "interrupted after 1 turn (lunch); findings so far:\n"
        "research (interrupted) found: look gave: 7\nresearch gave: completed: It was 7."
    )


@pytest.mark.parametrize("ended", [False, True])
def test_what_no_process_could_tell_is_read_from_the_childs_own_journal(
    tmp_path: Path, ended: bool
):
    """A parent that died over its children is reported with what they had found, at any depth."""
    for depth, name in enumerate(("r1", "r1.1.0", "r1.1.0.1.0")):
        story, run_dir = Story(), tmp_path / name
        run_dir.mkdir()
        if depth < 2:
            story.reply(call("research"))
            story.start("1.0", Nature.CHILD)
        else:
            turn(story)
            if ended:
                story.end(Outcome(Status.COMPLETED, output="It was 7."))
        (run_dir / JOURNAL).write_bytes(journal_bytes(story.events))
    below = "gave: completed: It was 7." if ended else "(without an ending) found: look gave: seen"
    assert read_child(tmp_path / "r1", "it crashed").words == (
        "failed: it crashed; findings so far:\n"
        f"research (without an ending) found: research {below}"
    )


def test_a_child_whose_own_childs_journal_is_damaged_is_still_reported(tmp_path: Path):
    story = Story()
    story.reply(call("research"))
    story.start("1.0", Nature.CHILD)
    child = tmp_path.parent / f"{tmp_path.name}.1.0"
    child.mkdir()
    (child / JOURNAL).write_bytes(b"not a journal")
    assert report_of(story, tmp_path, "it crashed").words == f"failed: it crashed{NOTHING}"


def test_what_many_children_found_is_bounded(tmp_path: Path):
    """The last ones are told, each in its share."""
    story = Story()
    story.reply(*(call("research", f'{{"at": {number}}}') for number in range(64)))
    for number in range(64):
        found = f"interrupted after 1 turn (lunch); findings so far:\nit is {number}" + "x" * 5000
        told_of_child(story, f"1.{number}", found, "interrupted")
    words = report_of(story, tmp_path, "it crashed").words
    assert "it is 63x" in words
    assert "it is 48x" in words
    assert "it is 47x" not in words
    assert len(words) < FINDINGS_MAX + 1500


def test_what_was_spent_is_of_the_child_and_all_below_it(tmp_path: Path):
    """Grandchildren that have answered with their sums, those under way with their reserves."""
    story = Story()
    story.reply(call("research"), call("research", '{"at": 1}'), cost_nusd=7)
    for ref in ("1.0", "1.1"):
        started = Started(
            ref=ref, name="research", nature=Nature.CHILD, key="", attempt=1, digest=b"",
            agent="digger", reserve_nusd=1000,
        )  # fmt: skip
        story.tell(started)
    story.tell(Finished(ref="1.0", outcome=ResultKind.OK, content="x", child_nusd=30))
    assert report_of(story, tmp_path).spent_nusd == 7 + 30 + 1000


def test_a_request_in_flight_may_have_been_billed(tmp_path: Path):
    """A child that died in it is held against its parent's budget with the worst case."""
    story = Story()
    turn(story)
    story.ask(cap_nusd=500)
    assert report_of(story, tmp_path).spent_nusd == 510


def test_a_child_that_cannot_be_gone_on_with_has_failed_for_that_reason(tmp_path: Path):
    """With what it had found and spent; that it was hung up on is no reason."""
    story = Story()
    turn(story)
    words = "failed: it talks nonsense; findings so far:\nlook gave: seen"
    assert report_of(story, tmp_path, "it talks nonsense") == ChildReport(words, "failed", 10)
    story.tell(StopRequested(reason="the supervisor is gone", who=ORPHANED))
    story.end(Outcome(Status.INTERRUPTED, Cancelled("the supervisor is gone", ORPHANED)))
    assert report_of(story, tmp_path, "it talks nonsense") == ChildReport(words, "failed", 10)


def test_an_ending_on_record_counts_more_than_a_refusal(tmp_path: Path):
    story = Story()
    story.end(Outcome(Status.COMPLETED, output="It was 7."))
    assert report_of(story, tmp_path, "its process is gone").words == "completed: It was 7."


def test_a_child_that_was_refused_before_it_began_has_failed(tmp_path: Path):
    """Unless there is nothing of it at all: then it was not run."""
    words = "not run: the tree is full"
    assert read_child(tmp_path / "r1.1.0", "the tree is full") == ChildReport(words, "not run", 0)
    words = f"failed: no process{NOTHING}"
    assert read_child(tmp_path, "no process") == ChildReport(words, "failed", 0)


def test_a_damaged_journal_is_refused(tmp_path: Path):
    (tmp_path / JOURNAL).write_bytes(b"not a journal")
    with pytest.raises(JournalError):
        read_child(tmp_path)


@pytest.mark.parametrize("findings", [NOTHING, "; findings so far:\nI saw; findings so far:\nx"])
def test_a_reason_is_what_is_left_without_the_findings(findings: str):
    """So that children that failed alike are known by it."""
    assert reason_of(f"failed: no key{findings}") == "failed: no key"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("HTTP 500: no (request id req_8f2Ka1)", "HTTP 500: no (request id req_9bQz77)"),
        ("HTTP 500: no, id: zkQdLm", "HTTP 500: no, id: pWvRty"),
        ("no room for 0f9e-1b", "no room for 77aa-cd"),
        (
            "job 3f2c8a10-9d1e-4c1b-8a55-0c9d5f6e7a81 is gone",
            "job 00000000-1111-4222-8333-444455556666 is gone",
        ),
        ("at 0x7f3a11c0 it broke", "at 0x55d0e9ab it broke"),
        ("waited 3.5 s of 10", "waited 12 s of 100"),
        ("at 2026-11-30T10:17:12.5Z it broke", "at 2026-12-01T00:00:00Z it broke"),
        ("KeyError: 'name'", "KeyError: 'age'"),
        ("no model `a-b`", "no model `c-d`"),
        ('no such row "a"', 'no such row "b"'),
        ("/runs/r1.1.0/actor.log", "/runs/r1.1.17/actor.log"),
    ],
)
def test_failures_are_alike_whatever_differs_each_time(one: str, other: str):
    """Ids, numbers, times, addresses and quoted names."""
    assert kind_of(one) == kind_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("the provider answered HTTP 401: no", "the provider answered HTTP 503: no"),
        ("Error code: 401", "Error code: 503"),
        ("it exited with status 1, 3 times", "it exited with status 2, 3 times"),
        ("killed by SIGSEGV", "killed by SIGKILL"),
        ("killed by signal 34", "killed by signal 35"),
        ("no such file (ENOENT)", "not permitted (EACCES)"),
        ("KeyError: 'name'", "ValueError: 'name'"),
        ("refused: 'the quota is used up'", "refused: 'the model is gone'"),
        ("{'code': 'bad_key'}", "{'code': 'overloaded'}"),
        ("it couldn't and wasn't", "it couldn't, we weren't"),
        ("no key", "no model"),
    ],
)
def test_failures_that_differ_in_kind_are_not_alike(one: str, other: str):
    """Statuses, signals, names of errors, and what is said, quoted or not."""
    assert kind_of(one) != kind_of(other)


@pytest.mark.parametrize("piece", ["a", "a.", "'a", "1", "id:", "status ", '"', "é"])
def test_the_kind_of_a_long_reason_is_found_soon(piece: str):
    """Whatever it is made of: a child may say what it wants."""
    assert len(kind_of(piece * 200_000)) <= 200_000 * len(piece)
