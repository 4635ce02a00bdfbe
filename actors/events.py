"""What happens to a run, as the journal records it: one Struct an event, additive only.

New fields get defaults and no field changes its meaning; an unknown tag or a higher schema is
refused when read, never skipped.
"""

import msgspec

from actors.calibration import Calibration
from actors.limit_name import LimitName
from actors.messages import Assistant, Nature, Prompt, ResultKind
from actors.money import Prices, Usage
from actors.outcome import Interruption, Status
from actors.spec import Limits
from actors.window import Marks

SCHEMAS = {1: "runs with tool calls, children, approvals, stops and restarts"}
SCHEMA = max(SCHEMAS)


class Head(msgspec.Struct, array_like=True):
    """The state of a run except its transcript; stored with every reply, result and ending.

    Fields are only ever added at the end. Money in 1e-9 USD, ``active_seconds`` while performed.
    """

    turns: int = 0
    tool_runs: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cost_nusd: int = 0
    maybe_nusd: int = 0
    """Possibly spent: the caps of model calls whose bill nobody saw."""
    estimated_turns: int = 0
    active_seconds: float = 0.0
    stalled_opens: int = 0
    """Opens in a row that followed a crash and brought neither reply nor result."""
    restarts: tuple[float, ...] = ()
    """When the supervisor restarted this run after a crash, the latest ones."""
    cut_replies: int = 0
    """Replies in a row that the output limit cut."""
    children_nusd: int = 0
    """Spent and possibly spent by children whose calls are answered."""
    children: int = 0
    """Children started, without those that turned out to have no room in the tree."""
    marks: Marks = Marks()
    """How the history is shaped in a request."""
    calibration: Calibration = Calibration()
    """What the provider's usage has taught us of our counts."""

    def copy(self) -> "Head":
        """A snapshot that later events do not change."""
        return msgspec.structs.replace(self)


class Event(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="t", kw_only=True):
    """Anything that happened; ``at`` is Unix time in seconds."""

    at: float = 0.0


class Opened(Event, frozen=True, tag="run.opened"):
    """A process took the run; one a epoch. The prompts stand in epoch 1 only."""

    schema: int
    run_id: str
    root: str
    agent: str
    epoch: int
    pid: int
    host: str
    boot_id: str
    durability: str
    code_version: str
    config_digest: str
    why: str
    """``start``, ``resume``, ``restart`` (after a crash) or ``verdict`` (a person answered)."""
    limits: Limits
    tools: dict[str, str]
    prices: Prices | None = None
    prompts: tuple[Prompt, ...] = ()
    crash: str = ""
    """How the process before this one ended, when its supervisor saw it crash."""
    dropped: int = 0
    """Bytes of a torn tail that were cut when this process opened the journal."""


class ContextFitted(Event, frozen=True, tag="context.fitted"):
    """The next request shows less of the history than the one before it; sizes in tokens."""

    marks: Marks
    before: int
    after: int
    cleared: int
    folded: int
    why: str


class Asked(Event, frozen=True, tag="model.asked"):
    """The model is about to be asked; on disk before the request leaves."""

    turn: int
    input_estimate: int
    max_output: int
    cap_nusd: int
    raw: int = 0
    """The request's size by our own count, for a run with a context budget."""
    rounds: int = 0


class Replied(Event, frozen=True, tag="model.replied"):
    """A reply was received whole: message, usage, cost and head in one frame."""

    turn: int
    message: Assistant
    usage: Usage
    cost_nusd: int
    finish: str
    notes: tuple[str, ...] = ()
    """What had to be mended or assumed to read it."""
    head: Head | None = None


class AskFailed(Event, frozen=True, tag="model.failed"):
    """An attempt brought no reply; ``maybe_billed`` adds its cap to what is possibly spent."""

    turn: int
    kind: str
    words: str
    permanent: bool = False
    maybe_billed: bool = False
    cap_nusd: int = 0
    retry_at: float = 0.0
    lowered_budget: int = 0
    """The provider refused the request as too long: what the next one may have, in tokens."""
    limit_name: LimitName | None = None
    """It does not know the parameter of the output limit: what the next requests call it."""

    @property
    def is_outage(self) -> bool:
        """Whether the same request is sent again; one in another shape is no second attempt."""
        return not (self.lowered_budget or self.limit_name)


class Started(Event, frozen=True, tag="tool.started"):
    """A call is about to run; synced first when it is a write."""

    ref: str
    name: str
    nature: Nature
    key: str
    attempt: int
    digest: bytes
    agent: str = ""
    """Whose run stands behind it."""
    reserve_nusd: int = 0
    """What a child may spend; held back from its parent's budget until the call is answered."""


class Abandoned(Event, frozen=True, tag="tool.abandoned"):
    """A blocking call overran its time; only the end of this process stops it."""

    ref: str
    words: str


class Finished(Event, frozen=True, tag="tool.finished"):
    """A call has its answer, in words; nothing runs for it any more."""

    ref: str
    outcome: ResultKind
    content: str
    permanent: bool = False
    """No message can mend it: the run ends failed."""
    notes: tuple[str, ...] = ()
    """What was done to the content at the border: cleaned, capped."""
    child_nusd: int = 0
    """What a child and all below it spent, possibly spent included."""
    child_status: str = ""
    """How the child ended; ``not run`` for one that never was."""
    head: Head | None = None


class ChildWaits(Event, frozen=True, tag="child.waits"):
    """A child, or one below it, waits for a person; its call stays pending."""

    ref: str
    interruption: Interruption


class ChildSettled(Event, frozen=True, tag="child.settled"):
    """What a child that was stopped with its parent had spent in the end."""

    ref: str
    child_nusd: int


class UserMessage(Event, frozen=True, tag="user.message"):
    """A person's message, which the model reads at the next turn."""

    text: str
    who: str


class ApprovalAsked(Event, frozen=True, tag="approval.asked"):
    """A call waits for a person."""

    ref: str
    digest: bytes


class ApprovalGiven(Event, frozen=True, tag="approval.given"):
    """A person's verdict on one call with these arguments; used once.

    ``verdict`` is approve, reject, or for a call in doubt run_again, done, not_done.
    """

    ref: str
    digest: bytes
    verdict: str
    who: str
    reason: str = ""
    args: str | None = None
    """Edited arguments as JSON; None leaves what the model wrote."""


class StopRequested(Event, frozen=True, tag="stop.requested"):
    """Stop was asked for; written before anything is cancelled."""

    reason: str
    who: str


class RunStopped(Event, frozen=True, tag="run.stopped"):
    """The ending. Nothing follows it but another ``run.opened``."""

    status: Status
    interruption: Interruption | None = None
    error: str | None = None
    output: str | None = None
    head: Head | None = None


AnyEvent = (
    Opened
    | ContextFitted
    | Asked
    | Replied
    | AskFailed
    | Started
    | Abandoned
    | Finished
    | ChildWaits
    | ChildSettled
    | UserMessage
    | ApprovalAsked
    | ApprovalGiven
    | StopRequested
    | RunStopped
)

encoder = msgspec.msgpack.Encoder()
decoder: msgspec.msgpack.Decoder[AnyEvent] = msgspec.msgpack.Decoder(AnyEvent)
