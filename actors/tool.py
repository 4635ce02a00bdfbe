"""Tools: typed functions that a model may call, and the catalogue of those that a run has."""

import contextlib
import functools
import hashlib
import importlib
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, overload

import msgspec
import trio

from actors.messages import Nature
from actors.spec import ToolsSpec
from actors.text import clean, excerpt
from actors.tool_arguments import Arguments as Arguments
from actors.tool_arguments import Parameters
from actors.tool_context import ToolContext as ToolContext
from actors.tool_errors import ArgumentError as ArgumentError
from actors.tool_errors import PermanentError as PermanentError
from actors.tool_errors import ToolError as ToolError
from actors.tool_result import result_text as result_text

SHIPPED = "actors.file_tools"
"""The module of the tools that a run with a workspace has besides its own."""

ProbeAnswer = Literal["done", "not_done", "unknown"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class CatalogueError(Exception):
    """The tools that a run names cannot be gathered.

    The operator must act, on the configuration or the module it names. Unlike a ToolError, no
    model reads this: the run has not started.
    """


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
        return Tool(
            name=name or function.__name__,
            description=_first_paragraph(function) if description is None else clean(description),
            nature=_nature(label, read_only=read_only, keyed=keyed, probed=probe is not None),
            function=function,
            parameters=Parameters(function),
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


def _nature(label: str, *, read_only: bool, keyed: bool, probed: bool) -> Nature:
    """What may be done with a call that was cut off; at most one flag may say so."""
    flags = {Nature.READ_ONLY: read_only, Nature.KEYED: keyed, Nature.PROBED: probed}
    given = [nature for nature, flag in flags.items() if flag]
    if len(given) > 1:
        raise TypeError(f"{label}: give only one of read_only, keyed and probe")
    return given[0] if given else Nature.WRITE


def _first_paragraph(function: Callable[..., Any]) -> str:
    return " ".join(clean(inspect.getdoc(function) or "").split("\n\n")[0].split())


class Catalogue:
    """The tools of a run by name, in the order the model sees them.

    Raises CatalogueError when two have the same name.
    """

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        for one in tools:
            _add(self._tools, one)
        self._digests = {one.name: _digest(one) for one in self}

    @classmethod
    def load(cls, spec: ToolsSpec, further: Iterable[Tool] = ()) -> "Catalogue":
        """Import the modules of ``spec`` and keep the tools it names, in its order.

        Modules are looked for in ``search_path`` last, so that no installed one is hidden. The
        file tools come with a workspace; ``further`` are tools that no module holds.

        Raises:
            CatalogueError: a module is missing or fails, a name is unknown or given twice.
        """
        sys.path += [folder for folder in spec.search_path if folder not in sys.path]
        shipped = (SHIPPED,) if spec.workspace is not None else ()
        available: dict[str, Tool] = {}
        for module in (*shipped, *spec.modules):
            for value in vars(_import(module, spec)).values():
                if isinstance(value, Tool):
                    _add(available, value)
        for one in further:
            _add(available, one)
        missing = [name for name in spec.names if name not in available]
        if missing:
            hint = "" if shipped else " (the file tools need a workspace)"
            raise CatalogueError(
                f"there is no tool {', '.join(missing)};"
                f" available: {', '.join(sorted(available)) or 'none'}{hint}"
            )
        if len(set(spec.names)) < len(spec.names):
            raise CatalogueError(f"a tool is named twice in: {', '.join(spec.names)}")
        return cls(available[name] for name in spec.names)

    @property
    def names(self) -> tuple[str, ...]:
        """The names in order, for a model that asked for another one."""
        return tuple(self._tools)

    def get(self, name: str) -> Tool | None:
        """The tool of that name, if the run has it."""
        return self._tools.get(name)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def tools_json(self) -> bytes:
        """The ``tools`` array of a chat completions request; the same bytes for the same tools."""
        return msgspec.json.encode([_described(one) for one in self])

    def digest(self, name: str) -> str:
        """A short hash of all that the model is told of a tool; another one means it changed.

        Raises KeyError for a name that is not in the catalogue.
        """
        return self._digests[name]


def _described(one: Tool) -> dict[str, Any]:
    function = {"name": one.name, "description": one.description, "parameters": one.schema}
    return {"type": "function", "function": function}


def _digest(one: Tool) -> str:
    return hashlib.blake2b(msgspec.json.encode(_described(one)), digest_size=16).hexdigest()


def _add(tools: dict[str, Tool], one: Tool) -> None:
    """Add a tool; the same object again, imported by another module, is no second one."""
    other = tools.setdefault(one.name, one)
    if other is not one:
        raise CatalogueError(
            f"two tools are named {one.name}: one in {other.function.__module__}"
            f" and one in {one.function.__module__}"
        )


def _import(module: str, spec: ToolsSpec) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            where = ", ".join(spec.search_path) or "the installed packages"
            raise CatalogueError(f"there is no module {module} in {where}") from error
        raise CatalogueError(f"the module {module} needs {error.name}, which is missing") from error
    except (Exception, SystemExit) as error:
        words = excerpt(f"{type(error).__name__}: {error}")
        raise CatalogueError(f"the module {module} cannot be imported: {words}") from error


class _Decorating(ModuleType):
    """This module as a decorator, for ``from actors import tool``.

    The import system binds a submodule to its name in the package, whatever the package bound
    there before; so once anybody has imported this module, it is what that line gives.
    """

    __call__ = staticmethod(tool)


sys.modules[__name__].__class__ = _Decorating
