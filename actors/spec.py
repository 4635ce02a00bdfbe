"""What one run is asked to do: plain data that the supervisor writes and an actor reads."""

import msgspec

from actors.estimate import CounterName
from actors.limit_name import LimitName
from actors.money import Prices
from actors.request import EmptyContent
from actors.window import PolicyName


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """When to stop; None means no such limit. The budget is in 1e-9 USD and holds for the tree."""

    max_turns: int | None = 100
    max_budget_nusd: int | None = None
    strict_budget: bool = True
    deadline_seconds: float | None = None
    max_tokens: int | None = None
    stop_after_tool: str | None = None
    idle_seconds: float | None = None
    """A run of which nothing is heard for so long is stopped."""
    max_depth: int = 2
    """Levels of children below the root; the root's limit holds for the whole tree."""
    max_children: int = 64
    """Children that one run may start in its life."""
    children_at_once: int = 16
    stop_when: tuple[str, ...] = ()
    """Predicates as ``module:function``, called with the state; a text returned is the reason."""


class LimitChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """Limits that a person raised at a resume; None leaves the recorded limit as it is."""

    max_turns: int | None = None
    max_budget_nusd: int | None = None
    deadline_seconds: float | None = None


class ErrorPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How tool errors reach the model, and how many identical failures end the run."""

    tool_errors: str = "tell"
    """``tell`` (the message), ``hide`` ("the tool failed") or ``fatal`` (the run fails)."""
    repeat_limit: int = 3


class ContextSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How requests are fitted to the model's window."""

    budget_tokens: int | None = None
    """Tokens that a request may have, the reply not counted; None for no limit."""
    policy: PolicyName = "band"
    counter: CounterName = "auto"
    """How tokens are counted: ``auto`` (by the model), ``o200k``, ``bytes`` or ``reference``."""
    cold_after_seconds: float = 300.0


class ProviderSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The model behind a run; the key is only named here and handed over apart."""

    model: str
    base_url: str | None = None
    """None for the scripted provider, whose address is new at every start."""
    api_key_env: str | None = None
    stream: bool = True
    max_retries: int = 5
    timeout_seconds: float = 120.0
    max_output_tokens: int = 4096
    max_output_tokens_name: LimitName = "max_tokens"
    empty_content: EmptyContent = "keep"
    merge_user_messages: bool = False
    retry_after_max_seconds: float = 60.0


class AgentTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool with a run behind it: a call starts a child of that agent."""

    name: str
    agent: str
    description: str
    max_budget_nusd: int | None = None
    """What the agent may spend by its own limits."""


class ToolsSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Which tools a run has, in the order the model sees them, and where they come from."""

    names: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    """Importable module names that hold ``@tool`` functions."""
    agents: tuple[AgentTool, ...] = ()
    search_path: tuple[str, ...] = ()
    """Folders put on ``sys.path`` before the modules are imported (the config's own folder)."""
    workspace: str | None = None
    """Absolute path of the folder that the file tools may touch."""
    environment: tuple[str, ...] = ()
    """Names of further environment variables that tools' subprocesses may see."""
    on_in_doubt: str | None = None
    """``words`` or ``stop`` for every plain write; None: stop for tools that need approval."""


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """What each process of a run may use, the actor and its tools' programs; None: no limit."""

    memory_mib: int | None = None
    """Address space."""
    cpu_seconds: int | None = None
    open_files: int | None = None
    file_size_mib: int | None = None


class Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """What a run's processes can reach; writing is for the workspace alone."""

    network: bool = False
    """Whether TCP may go elsewhere than to the provider's port."""
    read: tuple[str, ...] | None = None
    """Absolute paths that may be read besides the workspace and the system's; None: all."""


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides what a run does, without a secret in it."""

    agent: str
    task: str
    system: str
    provider: ProviderSpec
    prices: Prices | None = None
    tools: ToolsSpec = ToolsSpec()
    limits: Limits = Limits()
    context: ContextSpec = ContextSpec()
    errors: ErrorPolicy = ErrorPolicy()
    resources: Resources = Resources()
    sandbox: Sandbox | None = None
    durability: str = "power"
    max_restarts: int = 3
    restart_period_seconds: float = 60.0
