"""A configuration that was read and checked, and the run specifications that follow from it."""

import hashlib
from collections.abc import Iterable
from typing import Literal, TypeVar

import msgspec

from actors.money import Prices, nusd
from actors.spec import (
    AgentTool,
    ContextSpec,
    ErrorPolicy,
    Limits,
    ProviderSpec,
    Resources,
    RunSpec,
    Sandbox,
    ToolsSpec,
)
from supervisor.config_errors import ConfigError, Origin, nearest
from supervisor.config_sections import (
    Agent,
    AgentLimits,
    AgentResources,
    AgentSandbox,
    Document,
    Provider,
)
from supervisor.terminal import visible

T = TypeVar("T", int, float, str)

DEFAULT_KEY_ENV = "OPENAI_API_KEY"
DEFAULT_SYSTEM = (
    "You are a research agent: find out with the tools you have, then answer the task in plain "
    "text. Say so when the tools did not tell you what was asked."
)
DEPTH = 2
_PICO_PER_MILLION = 1_000_000


class Config(Document, frozen=True, kw_only=True):
    """A configuration with absolute paths and no secret, so that a run can be resumed from it.

    System texts are read in, the workspace is absolute and base URLs from the environment stand in
    the providers: nothing of the caller's folder or environment is needed but the key.
    """

    path: str
    """The absolute path of the configuration file."""
    folder: str
    """Its folder, where the user's own modules are looked for."""

    def to_json(self) -> bytes:
        """The configuration as it is stored in a run directory."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes) -> "Config":
        """What ``to_json`` wrote; raises ConfigError when it is damaged or of another version."""
        try:
            return msgspec.json.decode(data, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"the stored configuration cannot be read ({visible(str(error))}): it is "
                "damaged, or of another version; start the run anew from its configuration file"
            ) from None

    def digest(self) -> str:
        """16 hexadecimal digits that differ when the configurations do."""
        return hashlib.blake2b(self.to_json(), digest_size=8).hexdigest()

    def provider_of(self, agent: str | None = None) -> Provider:
        """The provider of an agent, the root by default; raises ConfigError when there is none."""
        key = provider_key(self, agent or self.run.agent, Origin(self.path))
        return provider_at(self, key)

    def agents_in_use(self) -> list[str]:
        """The root and every agent that can run below it, the root first."""
        found = [self.run.agent]
        for name in found:
            found += [a for a in self.child_agents(name).values() if a not in found]
        return found

    def child_agents(self, agent: str) -> dict[str, str]:
        """The tools of an agent that have a run behind them, and whose run."""
        return {
            name: self.tools[name].agent or ""
            for name in self.agents[agent].tools
            if name in self.tools and self.tools[name].agent is not None
        }

    def agent_tools(self, names: Iterable[str] | None = None) -> tuple[AgentTool, ...]:
        """The tools of these names that have an agent behind them; of all names by default."""
        return tuple(
            AgentTool(
                name=name,
                agent=source.agent,
                description=source.description
                or f"Hand a question to the agent {source.agent}, which works on it by itself.",
                max_budget_nusd=_limits(self.agents[source.agent].limits).max_budget_nusd,
            )
            for name in (self.tools if names is None else names)
            if (source := self.tools.get(name)) is not None and source.agent is not None
        )

    def run_spec(self, agent: str | None = None, task: str | None = None) -> RunSpec:
        """What a run of an agent is asked to do, the root by default; raises ConfigError."""
        name = self.run.agent if agent is None else agent
        task = self.run.task if task is None else task
        if task is None:
            raise self.error("run.task", "is missing; write the task there, or give it with --task")
        if name not in self.agents:
            raise self.error("agents", f"there is no [agents.{name}]; {nearest(name, self.agents)}")
        section = self.agents[name]
        return RunSpec(
            agent=name,
            task=task,
            system=DEFAULT_SYSTEM if section.system is None else section.system,
            provider=self._provider_spec(name),
            prices=self._prices(),
            tools=self._tools_spec(section),
            limits=_limits(section.limits),
            context=ContextSpec(
                budget_tokens=_limit(section.context.budget_tokens),
                policy=section.context.policy,
                counter=section.context.counter,
                cold_after_seconds=section.context.cold_after_s,
            ),
            errors=ErrorPolicy(
                tool_errors=section.errors.tool_errors, repeat_limit=section.errors.repeat_limit
            ),
            resources=_resources(section.resources),
            sandbox=_sandbox(section.sandbox),
            durability=self.state.durability,
            max_restarts=self.supervision.max_restarts,
            restart_period_seconds=self.supervision.restart_period_s,
        )

    def error(self, key: str, words: str) -> ConfigError:
        """An error at a key path of this configuration's file."""
        return Origin(self.path).error(key, words)

    def _provider_spec(self, agent: str) -> ProviderSpec:
        provider = self.provider_of(agent)
        served = provider.kind == "openai"
        return ProviderSpec(
            model=model_name(self, agent, Origin(self.path)),
            base_url=provider.base_url if served else None,
            api_key_env=(provider.api_key_env or DEFAULT_KEY_ENV) if served else None,
            stream=provider.stream,
            max_retries=provider.max_retries,
            timeout_seconds=provider.timeout_s,
            max_output_tokens=provider.max_output_tokens,
            max_output_tokens_name=provider.max_output_tokens_name,
            empty_content=provider.empty_content,
            merge_user_messages=provider.merge_user_messages,
            retry_after_max_seconds=provider.retry_after_max_s,
        )

    def _prices(self) -> Prices | None:
        if self.pricing is None:
            return None
        cached = self.pricing.cached_input
        return Prices(
            input=round(self.pricing.input * _PICO_PER_MILLION),
            cached_input=round(
                (self.pricing.input if cached is None else cached) * _PICO_PER_MILLION
            ),
            output=round(self.pricing.output * _PICO_PER_MILLION),
        )

    def _tools_spec(self, agent: Agent) -> ToolsSpec:
        sources = self.tools.values()
        variables = [one for source in sources for one in source.environment]
        return ToolsSpec(
            names=agent.tools,
            agents=self.agent_tools(agent.tools),
            modules=tuple(source.module for source in sources if source.module is not None),
            search_path=(self.folder,),
            workspace=next((source.root for source in sources if source.root is not None), None),
            environment=tuple(dict.fromkeys(variables)),
            on_in_doubt=agent.errors.on_in_doubt,
        )


