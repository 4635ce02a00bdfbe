"""The catalogue: the tools of one run, gathered from their modules, as the model sees them."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from actors.closest import guess
from actors.notes import NOTE_TOOLS
from actors.spec import ToolsSpec
from actors.tools import Tool
from actors.user_module import load_module

SHIPPED = "actors.file_tools"
"""The module of the tools that a run with a workspace has besides its own."""
SHIPPED_NOTES = "actors.note_tools"
"""The module of the tools that a run has if it names them."""


Part = Literal["tool", "module", "child"]


class CatalogueError(Exception):
    """The tools that a run names cannot be gathered.

    The operator must act, on the name of a tool, a module, or a tool with a run behind it, as
    ``part`` says. Unlike a ToolError, no model reads this: the run has not started.
    """

    def __init__(self, words: str, part: Part = "tool", name: str = "") -> None:
        super().__init__(words)
        self.part: Part = part
        self.name = name


class Catalogue:
    """The tools of a run by name, in the order the model sees them.

    Raises CatalogueError when two have the same name.
    """

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        for one in tools:
            _add(self._tools, one, "tool", one.name)
        self._digests = {one.name: _digest(one) for one in self}

    @classmethod
    def load(cls, spec: ToolsSpec, further: Iterable[Tool] = ()) -> "Catalogue":
        """Import the modules of ``spec`` and keep the tools it names, in its order.

        The file tools come with a workspace, those for notes by being named; ``further`` are tools
        that no module holds.

        Raises:
            ModuleError: a module is missing or fails.
            CatalogueError: a name is unknown or given twice.
        """
        shipped = (SHIPPED,) if spec.workspace is not None else ()
        notes = (SHIPPED_NOTES,) if NOTE_TOOLS.intersection(spec.names) else ()
        available: dict[str, Tool] = {}
        for module in (*shipped, *notes, *spec.modules):
            for one in tools_of(module, spec.search_path):
                _add(available, one, "module", module)
        for one in further:
            _add(available, one, "child", one.name)
        missing = [name for name in spec.names if name not in available]
        if missing:
            hint = "" if shipped else " (the file tools need a workspace)"
            raise CatalogueError(
                f"there is no tool {', '.join(missing)}; {guess(missing[0], available)}"
                f"available: {', '.join(sorted(available)) or 'none'}{hint}",
                name=missing[0],
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


def tools_of(module: str, search_path: Sequence[str] = ()) -> list[Tool]:
    """The tools that a module holds, its own and those it imports; raises ModuleError."""
    values = vars(load_module(module, search_path)).values()
    return [value for value in values if isinstance(value, Tool)]


def _described(one: Tool) -> dict[str, Any]:
    function = {"name": one.name, "description": one.description, "parameters": one.schema}
    return {"type": "function", "function": function}


def _digest(one: Tool) -> str:
    return hashlib.blake2b(msgspec.json.encode(_described(one)), digest_size=16).hexdigest()


def _add(tools: dict[str, Tool], one: Tool, part: Part, name: str) -> None:
    """Add a tool; the same object again, imported by another module, is no second one."""
    other = tools.setdefault(one.name, one)
    if other is not one:
        raise CatalogueError(
            f"two tools are named {one.name}: {_origin(other)} and {_origin(one)}; rename one",
            part,
            name,
        )


def _origin(one: Tool) -> str:
    if one.agent:
        return f"[tools.{one.name}] with the agent {one.agent}"
    return f"one in {one.function.__module__}"
