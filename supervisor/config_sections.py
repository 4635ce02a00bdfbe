"""The tables of a configuration file: their keys, types, bounds and defaults, as msgspec Structs.

The string under a key says what it means; ``description`` in a ``Meta`` is what an error message
calls the expected value. Numbers all have an upper bound, which also refuses nan and inf.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from actors.estimate import CounterName
from actors.limit_name import LimitName
from actors.request import EmptyContent
from actors.state import RESTARTS_KEPT
from actors.testing.faults import Fault
from actors.window import PolicyName

NoLimit = Literal["none"]
Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
CountOrZero = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Seconds = Annotated[float, Meta(gt=0, le=31_536_000)]
SecondsOrZero = Annotated[float, Meta(ge=0, le=31_536_000)]
Usd = Annotated[float, Meta(gt=0, le=1_000_000)]
Price = Annotated[float, Meta(ge=0, le=1_000_000)]
Text = Annotated[str, Meta(min_length=1, description="a text that is not empty")]
Name = Annotated[
    str,
    Meta(pattern=r"\A[A-Za-z0-9_-]{1,64}\Z", description="a name of letters, digits, - and _"),
]
Module = Annotated[
    str,
    Meta(
        pattern=r"\A[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z",
        description="the name of a Python module, like my_package.my_tools",
    ),
]
Predicate = Annotated[
    str,
    Meta(
        pattern=r"\A[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z",
        description='a function written as "module:function"',
    ),
]
# Upper case alone, because keys themselves often look like a lower-case name, and somebody who
# writes the key where its name belongs must be told so before it is stored anywhere.
EnvironmentName = Annotated[
    str,
    Meta(
        pattern=r"\A[A-Z_][A-Z0-9_]{0,127}\Z",
        description="the name of an environment variable in capitals, like OPENAI_API_KEY",
    ),
]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all tables share: they are frozen, and a key they do not know is an error."""


class Run(Section, frozen=True, kw_only=True):
    """``[run]``: what ``exeunt run`` starts."""

    agent: Name
    """Which ``[agents.*]`` is the root."""
    task: Text | None = None
    """What the agent is asked; ``--task`` goes before it."""


class Provider(Section, frozen=True, kw_only=True):
    """``[provider]`` or ``[providers.NAME]``: where the model is. Keys of the other kind rest."""

    kind: Literal["scripted", "openai"]
    """``scripted`` is started by itself; ``openai`` is any server of that shape."""
    script: Text | None = None
    """scripted: the name of the script that stands for the model."""
    scripts: tuple[Module, ...] = ()
    """scripted: modules beside the config that hold further scripts."""
    latency_ms: CountOrZero = 0
    window_tokens: CountOrZero = 0
    """The model's window, which no budget may exceed; 0 is not known.

    scripted: a request that is larger is refused.
    """
    faults: tuple[Fault, ...] = ()
    """scripted: what goes wrong at which turn; the kinds are those of ``actors.testing``."""
    base_url: Text | None = None
    """openai: LLM_BASE_URL, then OPENAI_BASE_URL, when not given."""
    api_key_env: EnvironmentName | None = None
    """openai: the variable that holds the key; OPENAI_API_KEY, if it is set, when not given."""
    model: Text | None = None
    stream: bool = True
    max_retries: Annotated[int, Meta(ge=0, le=100)] = 5
    timeout_s: Seconds = 120.0
    max_output_tokens: Count = 4096
    max_output_tokens_name: LimitName = "max_tokens"
    """openai: what the server calls it; a run whose server refuses the name tries the other."""
    empty_content: EmptyContent = "keep"
    """openai: the content of a message of calls alone: as the server sent it, null, "" or none."""
    merge_user_messages: bool = False
    """openai: send two user messages in a row as one, for chat templates that refuse them."""
    retry_after_max_s: SecondsOrZero = 60.0
    """The longest wait that a server's Retry-After can ask of us."""


class Pricing(Section, frozen=True, kw_only=True):
    """``[pricing]``: USD per million tokens."""

    input: Price
    output: Price
    cached_input: Price | None = None
    """The price of ``input`` when not given."""


class AgentLimits(Section, frozen=True, kw_only=True):
    """``[agents.X.limits]``: when to stop; ``"none"`` is no such limit."""

    max_turns: Count | NoLimit = 100
    max_budget_usd: Usd | NoLimit = "none"
    """Of the agent and all below it."""
    strict_budget: bool = True
    """False: check before the call alone, and overshoot by at most one turn."""
    deadline_s: Seconds | NoLimit = "none"
    max_tokens: Count | NoLimit = "none"
    stop_after_tool: Name | NoLimit = "none"
    stop_when: tuple[Predicate, ...] = ()
    idle_s: Seconds | NoLimit = "none"
    """Stop a run of which, and of whose children, nothing was heard for so long."""
    max_depth: Annotated[int, Meta(ge=1, le=100)] | None = None
    """Levels of children below the root, whose limit holds for its tree; 2 when not given."""
    max_children: CountOrZero = 64
    """Children that one run may start in its life."""
    children_at_once: Annotated[int, Meta(ge=1, le=1000)] = 16


