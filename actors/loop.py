"""The loop as a decision: a pure function from the state of a run to what is to be done next.

Nothing here awaits, reads a clock or touches the disk. Whoever performs the run does what the
decision says, appends what happened, and asks again; so a normal turn, a resume, an approval and
a restart after a crash are one path:

1. A Stop or a fatal error answers every pending call in words, then ends the run; only an
   orphan's calls stay pending.
2. Pending calls come before the model: answered in words, run, or waiting for a person.
3. A reply without calls is the answer.
4. A limit that is reached ends the run, and says which.
5. Otherwise the model is asked.
"""

from actors.decision import Answer, Ask, Calls, Decision, Finish, Rules
from actors.messages import ResultKind
from actors.money import FREE, usd
from actors.outcome import Cancelled, MaxBudget, MaxTurns, Outcome, Status
from actors.pending import cancelled_words, next_batch
from actors.state import State

STALLED_OPENS_MAX = 3
CUT_REPLIES_MAX = 3
OUTPUT_TOKENS_MIN = 256
"""A strict budget that pays for fewer output tokens than this ends the run."""
RETRY_SECONDS_MAX = 600.0
RAISE_OUTPUT = "raise max_output_tokens in [provider]"


def decide(
    state: State, rules: Rules, *, now: float, input_tokens: int, unfit: str = ""
) -> Decision:
    """What to do next; ``input_tokens`` is the size of the request as it would be sent.

    ``unfit`` says why no request can be made small enough, where that is so.
    """
    if ending := _ending_underway(state, rules, now):
        words, outcome = ending
        # An orphan's calls stay pending: whoever resumes it goes on with them.
        return (None if state.orphaned else _answer_all(state, words)) or Finish(outcome)
    if state.pending:
        return next_batch(state, rules)
    if done := _answered(state, rules):
        return Finish(done)
    if reached := _limit_reached(state, rules, now):
        return Finish(reached)
    if unfit:
        return Finish(Outcome(Status.FAILED, error=unfit))
    return _ask(state, rules, input_tokens)


def _ending_underway(state: State, rules: Rules, now: float) -> tuple[str, Outcome] | None:
    """A Stop or a fatal error: what the pending calls are told, and the ending that follows."""
    if state.stop:
        stop = state.stop
        cancelled = Outcome(Status.INTERRUPTED, Cancelled(stop.reason, stop.who))
        return f"cancelled, {stop.reason.removeprefix('cancelled: ')}", cancelled
    if fatal := state.fatal or rules.fatal or _crash_loop(state, rules, now):
        return f"the run failed, {fatal}", Outcome(Status.FAILED, error=fatal)
    return None


def _crash_loop(state: State, rules: Rules, now: float) -> str | None:
    """Whether the supervisor has restarted the run more often than it may."""
    recent = [at for at in state.head.restarts if at > now - rules.restart_period_seconds]
    if len(recent) <= rules.max_restarts:
        return None
    last = f"; the last process {state.crash}" if state.crash else ""
    return (
        f"crash loop: restarted more than {rules.max_restarts} times "
        f"in {rules.restart_period_seconds:g} s{last}"
    )


def _answer_all(state: State, words: str) -> Calls | None:
    answers = tuple(
        Answer(call, ResultKind.CANCELLED, cancelled_words(call, words)) for call in state.pending
    )
    return Calls(answers) if answers else None


def _answered(state: State, rules: Rules) -> Outcome | None:
    """The last reply as an ending, when it asks for nothing more."""
    if not state.turns or state.turns[-1].calls:
        return None
    if state.told and state.told[-1][0] >= state.head.turns:
        return None  # A person has said something since.
    turn = state.turns[-1]
    text = turn.message.text or ""
    if turn.finish == "content_filter":
        return Outcome(Status.FAILED, error="the provider's content filter withheld the answer")
    if not text.strip() and turn.finish == "length":
        # Thinking that nobody sees is a part of the output.
        error = f"the model reached its output limit before it had said anything; {RAISE_OUTPUT}"
        return Outcome(Status.FAILED, error=error)
    if not text.strip():
        return Outcome(Status.FAILED, error="the model sent an answer with nothing in it")
    if turn.finish == "length":
        text += "\n[The answer was cut off at the output limit.]"
    return Outcome(Status.COMPLETED, output=text)


