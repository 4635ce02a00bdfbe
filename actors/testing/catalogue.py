"""The built-in scripts: each plays one thing that models do, over the examples' three files."""

import re
from collections.abc import Sequence

from actors.testing import chapters as chapters  # registers its scripts
from actors.testing.faults import Fault, FaultKind
from actors.testing.scripts import Call, Conversation, Say, script

TIMEOUT_WORDS = "worker 7 timed out after 30000 ms"
ANSWER = f"errors.log mentions a timeout: {TIMEOUT_WORDS}."
NOT_FOUND = "I found no timeout in errors.log."
GIVE_UP = "I am sorry, I could not find a file that mentions a timeout."
DELETED = "Deleted access.log to free space."
NOT_POSSIBLE = "access.log could not be deleted."
NOT_DELETED = "I did not delete anything: you declined the deletion."

_LIST = Call("list_files")
_READ_ERRORS = Call("read_file", {"path": "errors.log"})
_DELETE = Call("delete_file", {"path": "access.log"})
_REFUSALS = ("rejected", "declined", "not run")


def _verdict(conversation: Conversation) -> Say:
    return Say(ANSWER if conversation.told(TIMEOUT_WORDS) else NOT_FOUND)


@script("plan")
def plan(conversation: Conversation) -> Say | Call:
    """List, read errors.log, and answer from what was read."""
    match conversation.turn:
        case 0:
            return _LIST
        case 1:
            return _READ_ERRORS
        case _:
            return _verdict(conversation)


# Time-outs are left to the configuration: how long one lasts is the client's own setting.
script(
    "flaky",
    faults=(
        Fault(turn=1, kind=FaultKind.RATE_LIMIT, retry_after="0"),
        Fault(turn=2, kind=FaultKind.UNAVAILABLE),
        Fault(turn=3, kind=FaultKind.BROKEN_STREAM),
    ),
)(plan)


_COUNT = re.compile(r"\d+")
QUESTIONS = 3


@script("lead")
def lead(conversation: Conversation) -> Say | Sequence[Call]:
    """Ask the research tool as many questions as the task says, in one message; then sum up."""
    if conversation.turn == 0:
        named = _COUNT.search(conversation.task)
        many = int(named.group()) if named else QUESTIONS
        question = "Question {} of {}: which file mentions a timeout?"
        return [
            Call("research", {"question": question.format(k, many)}) for k in range(1, many + 1)
        ]
    results = conversation.results
    done = [text for text in results if text.startswith("completed")]
    told = sum(TIMEOUT_WORDS in text for text in done)
    return Say(
        f"{len(done)} of {len(results)} questions came back answered; {told} found: {ANSWER}"
    )


@script("researcher")
def researcher(conversation: Conversation) -> Say | Call:
    """List, read errors.log, and answer its question with a summary."""
    match conversation.turn:
        case 0:
            return _LIST
        case 1:
            return _READ_ERRORS
        case _:
            found = conversation.told(TIMEOUT_WORDS)
            return Say(f"Summary for {conversation.task!r}: {ANSWER if found else NOT_FOUND}")


@script("runaway")
def runaway(conversation: Conversation) -> Say | Call:
    """Ask for list_files in every turn; never answer."""
    return _LIST


@script("recover")
def recover(conversation: Conversation) -> Say | Call:
    """Guess a file name, and find the right one only if the error says how."""
    if conversation.turn == 0:
        return Call("read_file", {"path": "timeout.log"})
    if not conversation.told("Call list_files"):
        return Say(GIVE_UP)
    match conversation.turn:
        case 1:
            return _LIST
        case 2:
            return _READ_ERRORS
        case _:
            return _verdict(conversation)


@script("forbidden")
def forbidden(conversation: Conversation) -> Say | Call:
    """Ask again and again for a file that the process may not open."""
    return Call("read_file", {"path": "secret.txt"})


@script("duplicate")
def duplicate(conversation: Conversation) -> Say | Call:
    """List twice in a row with the same arguments, then answer."""
    if conversation.turn < 2:
        return _LIST
    return Say("The files are access.log, errors.log and notes.txt.")


@script("destructive")
def destructive(conversation: Conversation) -> Say | Call:
    """List, ask to delete access.log, and report what the transcript says happened.

    A refusal without words is believed to be a success, as real models do.
    """
    match conversation.turn:
        case 0:
            return _LIST
        case 1:
            return _DELETE
        case _:
            last = conversation.results[-1].lower() if conversation.results else ""
            if last.startswith("error"):
                return Say(NOT_POSSIBLE)
            return Say(NOT_DELETED if any(words in last for words in _REFUSALS) else DELETED)


@script("double_delete")
def double_delete(conversation: Conversation) -> Say | Call:
    """Ask twice, in two turns and with two ids, to delete the same file."""
    return _DELETE if conversation.turn < 2 else Say("I asked twice to delete access.log.")


@script("slow")
def slow(conversation: Conversation) -> Say | Call:
    """Start the slow scan, then answer from its result."""
    if conversation.turn == 0:
        return Call("scan_archive")
    return Say("The archive is scanned.")
