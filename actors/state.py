"""The state of a run: a pure fold over its events, the same in memory and on replay."""

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from actors.events import (
    Abandoned,
    AnyEvent,
    ApprovalAsked,
    ApprovalGiven,
    Asked,
    AskFailed,
    ChildSettled,
    ChildWaits,
    ContextFitted,
    Finished,
    Head,
    Opened,
    Replied,
    RunStopped,
    Started,
    StopRequested,
    UserMessage,
)
from actors.limit_name import LimitName
from actors.messages import Assistant, Nature, Prompt, ResultKind, ToolCall, ref_of
from actors.money import Prices
from actors.outcome import NOT_RUN, ORPHANED, InDoubt, Interruption, Outcome
from actors.spec import Limits

RESTARTS_KEPT = 16


class Call(msgspec.Struct):
    """One call of a turn, from what the model wrote to the answer it got."""

    ref: str
    written: ToolCall
    attempts: int = 0
    crashes: int = 0
    """Processes that died while it ran."""
    nature: Nature | None = None
    """As recorded when it was started; None before."""
    digest: bytes | None = None
    """Of the tool and its canonical arguments, as recorded when it was started."""
    started_at: float = 0.0
    abandoned: str | None = None
    reserve_nusd: int = 0
    waits: Interruption | None = None
    """What its child waits for, as far as this process knows."""
    asked: bytes | None = None
    """The digest under which a person was asked."""
    shown: str = ""
    """The raw arguments that the person was asked about."""
    edited: str | None = None
    """The raw arguments that a person put in their place."""
    verdict: ApprovalGiven | None = None
    """What a person said of it, as long as that is not used up."""
    doubted: bool = False
    """The run stopped to ask a person what became of it."""
    result: Finished | None = None

    @property
    def is_child(self) -> bool:
        """Whether it was started as a run of its own."""
        return self.nature is Nature.CHILD

    @property
    def arguments(self) -> str:
        """The raw arguments that count: a person's edit, else what the model wrote."""
        return self.written.arguments if self.edited is None else self.edited


class Turn(msgspec.Struct):
    """One saved reply with its calls, in the order in which the model wrote them."""

    number: int
    message: Assistant
    finish: str
    calls: list[Call]


class Failures(msgspec.Struct, frozen=True):
    """Identical failures of one call, and what the last one said."""

    count: int
    words: str


