"""Runs told event by event, for tests of what is decided from a state."""

from collections.abc import Sequence
from typing import Any

import msgspec

from actors import tool
from actors.catalogue import Catalogue
from actors.decision import Decision, Rules
from actors.events import (
    AnyEvent,
    ApprovalAsked,
    ApprovalGiven,
    Asked,
    AskFailed,
    Finished,
    Opened,
    Replied,
    RunStopped,
    Started,
    StopRequested,
)
from actors.loop import decide
from actors.messages import Assistant, Nature, Prompt, ResultKind, ToolCall
from actors.money import Prices, Usage
from actors.outcome import Outcome
from actors.spec import ErrorPolicy, Limits
from actors.state import State
from actors.tools import Tool

PROMPTS = (Prompt("system", "Be brief."), Prompt("user", "Go."))
NOW = 1000.0


@tool(read_only=True)
async def look(at: int = 0) -> str:
    """Look."""
    return str(at)


@tool
async def write(to: int = 0) -> str:
    """Write."""
    return str(to)


@tool(keyed=True)
async def post(to: int = 0) -> str:
    """Post with a key."""
    return str(to)


@tool(needs_approval=True)
async def delete(what: int = 0) -> str:
    """Delete."""
    return str(what)


TOOLS = (look, write, post, delete)


def rules(*tools: Tool, **fields: Any) -> Rules:
    """Rules with these tools, or the four of this module."""
    given: dict[str, Any] = {
        "errors": ErrorPolicy(),
        "max_output_tokens": 1000,
        "max_retries": 2,
        **fields,
    }
    return Rules(catalogue=Catalogue(tools or TOOLS), **given)


def call(name: str, arguments: str = "{}", call_id: str = "x") -> ToolCall:
    """A call as a model writes it."""
    return ToolCall(call_id, name, arguments)


class Story:
    """A run that tests tell forward; one second passes with each event."""

    def __init__(
        self,
        limits: Limits | None = None,
        prices: Prices | None = None,
        rules_: Rules | None = None,
    ) -> None:
        self.state = State()
        self.events: list[AnyEvent] = []
        self.rules = rules_ or rules()
        self.limits = limits or Limits()
        self.prices = prices
        self.now = NOW
        self.epoch = 0
        self.open()

    def tell(self, event: AnyEvent) -> None:
        """Let something happen."""
        self.now += 1
        event = msgspec.structs.replace(event, at=self.now)
        self.events.append(event)
        self.state.apply(event)

    def decide(self, input_tokens: int = 100) -> Decision:
        """What is to be done next."""
        return decide(self.state, self.rules, now=self.now, input_tokens=input_tokens)

    def open(self, why: str = "start", crash: str = "") -> None:
        """A process takes the run."""
        self.epoch += 1
        self.tell(
            Opened(
                schema=1,
                run_id="r1",
                root="r1",
                agent="lead",
                epoch=self.epoch,
                pid=1,
                host="h",
                boot_id="b",
                durability="process",
                code_version="0",
                config_digest="d",
                why=why,
                limits=self.limits,
                tools={one.name: one.nature.value for one in self.rules.catalogue},
                prices=self.prices,
                prompts=PROMPTS if self.epoch == 1 else (),
                crash=crash,
            )
        )

    def ask(self, cap_nusd: int = 0) -> None:
        """The model is asked."""
        turn = self.state.head.turns + 1
        self.tell(Asked(turn=turn, input_estimate=100, max_output=1000, cap_nusd=cap_nusd))

    def fail(self, retry_at: float = 0.0, **fields: Any) -> None:
        """An attempt at the model brings nothing."""
        turn = self.state.head.turns + 1
        given: dict[str, Any] = {"kind": "server", "words": "busy", "retry_at": retry_at, **fields}
        self.tell(AskFailed(turn=turn, **given))

    def reply(
        self,
        *calls: ToolCall,
        text: str | None = None,
        finish: str = "",
        usage: Usage = Usage(100, 10),  # noqa: B008  # frozen
        cost_nusd: int = 0,
    ) -> None:
        """The model answers with these calls, or a text."""
        self.tell(
            Replied(
                turn=self.state.head.turns + 1,
                message=Assistant(text, tuple(calls)),
                usage=usage,
                cost_nusd=cost_nusd,
                finish=finish or ("tool_calls" if calls else "stop"),
            )
        )

    def start(self, ref: str, nature: Nature = Nature.WRITE, digest: bytes = b"") -> None:
        """A call starts."""
        one = self.state.call(ref)
        self.tell(
            Started(
                ref=ref,
                name=one.written.name,
                nature=nature,
                key="k",
                attempt=one.attempts + 1,
                digest=digest or f"{one.written.name}{one.written.arguments}".encode(),
            )
        )

    def finish(
        self,
        ref: str,
        content: str = "fine",
        outcome: ResultKind = ResultKind.OK,
        permanent: bool = False,
    ) -> None:
        """A call is answered."""
        self.tell(Finished(ref=ref, outcome=outcome, content=content, permanent=permanent))

    def run(self, ref: str, nature: Nature = Nature.WRITE, **fields: Any) -> None:
        """A call starts and is answered."""
        self.start(ref, nature)
        self.finish(ref, **fields)

    def ask_person(self, ref: str, digest: bytes) -> None:
        """A person is asked about a call."""
        self.tell(ApprovalAsked(ref=ref, digest=digest))

    def verdict(
        self, ref: str, word: str, digest: bytes, args: str | None = None, reason: str = ""
    ) -> None:
        """A person answers."""
        self.tell(
            ApprovalGiven(ref=ref, digest=digest, verdict=word, who="p", args=args, reason=reason)
        )

    def stop(self, reason: str = "enough") -> None:
        """Somebody presses Stop."""
        self.tell(StopRequested(reason=reason, who="user"))

    def end(self, outcome: Outcome) -> None:
        """The run gets its ending."""
        self.tell(
            RunStopped(
                status=outcome.status,
                interruption=outcome.interruption,
                error=outcome.error,
                output=outcome.output,
            )
        )


def turns(story: Story, *batches: Sequence[ToolCall]) -> None:
    """Turns whose calls were all read and answered."""
    for batch in batches:
        story.reply(*batch)
        for one in list(story.state.pending):
            story.run(one.ref, Nature.READ_ONLY)