def key_names(config: Config) -> set[str]:
    """The environment variables that may hold a key, which no process but this one shall see."""
    providers = [one for one in (config.provider, *config.providers.values()) if one is not None]
    return {DEFAULT_KEY_ENV, *(one.api_key_env for one in providers if one.api_key_env is not None)}


def provider_key(config: Config, agent: str, origin: Origin) -> str:
    """Where an agent's provider stands: ``provider`` or ``providers.NAME``; raises ConfigError."""
    key = f"agents.{agent}.provider"
    wanted = config.agents[agent].provider
    if wanted is not None:
        if wanted not in config.providers:
            hint = nearest(wanted, config.providers)
            raise origin.error(key, f"there is no [providers.{wanted}]; {hint}")
        return f"providers.{wanted}"
    if config.provider is not None:
        return "provider"
    if len(config.providers) == 1:
        return f"providers.{next(iter(config.providers))}"
    if config.providers:
        raise origin.error(key, f"is missing; name one of {', '.join(sorted(config.providers))}")
    raise origin.error("provider", 'is missing; add [provider] with kind = "scripted" or "openai"')


def provider_at(config: Config, key: str) -> Provider:
    """The provider at a key that ``provider_key`` gave."""
    if key == "provider":
        assert config.provider is not None
        return config.provider
    return config.providers[key.removeprefix("providers.")]


def model_name(config: Config, agent: str, origin: Origin) -> str:
    """An agent's model, or the script in its place; raises ConfigError when neither is named."""
    key = provider_key(config, agent, origin)
    provider = provider_at(config, key)
    what = "script" if provider.kind == "scripted" else "model"
    model = config.agents[agent].model or (
        provider.script if provider.kind == "scripted" else provider.model
    )
    if model is None:
        raise origin.error(f"{key}.{what}", f"is missing; name the {what} that agent {agent} asks")
    return model


def _limits(limits: AgentLimits) -> Limits:
    budget = _limit(limits.max_budget_usd)
    return Limits(
        max_turns=_limit(limits.max_turns),
        max_budget_nusd=None if budget is None else nusd(budget),
        strict_budget=limits.strict_budget,
        deadline_seconds=_limit(limits.deadline_s),
        max_tokens=_limit(limits.max_tokens),
        idle_seconds=_limit(limits.idle_s),
        max_depth=limits.max_depth or DEPTH,
        max_children=limits.max_children,
        children_at_once=limits.children_at_once,
        stop_after_tool=_limit(limits.stop_after_tool),
        stop_when=limits.stop_when,
    )


def _resources(resources: AgentResources) -> Resources:
    return Resources(
        memory_mib=resources.memory_mb,
        cpu_seconds=resources.cpu_s,
        open_files=resources.open_files,
        file_size_mib=resources.file_size_mb,
    )


def _sandbox(sandbox: AgentSandbox | None) -> Sandbox | None:
    if sandbox is None or not sandbox.landlock:
        return None
    return Sandbox(network=sandbox.network, read=sandbox.read)


def _limit(value: T | Literal["none"]) -> T | None:
    return None if value == "none" else value