class AgentContext(Section, frozen=True, kw_only=True):
    """``[agents.X.context]``: how requests are fitted to the model's window."""

    budget_tokens: Count | NoLimit = "none"
    """Tokens that a request may have, the reply not counted; leave some room to the window."""
    policy: PolicyName = "band"
    """``band`` clears rarely and far, for the lowest bill; ``reference`` by the rule; ``off``."""
    counter: CounterName = "auto"
    """How tokens are counted: by the model, or always ``o200k``, ``bytes`` or ``reference``."""
    cold_after_s: Seconds = 300.0
    """After so long a pause the provider's cache is taken for lost, and clearing costs nothing."""


class AgentErrors(Section, frozen=True, kw_only=True):
    """``[agents.X.errors]``: how tool errors reach the model."""

    tool_errors: Literal["tell", "hide", "fatal"] = "tell"
    repeat_limit: Count = 3
    on_in_doubt: Literal["words", "stop"] | None = None
    """What becomes of a write that may have happened; else, stop for tools under approval."""


class AgentResources(Section, frozen=True, kw_only=True):
    """``[agents.X.resources]``: limits of each process, the actor's and its tools'."""

    memory_mb: Annotated[int, Meta(ge=256, le=16_777_216)] | None = None
    """Address space, in units of 2**20 bytes."""
    cpu_s: Count | None = None
    open_files: Annotated[int, Meta(ge=64, le=1_048_576)] | None = None
    file_size_mb: Annotated[int, Meta(ge=64, le=16_777_216)] | None = None
    """The run's journal is such a file too."""


class AgentSandbox(Section, frozen=True, kw_only=True):
    """``[agents.X.sandbox]``: what the agent's processes can reach."""

    landlock: bool
    """Given in any case, so that nobody takes the table alone for a sandbox."""
    network: bool = False
    """Whether TCP may go elsewhere than to the provider's port."""
    read: tuple[Text, ...] | None = None
    """What may be read besides the workspace and the system's folders; everything when absent."""


class Agent(Section, frozen=True, kw_only=True):
    """``[agents.X]``: one kind of run."""

    provider: Name | None = None
    """Which ``[providers.*]``; ``[provider]``, or the only one, when not given."""
    model: Text | None = None
    system: str | None = None
    system_file: Text | None = None
    """A file in the config's folder; once loaded, its text stands in ``system``."""
    tools: tuple[Name, ...] = ()
    limits: AgentLimits = AgentLimits()
    context: AgentContext = AgentContext()
    errors: AgentErrors = AgentErrors()
    resources: AgentResources = AgentResources()
    sandbox: AgentSandbox | None = None


class ToolSource(Section, frozen=True, kw_only=True):
    """``[tools.NAME]``: one of ``root`` (in ``[tools.files]``), ``module`` and ``agent``."""

    root: Text | None = None
    """The folder that the file tools may touch."""
    module: Module | None = None
    """A module with the user's own tools."""
    agent: Name | None = None
    """The tool NAME is a run of this agent."""
    description: Text | None = None
    environment: tuple[EnvironmentName, ...] = ()
    """Further environment variables that the tools' subprocesses may see."""


class McpServer(Section, frozen=True, kw_only=True):
    """``[mcp.NAME]``: an MCP server whose tools agents may use."""

    command: Annotated[tuple[Text, ...], Meta(min_length=1)]


class Supervision(Section, frozen=True, kw_only=True):
    """``[supervision]``: crashes and stops."""

    max_restarts: Annotated[int, Meta(ge=0, le=RESTARTS_KEPT - 1)] = 3
    """Per actor, within ``restart_period_s``; a run remembers one more than the most."""
    restart_period_s: Seconds = 60.0
    max_runs: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    """Runs that one tree may have in its life, its root included."""
    stop_grace_s: Annotated[float, Meta(gt=0, le=3600)] = 2.0
    """How long an actor may take to end in order before it is killed."""


class State(Section, frozen=True, kw_only=True):
    """``[state]``: what the state directory withstands, and how long it keeps."""

    durability: Literal["power", "process"] = "power"
    """Whether what is saved survives a power cut, or the death of a process alone."""
    keep_days: Count | NoLimit = "none"


class Document(Section, frozen=True, kw_only=True):
    """A whole configuration file."""

    run: Run
    provider: Provider | None = None
    providers: dict[Name, Provider] = msgspec.field(default_factory=dict[str, Provider])
    pricing: Pricing | None = None
    agents: dict[Name, Agent]
    tools: dict[Name, ToolSource] = msgspec.field(default_factory=dict[str, ToolSource])
    mcp: dict[Name, McpServer] = msgspec.field(default_factory=dict[str, McpServer])
    supervision: Supervision = Supervision()
    state: State = State()
