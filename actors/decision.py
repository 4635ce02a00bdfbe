"""What may be done next in a run: the values that the loop decides between."""

from collections.abc import Callable, Sequence

import msgspec

from actors.catalogue import Catalogue
from actors.messages import ResultKind
from actors.outcome import Outcome
from actors.spec import ErrorPolicy
from actors.state import Call, State
from actors.tool_arguments import Arguments
from actors.tools import Tool

StopCondition = Callable[[State], str | None]


class Rules(msgspec.Struct, frozen=True):
    """What holds for a run beside its recorded limits; nothing in here changes while it runs."""

    catalogue: Catalogue
    errors: ErrorPolicy
    max_output_tokens: int
    max_retries: int
    on_in_doubt: str | None = None
    max_restarts: int = 3
    restart_period_seconds: float = 60.0
    fatal: str = ""
    """Why the run ends failed, whatever it would do next."""
    stop_conditions: Sequence[StopCondition] = ()


class Ask(msgspec.Struct, frozen=True):
    """Ask the model, not before ``not_before`` (Unix s); the turn costs at most ``cap_nusd``."""

    turn: int
    max_output: int
    cap_nusd: int
    not_before: float


class Answer(msgspec.Struct, frozen=True):
    """Answer a call in words, without running anything."""

    call: Call
    outcome: ResultKind
    content: str
    permanent: bool = False


class Run(msgspec.Struct, frozen=True):
    """Run a call with arguments that were found valid; ``probe_first`` asks whether it happened."""

    call: Call
    tool: Tool
    arguments: Arguments
    digest: bytes
    attempt: int
    probe_first: bool = False


class AskPerson(msgspec.Struct, frozen=True):
    """Record that these calls wait for a verdict, each with the digest the verdict must name."""

    calls: tuple[tuple[Call, bytes], ...]


class Calls(msgspec.Struct, frozen=True):
    """The next batch: answers first, then runs, which may go side by side."""

    answers: tuple[Answer, ...] = ()
    runs: tuple[Run, ...] = ()


class Finish(msgspec.Struct, frozen=True):
    """Record this ending."""

    outcome: Outcome


Decision = Ask | Calls | AskPerson | Finish
