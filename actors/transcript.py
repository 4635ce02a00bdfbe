"""The transcript as a request carries it: what the state knows, handed to its composition once.

A turn is taken in when all its calls are answered, and what a person said behind the turn that it
follows; so a call is never sent without its result, in the order of the refs.
"""

from collections.abc import Sequence

import trio

from actors.composition import Composition
from actors.estimate import Counter, counter_for
from actors.fit import Fitted, Overflow
from actors.journal import Corrupt
from actors.request import EmptyContent
from actors.spec import RunSpec
from actors.state import State, Turn
from actors.window import Policy

ALL = Policy(name="off")
"""Every message as it is."""
LOOP_CHARS_MAX = 50_000
"""New text of more characters is counted in a thread: 0.02 s at the worst, where counts are real.

One result alone takes 0.1 s at the worst (see ``EXACT_CHARS_MAX``), but a message may have many,
and a run that is resumed has all of its history.
"""


class Transcript:
    """Follows a state and keeps its messages ready to send, in the shape of its marks."""

    def __init__(
        self,
        state: State,
        tools_json: bytes,
        counter: Counter,
        budget: int | None = None,
        policy: Policy = ALL,
        empty_content: EmptyContent = "keep",
    ) -> None:
        """``budget`` is in the provider's tokens; raises ValueError for one that cannot be."""
        self._state = state
        self._policy = policy
        self._turns = 0
        self._told = 0
        self._composition = Composition(
            state.prompts, tools_json, counter, budget, policy, empty_content
        )

    @property
    def messages(self) -> Sequence[bytes]:
        """Encoded messages of every turn whose calls are all answered; not to be changed."""
        return self._composition.messages(self._state.head.marks)

    async def take_in(self) -> None:
        """Follow the state as ``follow`` does, but count long texts where they hold up nobody.

        A Stop or a person's message may be recorded meanwhile; nothing else may use this object.
        """
        if sum(map(_chars, self._state.turns[self._turns :])) > LOOP_CHARS_MAX:
            # Seen to its end in any case: half a turn must not be left taken in.
            await trio.to_thread.run_sync(self._follow_and_count)
        # What was said meanwhile belongs into the next request.
        self.follow()

    def _follow_and_count(self) -> None:
        self.follow()
        if self._state.prices:
            # Without a budget of tokens nothing was counted yet, and money will ask for it.
            self.tokens()

    def follow(self) -> None:
        """Take in the turns that were answered since the last time."""
        self._add_told()
        for turn in self._state.turns[self._turns :]:
            if any(call.result is None for call in turn.calls):
                return
            self._add_turn(turn)
            self._turns += 1
            self._add_told()

    def fit(self, now: float) -> Fitted | Overflow:
        """Shape the next request; raises ValueError for marks that this run cannot have."""
        head, last = self._state.head, self._state.replied_at
        cold = last > 0 and now - last > self._policy.cold_after_seconds
        return self._composition.fit(head.marks, head.calibration, cold=cold)

    def tokens(self) -> int:
        """What the next request will have by the provider's count, as far as we know."""
        head = self._state.head
        return self._composition.tokens(head.marks, head.calibration)

    def _add_told(self) -> None:
        for turn, text in self._state.told[self._told :]:
            if turn > self._turns:
                return
            self._composition.add_said(text)
            self._told += 1

    def _add_turn(self, turn: Turn) -> None:
        answered = [call.result for call in turn.calls if call.result]
        results = [(result.outcome, result.content) for result in answered]
        self._composition.add(turn.message, [call.ref for call in turn.calls], results)


def _chars(turn: Turn) -> int:
    asked = len(turn.message.text or "") + sum(len(call.arguments) for call in turn.message.calls)
    return asked + sum(len(call.result.content) for call in turn.calls if call.result)


async def open_transcript(state: State, spec: RunSpec, tools_json: bytes) -> Transcript:
    """The run's transcript, in the shape that its journal says; raises Corrupt."""
    context = spec.context
    counter = counter_for(
        spec.provider.model, scripted=spec.provider.base_url is None, choice=context.counter
    )
    prices = state.prices
    share = prices.cached_input / prices.input if prices and prices.input else 0.1
    policy = Policy(
        name=context.policy,
        cold_after_seconds=context.cold_after_seconds,
        cached_share=min(1.0, share),
    )
    transcript = Transcript(
        state, tools_json, counter, context.budget_tokens, policy, spec.provider.empty_content
    )
    await transcript.take_in()
    try:
        transcript.fit(0.0)
    except ValueError as error:
        raise Corrupt(
            f"run {state.run_id} says of its requests what cannot be: {error}. "
            "Nothing was changed; restore its journal from a copy."
        ) from error
    return transcript
