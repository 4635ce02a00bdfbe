"""The calls that wait for an answer: which are told in words, which run now, which need a person.

Pure functions over the state, like the loop that they are a part of.
"""

import contextlib
from typing import Any, assert_never

import msgspec

from actors.approved import digest_of, verdict_on
from actors.decision import Answer, AskPerson, Calls, Decision, Finish, Rules, Run
from actors.messages import Nature, ResultKind
from actors.outcome import Approval, InDoubt, Interruption, Outcome, PendingCall, Status, path_of
from actors.reserve import no_child
from actors.state import Call, State
from actors.text import cut
from actors.tool_arguments import Arguments
from actors.tool_errors import ArgumentError
from actors.tools import Tool

ARGS_SHOWN_MAX = 8 * 1024
"""Characters of a waiting call's arguments in the record of an ending."""
CRASHES_MAX = 3
"""A call that ended its process so often is not run again."""
DOUBT_VERDICTS = ("run_again", "done", "not_done")


class ChildWait(msgspec.Struct, frozen=True):
    """A call whose child waits for a person."""

    interruption: Interruption


class Wait(msgspec.Struct, frozen=True):
    """A call that needs a verdict for these arguments."""

    call: Call
    tool: Tool
    arguments: Arguments
    digest: bytes


def next_batch(state: State, rules: Rules) -> Decision:
    """The next batch of pending calls, in the order in which the model wrote them.

    Reads and children that stand side by side run side by side. A write waits for every call before
    it and holds back every call behind it, so that the transcript's order is that of the effects.
    """
    answers: list[Answer] = []
    runs: list[Run] = []
    waiting: list[Wait] = []
    below: list[Interruption] = []
    doubt: InDoubt | None = None
    digests: set[bytes] = set()
    held_back = False
    for call in state.pending:
        step = _step(state, rules, call)
        match step:
            case Answer(outcome=ResultKind.DEDUPED) if held_back:
                pass
            case Answer():
                answers.append(step)
            case Wait():
                waiting.append(step)
                held_back = True
            case InDoubt():
                doubt = doubt or step
                held_back = True
            case ChildWait():
                below.append(step.interruption)
            case Run() if held_back:
                pass
            case Run(tool=tool) if tool.nature is Nature.CHILD:
                runs.append(step)
            case Run(tool=tool) if tool.nature is Nature.READ_ONLY:
                if step.digest not in digests:
                    # Its twin in the same message is answered from its result.
                    runs.append(step)
                    digests.add(step.digest)
            case Run():
                if not runs:
                    runs.append(step)
                # Whatever stands behind a write is looked at when it is its turn.
                break
            case _:
                assert_never(step)
    if answers or runs:
        return Calls(tuple(answers), tuple(runs))
    return _wait(state, waiting, doubt, below)


def _wait(
    state: State, waiting: list[Wait], doubt: InDoubt | None, below: list[Interruption]
) -> Decision:
    """Nothing can run: a person is needed for calls of ours, or of runs below."""
    assert waiting or doubt or below, "a pending call is answered, run or waits"
    new = tuple((wait.call, wait.digest) for wait in waiting if wait.call.asked != wait.digest)
    if new:
        return AskPerson(new)
    doubts = [doubt, *(one for one in below if isinstance(one, InDoubt))]
    if first_doubt := next((one for one in doubts if one), None):
        return Finish(Outcome(Status.INTERRUPTED, first_doubt))
    path = path_of(state.run_id)
    asked = tuple(
        PendingCall(
            state.run_id, wait.call.ref, wait.tool.name, _as_written(wait.arguments.canonical), path
        )
        for wait in waiting
    )
    for one in below:
        assert isinstance(one, Approval), "a child waits for a verdict, or is in doubt"
        asked += one.pending or (
            PendingCall(one.run_id, one.call, one.tool_name, one.args, one.path),
        )
    first = asked[0]
    approval = Approval(
        first.run_id,
        first.call,
        first.tool_name,
        first.args,
        first.path,
        asked if len(asked) > 1 else (),
    )
    return Finish(Outcome(Status.INTERRUPTED, approval))


def _step(state: State, rules: Rules, call: Call) -> Answer | Run | InDoubt | Wait | ChildWait:
    """What one pending call needs: words, a run, or a person."""
    if state.turns[-1].finish == "length":
        return Answer(call, ResultKind.ERROR, CUT_WORDS)
    run = _run_of(state, rules, call)
    if call.waits:
        return ChildWait(call.waits)
    if call.attempts and (step := _started_before(state, rules, call, run)):
        return step
    if isinstance(run, Answer):
        return run
    tool, digest = run.tool, run.digest
    if tool.nature is Nature.READ_ONLY and (ref := state.read_results.get(digest)):
        earlier = state.call(ref).result
        assert earlier, "only answered calls are remembered"
        return Answer(call, ResultKind.DEDUPED, earlier.content)
    if tool.needs_approval and (word := verdict_on(rules, run)) != "approve":
        if word == "reject" and call.verdict:
            return Answer(call, ResultKind.REJECTED, _rejected_words(call.verdict.reason))
        return Wait(call, tool, run.arguments, digest)
    if tool.nature is Nature.CHILD and (words := no_child(state, tool)):
        return Answer(call, ResultKind.ERROR, words)
    return run


