"""Planted mistakes: each breaks one promise inside a life, and the checker must see it.

A mutant patches the code that performs runs, in a process forked for it. The checker lives in the
same process, so that it is also seen to rely on nothing that the mistake could have spoilt.
"""

import math
import uuid
from collections.abc import Callable

import msgspec

from actors import journal, pending, performer, tool_calls
from actors.decision import Ask, Decision, Rules
from actors.events import AnyEvent, Finished, Opened, Replied, Started, StopRequested
from actors.journal import Journal
from actors.money import Prices, Usage
from actors.performer import Performer
from actors.record import Record
from actors.reply import Reply
from actors.state import State
from actors.testing.dying_fs import Place


class Mutant(msgspec.Struct, frozen=True):
    name: str
    promise: str
    """The promise that it breaks."""
    plant: Callable[[], None]
    kill: Place | None = None
    """Where the life is killed that betrays it; None: it shows without a kill."""
    stop_at: Place | None = None
    script: str = "errand"


def _first(events: tuple[AnyEvent, ...], kind: type[AnyEvent]) -> bool:
    return bool(events) and isinstance(events[0], kind)


def no_started() -> None:
    add = Record.add

    async def add_others(self: Record, *events: AnyEvent, barrier: bool = False) -> None:
        await add(self, *(e for e in events if not isinstance(e, Started)), barrier=barrier)

    Record.add = add_others


def started_after_the_effect() -> None:
    add = Record.add
    held: list[AnyEvent] = []

    async def add_late(self: Record, *events: AnyEvent, barrier: bool = False) -> None:
        if _first(events, Started):
            held.extend(events)
            return
        if _first(events, Finished):
            events = (*held, *events)
            held.clear()
        await add(self, *events, barrier=barrier)

    Record.add = add_late


def results_saved_together() -> None:
    write = Record.write
    held: list[AnyEvent] = []

    def write_late(self: Record, *events: AnyEvent) -> None:
        if _first(events, Finished):
            held.extend(self._take(event) for event in events)
            return
        if not _first(events, Started):
            self.journal.write(*held)
            held.clear()
        write(self, *events)

    Record.write = write_late


def plain_write_run_again() -> None:
    pending._in_doubt = lambda state, rules, call, run: run


def torn_tail_left() -> None:
    Journal._cut = lambda self, run_dir, data, end: None


def random_key() -> None:
    tool_calls.idempotency_key = lambda run_id, ref, tool_name: uuid.uuid4().hex


def nothing_possibly_spent() -> None:
    opened = State._opened

    def forgetful(self: State, event: Opened) -> None:
        maybe = self.head.maybe_nusd
        opened(self, event)
        self.head.maybe_nusd = maybe

    State._opened = forgetful


def acknowledged_before_written() -> None:
    write = Journal.write
    held: list[AnyEvent] = []

    def write_one_behind(self: Journal, *events: AnyEvent) -> None:
        write(self, *held)
        held[:] = events

    Journal.write = write_one_behind


def epoch_not_raised() -> None:
    begin = Journal.begin

    def begin_again(self: Journal, opened: Opened) -> None:
        epoch = max(1, self.epoch)
        begin(self, opened)
        self.epoch = epoch

    Journal.begin = begin_again


def money_added_twice() -> None:
    replied = State._replied

    def generous(self: State, event: Replied) -> None:
        replied(self, event)
        self.head.cost_nusd += event.cost_nusd

    State._replied = generous


def money_rounded_down() -> None:
    def cost(self: Prices, usage: Usage) -> int:
        fresh = usage.input_tokens - usage.cached_input_tokens
        pico = fresh * self.input + usage.cached_input_tokens * self.cached_input
        return math.floor((pico + usage.output_tokens * self.output) / 1000.0)

    Prices.cost = cost


def replied_without_cost() -> None:
    replied = Performer._replied

    def free(self: Performer, ask: Ask, reply: Reply) -> Replied:
        return msgspec.structs.replace(replied(self, ask, reply), cost_nusd=0)

    Performer._replied = free


def saved_turn_asked_again() -> None:
    decide = performer.decide
    resumed: list[int] = []

    def forgetful(
        state: State, rules: Rules, *, now: float, input_tokens: int, unfit: str = ""
    ) -> Decision:
        if state.epoch > 1 and state.turns and not resumed:
            resumed.append(state.epoch)
            state.turns.pop()
            state.head.turns -= 1
        return decide(state, rules, now=now, input_tokens=input_tokens, unfit=unfit)

    performer.decide = forgetful


def finished_call_run_again() -> None:
    opened = State._opened

    def forgetful(self: State, event: Opened) -> None:
        opened(self, event)
        for call in self.turns[-1].calls if self.turns else ():
            call.result = None

    State._opened = forgetful


def children_counted_twice() -> None:
    finished = State._finished

    def generous(self: State, event: Finished) -> None:
        finished(self, event)
        self.head.children_nusd += event.child_nusd

    State._finished = generous


def lock_not_taken() -> None:
    journal.fcntl.flock = lambda fd, operation: None


def stop_not_written() -> None:
    write = Record.write

    def write_others(self: Record, *events: AnyEvent) -> None:
        if _first(events, StopRequested):
            self._take(events[0])
            return
        write(self, *events)

    Record.write = write_others


MUTANTS = (
    Mutant("no tool.started", "I8", no_started, "tool:put:after"),
    Mutant("tool.started after the effect", "I8", started_after_the_effect, "tool:put:after"),
    Mutant("results saved together", "I8", results_saved_together, "tool:send:after"),
    Mutant("a plain write run again", "I6", plain_write_run_again, "tool:put:after"),
    Mutant("a finished call run again", "I8", finished_call_run_again, "tool:send:before"),
    Mutant("a torn tail left", "I1", torn_tail_left, "half journal.x1"),
    Mutant("a random key", "I6", random_key, "tool:pay:after"),
    Mutant("nothing possibly spent", "I7", nothing_possibly_spent, "model:after"),
    Mutant("acknowledged before written", "I2", acknowledged_before_written, "tool:put:before"),
    Mutant("an epoch not raised", "I1", epoch_not_raised, "tool:put:before"),
    Mutant("a saved turn asked again", "I3", saved_turn_asked_again, "tool:put:before"),
    Mutant("money added twice", "I7", money_added_twice),
    Mutant("money rounded down", "I7", money_rounded_down),
    Mutant("children added twice", "I9", children_counted_twice, script="delegating"),
    Mutant("a reply without its cost", "I7", replied_without_cost),
    Mutant("stop.requested not written", "I11", stop_not_written, stop_at="tool:put:before"),
)
