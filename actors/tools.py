"""Tools: typed functions that a model may call."""

import contextlib
import functools
import inspect
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import trio

from actors.messages import Nature
from actors.text import clean
from actors.tool_arguments import Arguments, Parameters
from actors.tool_context import ToolContext

ProbeAnswer = Literal["done", "not_done", "unknown"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Tool:
    """One tool: what the model is told of it, and how it is called."""

    name: str
    description: str
    nature: Nature
    function: Callable[..., Any]
    parameters: Parameters
    needs_approval: bool = False
    timeout_seconds: float = 120.0
    plain: bool = False
    """It blocks: it is called in a thread, and only the end of the process can stop it."""
    probe: Callable[..., Any] | None = None
    agent: str = ""
    """The agent whose run stands behind it, for a tool of nature ``child``."""
    budget_nusd: int | None = None
    """What such a run may spend by its own limits."""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        return self.parameters.schema

    def parse(self, arguments: str) -> Arguments:
        """Check a model's arguments; raises ArgumentError in words, and nothing is called."""
        return self.parameters.parse(arguments)

    async def call(self, context: ToolContext, arguments: Arguments) -> object:
        """Call an async tool; whatever it raises is passed on."""
        assert not self.plain
        return await self.function(**self._keywords(context, arguments))

    def call_plain(self, context: ToolContext, arguments: Arguments) -> object:
        """Call a plain tool, in a thread that may block; whatever it raises is passed on."""
        assert self.plain
        return self.function(**self._keywords(context, arguments))

    async def ask_probe(self, arguments: Arguments, key: str) -> ProbeAnswer:
        """Ask whether a call cut off earlier has happened; a probe that fails does not know."""
        assert self.probe is not None
        keywords = {**arguments.values, "key": key}
        answer: object = None
        # Whatever a probe raises, the answer is only that nobody knows.
        with trio.move_on_after(self.timeout_seconds), contextlib.suppress(Exception):
            if inspect.iscoroutinefunction(self.probe):
                answer = await self.probe(**keywords)
            else:
                probe = functools.partial(self.probe, **keywords)
                answer = await trio.to_thread.run_sync(probe, abandon_on_cancel=True)
        if answer == "done":
            return "done"
        return "not_done" if answer == "not_done" else "unknown"

    def _keywords(self, context: ToolContext, arguments: Arguments) -> dict[str, Any]:
        name = self.parameters.context_name
        return arguments.values if name is None else {**arguments.values, name: context}


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    read_only: bool = False,
    needs_approval: bool = False,
    keyed: bool = False,
    timeout_s: float = 120.0,
    name: str | None = None,
    description: str | None = None,
    probe: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    read_only: bool = False,
    needs_approval: bool = False,
    keyed: bool = False,
    timeout_s: float = 120.0,
    name: str | None = None,
    description: str | None = None,
    probe: Callable[..., Any] | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a typed function, async or plain; use it bare or with flags.

    Args:
        function: the function; a parameter annotated ``ToolContext`` is given the context.
        read_only: it changes nothing, so it may run again and its result may be reused.
        needs_approval: a person must approve each call.
        keyed: it hands ``context.key`` to a system that does the same thing only once.
        timeout_s: seconds after which a call is stopped.
        name: what the model calls it, instead of the function's name.
        description: what the model reads, instead of the docstring's first paragraph.
        probe: a function, async or plain, of the arguments as keywords and ``key``, that looks
            whether a call has happened and answers ``done``, ``not_done`` or ``unknown``.

    Raises:
        TypeError: the signature has no schema, or the flags contradict each other.
    """

    def decorate(function: Callable[..., Any]) -> Tool:
        label = getattr(function, "__qualname__", repr(function))
        _check(label, function, name, timeout_s)
        nature = _nature(label, read_only=read_only, keyed=keyed, probed=probe is not None)
        parameters = Parameters(function)
        if probe is not None:
            _check_probe(label, probe, parameters.names)
        return Tool(
            name=name or function.__name__,
            description=_first_paragraph(function) if description is None else clean(description),
            nature=nature,
            function=function,
            parameters=parameters,
            needs_approval=needs_approval,
            timeout_seconds=timeout_s,
            plain=not inspect.iscoroutinefunction(function),
            probe=probe,
        )

    return decorate if function is None else decorate(function)


def _check(label: str, function: Callable[..., Any], name: str | None, timeout_s: float) -> None:
    """Refuse at decoration what could only fail later."""
    if not inspect.isfunction(function):
        raise TypeError(f"{label} is no function, so it cannot be a tool")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{label} yields; a tool returns its result")
    if not _NAME.fullmatch(name or function.__name__):
        raise TypeError(f"{label}: a tool's name has 1 to 64 letters, digits, - or _")
    if not (timeout_s > 0 and math.isfinite(timeout_s)):
        raise TypeError(f"{label}: timeout_s must be a positive number of seconds")


def _check_probe(label: str, probe: Callable[..., Any], names: Sequence[str]) -> None:
    """Refuse a probe that could only ever raise, which would be taken for not knowing."""
    wanted = [*names, "key"]
    if "key" in names:
        raise TypeError(f"{label}: a tool with a probe has no parameter key; name it otherwise")
    shown = getattr(probe, "__name__", repr(probe))
    needs = f"it must take ({', '.join(wanted)}), the tool's arguments and the key, by name"
    try:
        signature = inspect.signature(probe)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{label}: its probe {shown} is no function; {needs}") from error
    try:
        signature.bind(**dict.fromkeys(wanted))
    except TypeError as error:
        taken = ", ".join(signature.parameters)
        raise TypeError(f"{label}: its probe {shown} takes ({taken}); {needs}") from error


def _nature(label: str, *, read_only: bool, keyed: bool, probed: bool) -> Nature:
    """What may be done with a call that was cut off; at most one flag may say so."""
    flags = {Nature.READ_ONLY: read_only, Nature.KEYED: keyed, Nature.PROBED: probed}
    given = [nature for nature, flag in flags.items() if flag]
    if len(given) > 1:
        raise TypeError(f"{label}: give only one of read_only, keyed and probe")
    return given[0] if given else Nature.WRITE


def _first_paragraph(function: Callable[..., Any]) -> str:
    return " ".join(clean(inspect.getdoc(function) or "").split("\n\n")[0].split())