class State(msgspec.Struct):
    """Everything that is known of a run; ``apply`` is the only thing that changes it."""

    run_id: str = ""
    root: str = ""
    agent: str = ""
    epoch: int = 0
    opened_at: float = 0.0
    first_opened_at: float = 0.0
    last_at: float = 0.0
    limits: Limits = msgspec.field(default_factory=Limits)
    prices: Prices | None = None
    tools: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    former_tools: set[str] = msgspec.field(default_factory=set[str])
    """Names of the tools that earlier processes had."""
    durability: str = "power"
    config_digest: str = ""
    prompts: tuple[Prompt, ...] = ()
    turns: list[Turn] = msgspec.field(default_factory=list[Turn])
    told: list[tuple[int, str]] = msgspec.field(default_factory=list[tuple[int, str]])
    """Messages of a person, each with the turn behind which it stands."""
    crash: str = ""
    """How the last process ended, when it crashed."""
    head: Head = msgspec.field(default_factory=Head)
    asked: Asked | None = None
    """The model call in flight."""
    limit_name: LimitName | None = None
    """What the provider made us call the output limit; None: what the configuration says."""
    fitted: bool = False
    """The request under way does not begin like the one before it."""
    replied_at: float = 0.0
    """When the provider last had the whole prefix in its cache."""
    ask_failures: list[AskFailed] = msgspec.field(default_factory=list[AskFailed])
    """Attempts at the present turn that brought nothing."""
    stop: StopRequested | None = None
    outcome: Outcome | None = None
    fatal: str | None = None
    performing: bool = False
    """A process performs the run, or died while it did."""
    leaving: bool = False
    """The process said that it would end on purpose, so its end is no crash."""
    read_results: dict[bytes, str] = msgspec.field(default_factory=dict[bytes, str])
    """Digest of a read-only call that succeeded since the last write, and its ref."""
    failures: dict[bytes, Failures] = msgspec.field(default_factory=dict[bytes, Failures])
    """How often a call with these very arguments failed since it last succeeded."""

    def apply(self, event: AnyEvent) -> None:
        """Take in one event, in journal order."""
        if self.performing and not isinstance(event, Opened):
            self.head.active_seconds += max(0.0, event.at - self.last_at)
        self.last_at = event.at
        match event:
            case Opened():
                self._opened(event)
            case ContextFitted():
                self.head.marks, self.fitted = event.marks, True
            case Asked():
                self.asked = event
            case Replied():
                self._replied(event)
            case AskFailed():
                self._ask_failed(event)
            case Started():
                self._started(event)
            case Abandoned():
                self.call(event.ref).abandoned = event.words
                self.leaving = True
            case Finished():
                self._finished(event)
            case ChildWaits():
                self.call(event.ref).waits = event.interruption
                self.head.stalled_opens = 0
            case ChildSettled():
                self._settled(event)
            case UserMessage():
                # The request under way does not hold it, so it stands behind its reply.
                self.told.append((self.head.turns + (self.asked is not None), event.text))
            case ApprovalAsked():
                call = self.call(event.ref)
                call.asked, call.shown = event.digest, call.arguments
            case ApprovalGiven():
                call = self.call(event.ref)
                call.verdict = event
                call.edited = call.edited if event.args is None else event.args
                self.head.stalled_opens = 0
            case StopRequested():
                self.stop = self.stop or event
                self.leaving = True
            case RunStopped():
                self._stopped(event)

    def _opened(self, event: Opened) -> None:
        self.epoch, self.opened_at = event.epoch, event.at
        self.former_tools |= self.tools.keys()
        self.limits, self.prices, self.tools = event.limits, event.prices, event.tools
        self.durability, self.config_digest = event.durability, event.config_digest
        if event.epoch == 1:
            self.run_id, self.root, self.agent = event.run_id, event.root, event.agent
            self.prompts, self.first_opened_at = event.prompts, event.at
        head = self.head
        if self.asked:
            # The process died with a request in flight: it may have been billed.
            head.maybe_nusd += self.asked.cap_nusd
            self._asked_in_vain()
        if event.why == "verdict":
            return
        crashed = self.performing and not self.leaving
        head.stalled_opens = head.stalled_opens + 1 if crashed else 0
        if event.why == "restart" and crashed:
            head.restarts = (*head.restarts, event.at)[-RESTARTS_KEPT:]
        if self.outcome or self.orphaned:
            # A resume: the old ending, and the Stop that led to it, are history now.
            self.outcome = self.stop = None
            self.ask_failures = []
        self.performing, self.leaving = True, False
        self.crash = event.crash or (self.crash if crashed else "")
        for call in self.pending:
            call.waits = None
            call.crashes += crashed and call.attempts > 0

    def _asked_in_vain(self) -> None:
        """The request under way is over; what was said since it left belongs into the next one."""
        self.asked = None
        turns = self.head.turns
        self.told = [(min(behind, turns), text) for behind, text in self.told]

    def _replied(self, event: Replied) -> None:
        head = self.head
        head.turns += 1
        head.input_tokens += event.usage.input_tokens
        head.output_tokens += event.usage.output_tokens
        head.cached_input_tokens += event.usage.cached_input_tokens
        head.estimated_turns += event.usage.estimated
        head.cost_nusd += event.cost_nusd
        head.stalled_opens = 0
        if self.asked and not event.usage.estimated:
            asked, used = self.asked, event.usage.input_tokens
            head.calibration = head.calibration.measured(
                asked.raw, used, asked.rounds, appended=not self.fitted
            )
        self.fitted, self.replied_at = False, event.at
        head.cut_replies = head.cut_replies + 1 if event.finish == "length" else 0
        calls = [
            Call(ref_of(event.turn, index), call) for index, call in enumerate(event.message.calls)
        ]
        self.turns.append(Turn(event.turn, event.message, event.finish, calls))
        self.asked, self.ask_failures = None, []

    def _ask_failed(self, event: AskFailed) -> None:
        if event.maybe_billed:
            self.head.maybe_nusd += event.cap_nusd
        if event.lowered_budget:
            marks = self.head.marks
            self.head.marks = msgspec.structs.replace(marks, budget=event.lowered_budget)
        self.limit_name = event.limit_name or self.limit_name
        self.ask_failures.append(event)
        self._asked_in_vain()

    def _started(self, event: Started) -> None:
        call = self.call(event.ref)
        call.attempts, call.nature, call.digest = event.attempt, event.nature, event.digest
        call.started_at = event.at
        call.reserve_nusd, call.doubted = event.reserve_nusd, False
        if call.verdict and call.verdict.verdict == "run_again":
            # Used up: a process that dies in it leaves the call in doubt again.
            call.verdict = None
        self.head.tool_runs += 1
        self.head.children += event.nature is Nature.CHILD
        if event.nature is not Nature.READ_ONLY:
            self.read_results.clear()

    def _finished(self, event: Finished) -> None:
        call = self.call(event.ref)
        # The head is of the journal: a state in memory and one read back are the same.
        call.result = msgspec.structs.replace(event, head=None) if event.head else event
        self.head.stalled_opens = 0
        self.head.children_nusd += event.child_nusd
        self.head.children -= event.child_status == NOT_RUN
        if call.nature not in (None, Nature.READ_ONLY):
            # What was read beside it may be older than what it wrote.
            self.read_results.clear()
        digest = call.digest or raw_digest(call.written)
        if event.outcome is ResultKind.OK:
            self.failures.pop(digest, None)
            if call.nature is Nature.READ_ONLY:
                self.read_results[digest] = call.ref
        elif event.outcome is ResultKind.ERROR:
            before = self.failures.get(digest)
            words = f"{call.written.name}: {event.content}"
            self.failures[digest] = Failures(before.count + 1 if before else 1, words)
        if event.permanent and self.fatal is None:
            self.fatal = f"{call.written.name}: {event.content}"

    def _stopped(self, event: RunStopped) -> None:
        self.outcome = Outcome(event.status, event.interruption, event.error, event.output)
        self.performing = False
        if isinstance(event.interruption, InDoubt) and event.interruption.run_id == self.run_id:
            self.call(event.interruption.call).doubted = True

    def _settled(self, event: ChildSettled) -> None:
        call = self.call(event.ref)
        assert call.result, "only an answered call is settled"
        self.head.children_nusd += event.child_nusd - call.result.child_nusd
        call.result = msgspec.structs.replace(call.result, child_nusd=event.child_nusd)

    def call(self, ref: str) -> Call:
        """The call of that name; raises KeyError when the run has none."""
        turn, _, index = ref.partition(".")
        try:
            call = self.turns[int(turn) - 1].calls[int(index)]
        except (ValueError, IndexError):
            raise KeyError(ref) from None
        if call.ref != ref:
            # Python takes -1 for an index and 02 for a number.
            raise KeyError(ref)
        return call

    @property
    def pending(self) -> list[Call]:
        """Calls of the last reply that have no answer yet, in the order of their refs."""
        return [call for call in self.turns[-1].calls if not call.result] if self.turns else []

    @property
    def orphaned(self) -> bool:
        """Whether it was stopped for no other reason than that nobody was there any more."""
        return self.stop is not None and self.stop.who == ORPHANED

    @property
    def spent_nusd(self) -> int:
        """Spent and possibly spent by the run and all below it: what a budget is held against.

        Children under way count with what was reserved for them, and a request under way with its
        worst case. In 1e-9 USD.
        """
        head = self.head
        under_way = sum(call.reserve_nusd for call in self.pending)
        under_way += self.asked.cap_nusd if self.asked else 0
        return head.cost_nusd + head.maybe_nusd + head.children_nusd + under_way

    @property
    def tool_names_run(self) -> set[str]:
        """Names of the tools that ran at least once."""
        return {c.written.name for turn in self.turns for c in turn.calls if c.attempts}


def fold(events: Iterable[AnyEvent]) -> State:
    """The state after these events."""
    state = State()
    for event in events:
        state.apply(event)
    return state


def raw_digest(call: ToolCall) -> bytes:
    """Names a call by what the model wrote, for calls that never got as far as valid arguments."""
    return args_digest(call.name, call.arguments.encode("utf-8", "replace"))


def args_digest(name: str, canonical: bytes) -> bytes:
    """Names a tool with these canonical arguments: 16 bytes."""
    return blake2b(name.encode() + b"\0" + canonical, digest_size=16).digest()