def _run_of(state: State, rules: Rules, call: Call) -> Run | Answer:
    """The call as it would run with the tools that there are now, or why it cannot."""
    tool = rules.catalogue.get(call.written.name)
    if tool is None:
        return Answer(call, ResultKind.ERROR, _no_such_tool(state, rules, call))
    try:
        arguments = tool.parse(call.arguments)
    except ArgumentError as error:
        return Answer(call, ResultKind.ERROR, f"error: {error}")
    return Run(call, tool, arguments, digest_of(rules, tool, arguments), call.attempts + 1)


def _as_written(written: bytes) -> Any:
    """Arguments as a person is shown them: not the values that the tool gets, of whatever type.

    Of long ones an excerpt; the call itself stands whole in the journal of its run.
    """
    if len(written) <= ARGS_SHOWN_MAX:
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(written)
    return cut(written.decode("utf-8", "replace"), ARGS_SHOWN_MAX)


CUT_WORDS = (
    "not run: your message was cut off at the output limit, so these arguments may be "
    "incomplete. Send the call again with less in it."
)


def _started_before(
    state: State, rules: Rules, call: Call, run: Run | Answer
) -> Answer | Run | InDoubt | None:
    """A call that a process started and never answered: its recorded nature decides.

    None for one that changed nothing, which is as good as new.
    """
    if call.abandoned:
        return Answer(call, ResultKind.ERROR, call.abandoned)
    # A child counts its crashes itself.
    if call.crashes >= CRASHES_MAX and not call.is_child:
        last = f", the last one {state.crash}," if state.crash else ""
        words = f"This call ended the process {call.crashes} times{last} and was not run again."
        return Answer(call, ResultKind.CRASHED, words)
    match call.nature:
        case Nature.READ_ONLY:
            return None
        case Nature.CHILD if isinstance(run, Answer) or run.tool.nature is Nature.CHILD:
            return run
        case Nature.CHILD:
            words = (
                "error: no run stands behind this tool any more, so its run was not gone on with"
            )
            return Answer(call, ResultKind.ERROR, words)
        case Nature.KEYED | Nature.PROBED if isinstance(run, Run) and _is_the_same(rules, run):
            return msgspec.structs.replace(run, probe_first=call.nature is Nature.PROBED)
        case _:
            return _in_doubt(state, rules, call, run)


def in_doubt_words(state: State) -> str:
    """What the model reads of a call whose outcome nobody knows, and how its process ended."""
    crash = f" ({state.crash})" if state.crash else ""
    return (
        f"This call was started before the process was killed{crash} and its outcome is not known. "
        "It was NOT run again. Check whether it happened before you ask for it again."
    )


def _is_the_same(rules: Rules, run: Run) -> bool:
    """Whether a call that was started would be just that again, and nobody has judged it since."""
    call, tool = run.call, run.tool
    return (
        tool.nature is call.nature
        and run.digest == call.digest
        and _doubt_verdict(call) is None
        and (not tool.needs_approval or verdict_on(rules, run) == "approve")
    )


def _doubt_verdict(call: Call) -> str | None:
    verdict = call.verdict
    return verdict.verdict if verdict and verdict.verdict in DOUBT_VERDICTS else None


def _in_doubt(state: State, rules: Rules, call: Call, run: Run | Answer) -> Answer | Run | InDoubt:
    """A call whose outcome is unknown: told in words, or put to a person.

    A plain write, or one that could be run again and is not the same any more.
    """
    told = Answer(call, ResultKind.IN_DOUBT, in_doubt_words(state))
    if verdict := _doubt_verdict(call):
        if verdict == "run_again":
            return run if isinstance(run, Run) else told
        assert call.verdict
        happened = "it happened" if verdict == "done" else "it did not happen"
        reason = f" ({call.verdict.reason})" if call.verdict.reason else ""
        return Answer(
            call,
            ResultKind.IN_DOUBT,
            "The process died while this call ran. A person has checked and says: "
            f"{happened}{reason}. It was NOT run again.",
        )
    asked = call.asked is not None or (isinstance(run, Run) and run.tool.needs_approval)
    policy = rules.on_in_doubt or ("stop" if asked else "words")
    if policy == "stop":
        raw = run.arguments.canonical if isinstance(run, Run) else call.arguments.encode()
        args, path = _as_written(raw), path_of(state.run_id)
        return InDoubt(state.run_id, call.ref, call.written.name, args, path)
    return told


def _rejected_words(reason: str) -> str:
    because = f" The reason: {reason}" if reason else " No reason was given."
    return f"rejected: a person declined this call, and it was not run.{because}"


def _no_such_tool(state: State, rules: Rules, call: Call) -> str:
    name = call.written.name
    listing = ", ".join(rules.catalogue.names) or "none"
    if name in state.former_tools:
        return f"error: the tool {name} no longer exists. Available: {listing}"
    return f"error: there is no tool {name!r}. Available: {listing}"


def cancelled_words(call: Call, words: str) -> str:
    """What the model reads of a call that an ending overtook."""
    if not call.attempts:
        return f"not run: {words}"
    if call.nature in (Nature.READ_ONLY, Nature.CHILD):
        return f"stopped before it ended: {words}"
    return (
        f"stopped while it ran: {words}. Whether it took effect is not known. "
        "Check before you ask for it again."
    )
