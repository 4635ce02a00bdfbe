"""What types cannot say about a configuration: names that must exist, keys that need each other."""

import re
from urllib.parse import urlsplit

from actors.notes import NOTE_TOOLS
from actors.testing.faults import check_faults
from supervisor.config_errors import Origin, nearest
from supervisor.config_sections import Provider, ToolSource
from supervisor.config_tree import Config, key_names, model_name, provider_at, provider_key

FILE_TOOLS = frozenset({"list_files", "read_file", "delete_file", "scan_archive"})
"""The shipped tools that work on the folder of ``[tools.files]``."""
SHIPPED_TOOLS = FILE_TOOLS | NOTE_TOOLS
_NOT_YET = "is not supported in this version"


def check(config: Config, origin: Origin) -> None:
    """Raise ConfigError for the first thing that would keep an agent from running."""
    if config.run.agent not in config.agents:
        hint = nearest(config.run.agent, config.agents)
        raise origin.error("run.agent", f"there is no [agents.{config.run.agent}]; {hint}")
    for name, source in config.tools.items():
        _check_source(config, name, source, origin)
    for name in config.agents:
        _check_model(config, name, origin)
        _check_limits(config, name, origin)
        _check_tools(config, name, origin)
    _check_cycle(config, origin)
    for name in config.agents_in_use():
        _check_supported(config, name, origin)


def check_base_url(url: str, key: str, origin: Origin) -> str:
    """The address without a slash at its end; raises ConfigError, which never quotes it."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
        parts = urlsplit("")
    if not usable or not re.fullmatch(r"[!-~]+", url):
        raise origin.error(key, "expected an address like http://127.0.0.1:8080/v1; correct it")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise origin.error(
            key,
            "an address takes no password, ? or #, as it is stored and shown; take that out, and "
            "name the variable that holds the key with api_key_env",
        )
    return url.rstrip("/")


def check_provider(provider: Provider, key: str, origin: Origin) -> None:
    """Raise ConfigError for a fault that cannot be."""
    try:
        check_faults(provider.faults)
    except ValueError as error:
        raise origin.error(f"{key}.faults", f"{error}; correct it") from None


def _check_source(config: Config, name: str, source: ToolSource, origin: Origin) -> None:
    key = f"tools.{name}"
    given = [one for one in ("root", "module", "agent") if getattr(source, one) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        raise origin.error(key, f"expected exactly one of root, module, agent, found {found}")
    if (source.root is not None) != (name == "files"):
        raise origin.error(key, "root belongs in [tools.files], and nothing else does; move it")
    for other in list(config.tools)[: list(config.tools).index(name)]:
        if source.module is not None and config.tools[other].module == source.module:
            words = f"{source.module} is the module of [tools.{other}] already; keep one of the two"
            raise origin.error(f"{key}.module", words)
    for index, variable in enumerate(source.environment):
        if variable in key_names(config):
            words = f"{variable} holds a provider's key, which no tool may see; take it out"
            raise origin.error(f"{key}.environment[{index}]", words)
    if source.agent is not None and name in SHIPPED_TOOLS:
        raise origin.error(key, f"{name} is the name of a shipped tool; choose another")
    if source.agent is not None and source.agent not in config.agents:
        hint = nearest(source.agent, config.agents)
        raise origin.error(f"{key}.agent", f"there is no [agents.{source.agent}]; {hint}")


def _check_model(config: Config, name: str, origin: Origin) -> None:
    key = provider_key(config, name, origin)
    provider = provider_at(config, key)
    model_name(config, name, origin)
    if provider.kind == "openai" and provider.base_url is None:
        raise origin.error(
            f"{key}.base_url",
            "is missing; give the server's address here, or in the variable LLM_BASE_URL",
        )


def _check_limits(config: Config, name: str, origin: Origin) -> None:
    limits = config.agents[name].limits
    if limits.max_budget_usd != "none" and config.pricing is None:
        raise origin.error(
            f"agents.{name}.limits.max_budget_usd",
            "no [pricing] for a run with max_budget_usd, so that it could never be reached; add "
            "[pricing] with input and output in USD per million tokens, or leave the budget out",
        )
    for tool, child in config.child_agents(name).items():
        below = config.agents[child].limits.max_budget_usd
        if below != "none" and limits.max_budget_usd != "none" and below > limits.max_budget_usd:
            raise origin.error(
                f"agents.{child}.limits.max_budget_usd",
                f"${below:g} is more than the ${limits.max_budget_usd:g} of {name}, which starts "
                f"it as {tool}; lower the one or raise the other",
            )
    _check_window(config, name, origin)
    tools = config.agents[name].tools
    if limits.stop_after_tool != "none" and limits.stop_after_tool not in tools:
        raise origin.error(
            f"agents.{name}.limits.stop_after_tool",
            f"this agent has no tool of that name; {nearest(limits.stop_after_tool, tools)}",
        )


def _check_window(config: Config, name: str, origin: Origin) -> None:
    budget = config.agents[name].context.budget_tokens
    provider = provider_at(config, provider_key(config, name, origin))
    if budget != "none" and 0 < provider.window_tokens < budget:
        raise origin.error(
            f"agents.{name}.context.budget_tokens",
            f"{budget} is more than the provider's window_tokens of {provider.window_tokens}; "
            "lower the one or raise the other",
        )


def _check_tools(config: Config, name: str, origin: Origin) -> None:
    tools = config.agents[name].tools
    modules = any(source.module is not None for source in config.tools.values())
    for index, tool in enumerate(tools):
        key = f"agents.{name}.tools[{index}]"
        if tool in tools[:index]:
            raise origin.error(key, f"{tool} is named twice; remove one")
        if tool in NOTE_TOOLS:
            continue
        if tool in FILE_TOOLS and not modules:
            if "files" not in config.tools:
                raise origin.error(
                    key, f"{tool} needs a folder to work on; name it as root in [tools.files]"
                )
        elif not (modules or _is_child(config, tool) or _is_mcp(config, tool)):
            children = {one for one, source in config.tools.items() if source.agent is not None}
            hint = nearest(tool, SHIPPED_TOOLS | children)
            raise origin.error(
                key,
                f"there is no tool {tool} ({hint}); name one that there is, or add a [tools.NAME] "
                "with the module of your own",
            )


def _check_cycle(config: Config, origin: Origin) -> None:
    """Agents that can start each other for ever need a depth that somebody has thought about."""
    if config.agents[config.run.agent].limits.max_depth is not None:
        return
    for name in config.agents_in_use():
        below = list(config.child_agents(name).values())
        for one in below:
            below += [a for a in config.child_agents(one).values() if a not in below]
        if name in below:
            raise origin.error(
                f"agents.{config.run.agent}.limits.max_depth",
                f"is missing, and {name} can start itself again through its tools; say how many "
                "levels of children there may be",
            )


def _check_supported(config: Config, name: str, origin: Origin) -> None:
    """Refuse what this version reads but cannot do, rather than run without it."""
    for index, tool in enumerate(config.agents[name].tools):
        key = f"agents.{name}.tools[{index}]"
        if _is_mcp(config, tool):
            raise origin.error(
                key, f"{tool} is a tool of an MCP server, which {_NOT_YET}; leave it out"
            )


def _is_child(config: Config, tool: str) -> bool:
    return tool in config.tools and config.tools[tool].agent is not None


def _is_mcp(config: Config, tool: str) -> bool:
    """An MCP server's tools may be named by the server, or as ``SERVER__TOOL``."""
    return tool.split("__")[0] in config.mcp
