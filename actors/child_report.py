"""What a parent reads of its child: the outcome's word first, then what the child found.

Never empty, and never shaped like a success that it was not. That it comes from another agent, and
is data and no instruction, is said by the tool whose result it is.
"""

import re
from pathlib import Path

import msgspec

from actors.journal import JOURNAL, JournalError, read_events
from actors.messages import ResultKind
from actors.outcome import NOT_RUN, Approval, InDoubt, Interruption, Outcome, Status
from actors.state import Call, State, fold
from actors.text import cut

FINDINGS = "; findings so far:\n"
NO_FINDINGS = "; no result so far"
FINDINGS_MAX = 4000
RESULTS_SHOWN = 3
REPORTS_SHOWN = 16
"""Of what was said and of what was read, and of the child's own children: the last so many."""
OUTPUT_MAX = 64 * 1024
SETTLED = frozenset({Status.COMPLETED, Status.FAILED, Status.MAX_TURNS, Status.MAX_BUDGET})
"""Endings after which a parent has its answer: such a child is not run again."""
_VARYING = re.compile(
    r"""
    \b (?:http|status|code|signal|errno|error) [ :=(]{1,3} \d+ \b   # tells failures apart
    | (?P<value>
        (?<![\w]) (?<!['"]:[ ]) (['"`]) [^\s'"`]{1,200} \2 (?!\w)  # but no value of an object
        | \b id [:=] [ ]? [^\s'",;)]+
      )
    | (?P<word> \w+ (?: [.:/+-]+ \w+ )* )
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""What may vary in a reason: all in time linear in its length."""


class ChildReport(msgspec.Struct, frozen=True):
    """A child as its parent sees it; ``spent_nusd`` is of the child and all below it."""

    words: str
    status: str
    spent_nusd: int
    waits: Interruption | None = None
    """What it waits for, when only a person can move it."""


def read_child(run_dir: Path, refused: str = "") -> ChildReport:
    """Report on a child from its journal, whether or not it has ended.

    ``refused`` says why it cannot be gone on with, which no journal of it tells. Raises
    JournalError.
    """
    if refused and not run_dir.exists():
        return ChildReport(f"{NOT_RUN}: {refused}", NOT_RUN, 0)
    there = (run_dir / JOURNAL).exists()
    state = fold(read_events(run_dir)) if there else State()
    outcome, spent = state.outcome, state.spent_nusd
    if refused and (outcome is None or state.orphaned):
        # What it says of its own end is only that it saw the supervisor hang up.
        words = f"failed: {refused}{_findings(run_dir, state)}"
        return ChildReport(words, Status.FAILED, spent)
    if not there:
        return ChildReport("no result: it was never started", "", 0)
    if outcome is None:
        # Short of the words for no findings, which would say the same again.
        findings = _findings(run_dir, state).removesuffix(NO_FINDINGS)
        words = f"no result yet after {_turns(state)}{findings}"
        return ChildReport(words, "", spent)
    if isinstance(outcome.interruption, Approval | InDoubt):
        return ChildReport(outcome.reason, outcome.status, spent, outcome.interruption)
    return ChildReport(_words(run_dir, state, outcome), outcome.status, spent)


def child_dir(run_dir: Path, ref: str) -> Path:
    """Where the child of a call has its journal: beside its parent's."""
    return run_dir.parent / f"{run_dir.name}.{ref}"


def _words(run_dir: Path, state: State, outcome: Outcome) -> str:
    match outcome.status:
        case Status.COMPLETED:
            return f"completed: {cut(outcome.output or 'no result', OUTPUT_MAX)}"
        case Status.FAILED:
            return f"failed: {outcome.error or 'no reason was recorded'}{_findings(run_dir, state)}"
        case _:
            why = f" ({outcome.reason})" if outcome.status is Status.INTERRUPTED else ""
            return f"{outcome.status} after {_turns(state)}{why}{_findings(run_dir, state)}"


def reason_of(words: str) -> str:
    """What a report says without the findings, the same for all children that failed alike."""
    return words.partition(FINDINGS)[0].removesuffix(NO_FINDINGS)


def kind_of(reason: str) -> str:
    """A reason without what differs each time: ids, numbers, times, quoted names.

    Two of one kind are the same failure. What tells failures apart stays: an HTTP status, an exit
    status, a quoted sentence.
    """
    return _VARYING.sub(_blanked, reason)


def _blanked(found: re.Match[str]) -> str:
    word = found[0]
    varies = found["value"] or (found["word"] and any(one.isdigit() for one in word))
    return "#" if varies else word


def _turns(state: State) -> str:
    return f"{state.head.turns} turn{'' if state.head.turns == 1 else 's'}"


def _findings(run_dir: Path, state: State) -> str:
    """What the child said and read last, and what its own children found, shortened.

    Says so when there is nothing.
    """
    calls = [call for turn in state.turns for call in turn.calls]
    said = [turn.message.text for turn in state.turns if (turn.message.text or "").strip()]
    read = [
        f"{call.written.name} gave: {call.result.content}"
        for call in calls
        if call.result and call.result.outcome is ResultKind.OK and not call.is_child
    ]
    below = [found for call in calls if call.is_child and (found := _found_below(run_dir, call))]
    parts = [text for text in said[-RESULTS_SHOWN:] if text]
    parts += [*read[-RESULTS_SHOWN:], *below[-REPORTS_SHOWN:]]
    if not parts:
        return NO_FINDINGS
    share = FINDINGS_MAX // len(parts)
    return FINDINGS + "\n".join(cut(part, share) for part in parts)


def _found_below(run_dir: Path, call: Call) -> str:
    """What the run behind a call found, however it ended; empty when that is nothing."""
    name = call.written.name
    if call.result:
        words, status = call.result.content, call.result.child_status
        done = call.result.outcome is ResultKind.OK
    else:
        # Its parent died before it could be told, so its own journal is asked.
        try:
            report = read_child(child_dir(run_dir, call.ref))
        except JournalError:
            return ""
        words, status, done = report.words, report.status, report.status == Status.COMPLETED
    if done:
        return f"{name} gave: {words}"
    found = words.partition(FINDINGS)[2]
    return f"{name} ({status or 'without an ending'}) found: {found}" if found else ""
