"""Performs one run: asks the loop what to do, does it, records what happened, and asks again."""

import random
import time

import trio

from actors.backoff import delay
from actors.decision import Ask, AskPerson, Calls, Decision, Finish, Rules
from actors.events import (
    ApprovalAsked,
    Asked,
    AskFailed,
    ContextFitted,
    Replied,
    RunStopped,
    StopRequested,
)
from actors.fit import Fitted, Overflow, lowered_budget
from actors.limit_name import OTHER_NAME, LimitName
from actors.loop import deadline_reason, decide
from actors.money import FREE, Usage
from actors.outcome import Outcome
from actors.provider import Provider
from actors.provider_error import ProviderError
from actors.record import Record
from actors.reply import USAGE_MISSING, Reply
from actors.request import merge_user, request_body
from actors.spec import ProviderSpec
from actors.tokens import count_reply
from actors.tool_calls import MustLeave, ToolCalls
from actors.transcript import Transcript
from actors.window import Marks


class Performer:
    """One process's work on a run, from whatever its journal says to a recorded ending."""

    def __init__(
        self,
        record: Record,
        rules: Rules,
        spec: ProviderSpec,
        provider: Provider,
        calls: ToolCalls,
        transcript: Transcript,
        rng: random.Random | None = None,
    ) -> None:
        self._record = record
        self._rules = rules
        self._spec = spec
        self._provider = provider
        self._calls = calls
        self._tools_json = rules.catalogue.tools_json()
        self._transcript = transcript
        # Made here and not in a module, so that two forked actors never wait in step.
        self._rng = rng or random.Random()
        self._step = trio.CancelScope()
        self._shape = Fitted(Marks(), 0, 0)
        self._input_tokens = 0

    def request_stop(self, reason: str, who: str) -> None:
        """Record that a Stop was asked for, then cancel what is under way; the first one counts.

        Raises DiskFailed, and cancels all the same: what cannot be recorded shall cost no more.
        """
        state = self._record.state
        if state.stop is None and state.outcome is None:
            try:
                self._record.write(StopRequested(reason=reason, who=who))
            finally:
                self._step.cancel(reason=reason)

    async def perform(self) -> Outcome:
        """Go on until the run has an ending on disk.

        Raises MustLeave when only the end of this process stops a blocking tool, after which the
        next process goes on; and DiskFailed when nothing can be saved any more.
        """
        state = self._record.state
        while True:
            decision = await self._decide()
            if isinstance(decision, Finish):
                return await self._finish(decision.outcome)
            self._step = trio.CancelScope(deadline=self._deadline())
            with self._step:
                await self._do(decision)
            if state.asked:
                self._asked_in_vain(state.asked)
            if self._step.cancelled_caught and not state.stop and not state.fatal:
                assert state.limits.deadline_seconds is not None
                reason = deadline_reason(state.limits.deadline_seconds)
                self._record.write(StopRequested(reason=reason, who="deadline"))
            if self._calls.blocking:
                raise MustLeave

    async def _decide(self) -> Decision:
        state = self._record.state
        if state.stop or state.fatal or state.pending:
            # Nothing will be asked, so nothing needs to be counted: a Stop waits for it.
            return decide(state, self._rules, now=time.time(), input_tokens=0)
        await self._transcript.take_in()
        now = time.time()
        shape = self._transcript.fit(now)
        if isinstance(shape, Overflow):
            return decide(state, self._rules, now=now, input_tokens=shape.size, unfit=shape.words)
        tokens = shape.after
        if not tokens and state.prices:
            # Without a context budget nothing was counted, and money depends on it.
            tokens = self._transcript.tokens()
        decision = decide(state, self._rules, now=now, input_tokens=tokens)
        if isinstance(decision, Ask):
            self._shape, self._input_tokens = shape, tokens
        return decision

    def _deadline(self) -> float:
        state = self._record.state
        limit = state.limits.deadline_seconds
        if limit is None or state.stop:
            return float("inf")
        spent = state.head.active_seconds + max(0.0, time.time() - state.last_at)
        return trio.current_time() + limit - spent

    async def _do(self, decision: Ask | Calls | AskPerson) -> None:
        match decision:
            case Ask():
                await self._ask(decision)
            case Calls():
                await self._calls.perform(decision)
            case AskPerson(calls=calls):
                await self._record.add(
                    *(ApprovalAsked(ref=call.ref, digest=digest) for call, digest in calls)
                )

    async def _finish(self, outcome: Outcome) -> Outcome:
        stopped = RunStopped(
            status=outcome.status,
            interruption=outcome.interruption,
            error=outcome.error,
            output=outcome.output,
        )
        await self._record.add(stopped, barrier=True)
        return outcome

    async def _ask(self, ask: Ask) -> None:
        record = self._record
        if (wait := ask.not_before - time.time()) > 0:
            # Then decided anew: a person may have said something meanwhile.
            await trio.sleep(wait)
            return
        shape = self._shape
        if shape.changed:
            await record.add(
                ContextFitted(
                    marks=shape.marks,
                    before=shape.before,
                    after=shape.after,
                    cleared=shape.cleared,
                    folded=shape.folded,
                    why=shape.why,
                )
            )
        messages = self._transcript.messages
        body = request_body(
            self._spec.model,
            self._tools_json,
            merge_user(messages) if self._spec.merge_user_messages else messages,
            ask.max_output,
            self._spec.stream,
            self._limit_name,
        )
        asked = Asked(
            turn=ask.turn,
            input_estimate=self._input_tokens,
            max_output=ask.max_output,
            cap_nusd=ask.cap_nusd,
            raw=shape.raw,
            rounds=shape.rounds,
        )
        await record.add(asked, barrier=True)
        record.fs.boundary("model:before")
        try:
            reply = await self._provider.ask(body, f"{record.state.run_id}:{ask.turn}")
        except ProviderError as error:
            await record.add(self._failed(ask, error), barrier=True)
            return
        record.fs.boundary("model:after")
        await record.add(self._replied(ask, reply), barrier=True)

    def _asked_in_vain(self, asked: Asked) -> None:
        """A cancelled request: it may have been billed all the same."""
        self._record.write(
            AskFailed(
                turn=asked.turn,
                kind="cancelled",
                words="the request was cancelled",
                maybe_billed=True,
                cap_nusd=asked.cap_nusd,
            )
        )

    @property
    def _limit_name(self) -> LimitName:
        return self._record.state.limit_name or self._spec.max_output_tokens_name

    def _failed(self, ask: Ask, error: ProviderError) -> AskFailed:
        failures = self._record.state.ask_failures
        words, lowered, renamed = error.words, 0, None
        if (
            error.kind == "overflow"
            and self._shape.raw
            and not any(one.lowered_budget for one in failures)
        ):
            lowered = lowered_budget(
                self._shape.after, error.limit_tokens, error.used_tokens, ask.max_output
            )
        elif error.kind == "overflow":
            words = too_long(words)
        elif error.kind == "limit_name" and not any(one.limit_name for one in failures):
            renamed = OTHER_NAME[self._limit_name]
            words = f"{words.rstrip('.')}; it is sent once more with {renamed}"
        attempt = len(failures)
        wait = delay(attempt, error.retry_after_seconds, self._rng)
        return AskFailed(
            turn=ask.turn,
            kind=error.kind,
            words=words,
            permanent=error.permanent and not (lowered or renamed),
            maybe_billed=error.billed,
            cap_nusd=ask.cap_nusd if error.billed else 0,
            retry_at=0.0 if error.permanent else time.time() + wait,
            lowered_budget=lowered,
            limit_name=renamed,
        )

    def _replied(self, ask: Ask, reply: Reply) -> Replied:
        usage, notes = reply.usage, reply.notes
        if usage is None or usage.input_tokens == 0:
            output = count_reply(reply.assistant.text, reply.assistant.calls)
            usage = Usage(self._transcript.tokens(), output, estimated=True)
            # Some servers never tell it, which is said once a run.
            notes = tuple(note for note in notes if note != USAGE_MISSING)
            if self._record.state.head.estimated_turns == 0:
                notes += (f"{USAGE_MISSING}: tokens are counted by our own count",)
        prices = self._record.state.prices or FREE
        return Replied(
            turn=ask.turn,
            message=reply.assistant,
            usage=usage,
            cost_nusd=prices.cost(usage),
            finish=reply.finish,
            notes=notes,
        )


def too_long(words: str) -> str:
    """What a person is told when the provider takes a request for too long, and no shape helps."""
    return (
        f"{words.rstrip('.')}. The request is longer than the model's window; nothing is lost. Set "
        "budget_tokens in [agents.NAME.context] below the window, so that older results are "
        "cleared in time, and start the run anew"
    )