def _limit_reached(state: State, rules: Rules, now: float) -> Outcome | None:
    head, limits = state.head, state.limits
    if error := _failure(state, rules, now):
        return Outcome(Status.FAILED, error=error)
    if reason := _stop_condition(state, rules, now):
        return Outcome(Status.INTERRUPTED, Cancelled(*reason))
    if limits.max_turns is not None and head.turns >= limits.max_turns:
        return Outcome(Status.MAX_TURNS, MaxTurns(limits.max_turns))
    return None


def _failure(state: State, rules: Rules, now: float) -> str | None:
    head = state.head
    if head.cut_replies >= CUT_REPLIES_MAX:
        return (
            f"{head.cut_replies} replies in a row were cut off at the output limit; {RAISE_OUTPUT}"
        )
    for repeated in state.failures.values():
        if repeated.count >= rules.errors.repeat_limit:
            return f"the same call failed {repeated.count} times, {repeated.words}"
    if head.stalled_opens >= STALLED_OPENS_MAX:
        last = f"; the last process {state.crash}" if state.crash else ""
        return f"crash loop while asking for turn {head.turns + 1}{last}"
    if not state.ask_failures:
        return None
    first, last = state.ask_failures[0], state.ask_failures[-1]
    if last.permanent:
        return last.words
    outages = [one for one in state.ask_failures if one.is_outage]
    if len(outages) > rules.max_retries:
        return f"gave up after {len(outages)} attempts: {last.words}"
    if last.retry_at - first.at > RETRY_SECONDS_MAX:
        return f"gave up after {RETRY_SECONDS_MAX:.0f} s: {last.words}"
    return None


def _stop_condition(state: State, rules: Rules, now: float) -> tuple[str, str] | None:
    """The first stop condition that holds: its reason, and who stopped the run."""
    head, limits = state.head, state.limits
    elapsed = head.active_seconds + max(0.0, now - state.last_at)
    if limits.deadline_seconds is not None and elapsed >= limits.deadline_seconds:
        return deadline_reason(limits.deadline_seconds), "deadline"
    tokens = head.input_tokens + head.output_tokens
    if limits.max_tokens is not None and tokens >= limits.max_tokens:
        return f"the cap of {limits.max_tokens} tokens is reached ({tokens} used)", "max_tokens"
    if limits.stop_after_tool and limits.stop_after_tool in state.tool_names_run:
        return f"{limits.stop_after_tool} has run", "stop_after_tool"
    for condition in rules.stop_conditions:
        if reason := condition(state):
            return reason, "stop_when"
    return None


def deadline_reason(seconds: float) -> str:
    """Why a run that overran its deadline was stopped."""
    return f"the deadline of {seconds:g} s is reached"


def _ask(state: State, rules: Rules, input_tokens: int) -> Ask | Finish:
    limits, prices = state.limits, state.prices or FREE
    max_output = rules.max_output_tokens
    if limits.max_budget_nusd is not None:
        rest = limits.max_budget_nusd - state.spent_nusd
        needed = 0
        if limits.strict_budget:
            # Ask for no more output than the rest pays for, so that the worst case always fits.
            affordable = prices.output_tokens_for(rest - prices.worst(input_tokens, 0))
            max_output = min(max_output, affordable)
            needed = prices.worst(input_tokens, min(rules.max_output_tokens, OUTPUT_TOKENS_MIN))
        if rest <= 0 or needed > rest:
            budget = MaxBudget(
                usd(limits.max_budget_nusd),
                usd(state.head.cost_nusd),
                usd(state.head.maybe_nusd),
                usd(needed or prices.worst(input_tokens, max_output)),
                usd(state.head.children_nusd),
            )
            return Finish(Outcome(Status.MAX_BUDGET, budget))
    last = state.ask_failures[-1].retry_at if state.ask_failures else 0.0
    return Ask(
        turn=state.head.turns + 1,
        max_output=max_output,
        cap_nusd=prices.worst(input_tokens, max_output),
        not_before=last,
    )
