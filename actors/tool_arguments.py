"""What a tool function takes, as a JSON schema, and the checking of a model's arguments against it.

The two come from the same msgspec Struct, made from the function's signature, so they agree.
"""

import inspect
import json
import math
import typing
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from actors.text import MAX_DEPTH, clean, clean_json, excerpt
from actors.tool_context import ToolContext
from actors.tool_errors import ArgumentError

MAX_ARGUMENT_BYTES = 1024 * 1024
_PREVIEW = 60


class Arguments(msgspec.Struct, frozen=True):
    """Arguments that fit a schema: ready to pass as keywords, and as the model meant them."""

    values: dict[str, Any]
    canonical: bytes
    """What the model wrote as JSON with sorted keys and no spaces; equal bytes, equal arguments."""


class Parameters:
    """The parameters of one tool function; made once, when it is decorated.

    Raises TypeError, naming function and parameter, for what no schema can say.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        name = function.__qualname__
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        self.context_name: str | None = None
        hints = _hints(function)
        for parameter in inspect.signature(function).parameters.values():
            kind = _annotation(name, parameter, hints)
            if kind is not ToolContext:
                fields.append(_field(name, parameter, kind))
            elif self.context_name is None:
                self.context_name = parameter.name
            else:
                raise TypeError(f"{name}: parameter {parameter.name} is a second context")
        self._struct = msgspec.defstruct(
            "Arguments", fields, kw_only=True, forbid_unknown_fields=True
        )
        self.schema = _schema(self._struct)

    @property
    def names(self) -> tuple[str, ...]:
        """What the arguments are called, without a context."""
        return self._struct.__struct_fields__

    def parse(self, arguments: str) -> Arguments:
        """Read a model's arguments; an empty text counts as none.

        Raises:
            ArgumentError: they are too large, no JSON object, or do not fit; in words.
        """
        value = _decode(arguments)
        try:
            checked = msgspec.convert(value, self._struct, str_keys=True)
        except msgspec.ValidationError as error:
            words = excerpt(str(error))
            raise ArgumentError(
                f"The arguments do not fit: {words}. The parameters are: {self._words()}."
            ) from error
        values = {field: getattr(checked, field) for field in self.names}
        return Arguments(values, msgspec.json.encode(value, order="sorted"))

    def _words(self) -> str:
        """The parameters for a message, the required ones marked."""
        required: list[str] = self.schema.get("required", [])
        marked = [
            f"{name} (required)" if name in required else name for name in self.schema["properties"]
        ]
        return ", ".join(marked) or "none"


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations with their texts evaluated."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise TypeError(
            f"an annotation of {function.__qualname__} cannot be evaluated: {error}"
        ) from error


def _annotation(name: str, parameter: inspect.Parameter, hints: dict[str, Any]) -> Any:
    """The type of a parameter that a model can fill by name."""
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise TypeError(f"{name}: parameter {parameter.name} is positional-only")
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise TypeError(f"{name}: parameter {parameter.name} takes any number, name each")
    if parameter.name not in hints:
        raise TypeError(f"{name}: parameter {parameter.name} has no annotation")
    return hints[parameter.name]


def _field(
    name: str, parameter: inspect.Parameter, kind: Any
) -> tuple[str, Any] | tuple[str, Any, Any]:
    """One field of the Struct, tried by itself so that an error can name the parameter."""
    field: tuple[str, Any] | tuple[str, Any, Any] = (parameter.name, kind)
    if parameter.default is not parameter.empty:
        field = (parameter.name, kind, parameter.default)
    try:
        _schema(msgspec.defstruct("Arguments", [field], kw_only=True))
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name}: parameter {parameter.name} has no schema: {error}") from error
    return field


def _schema(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema of a Struct, with the reference at the top followed and its title dropped."""
    schema = msgspec.json.schema(struct)
    definitions: dict[str, Any] = schema["$defs"]
    top: dict[str, Any] = definitions.pop(schema["$ref"].removeprefix("#/$defs/"))
    del top["title"]
    if definitions:
        top["$defs"] = {name: definitions[name] for name in sorted(definitions)}
    return top


def _decode(arguments: str) -> dict[str, Any]:
    """Decode with the standard library: it says where, and takes the lone surrogates we mend."""
    text = clean(arguments).strip() or "{}"
    size = len(text.encode())
    if size > MAX_ARGUMENT_BYTES:
        raise ArgumentError(
            f"The arguments have {size} bytes, over the limit of {MAX_ARGUMENT_BYTES}; send less."
        )
    try:
        value = json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except json.JSONDecodeError as error:
        near = excerpt(text[max(0, error.pos - _PREVIEW // 2) :][:_PREVIEW], _PREVIEW)
        raise ArgumentError(
            f"The arguments are not valid JSON: {error.msg} (character {error.pos}), near: {near}"
        ) from error
    except ValueError as error:
        raise ArgumentError(f"The arguments are not valid JSON: {excerpt(str(error))}") from error
    except RecursionError as error:
        raise ArgumentError("The arguments are nested too deeply.") from error
    if not isinstance(value, dict):
        raise ArgumentError('The arguments must be an object, like {"name": "value"}.')
    if _too_deep(value):
        raise ArgumentError(f"The arguments are nested deeper than {MAX_DEPTH} levels.")
    return clean_json(value)


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{excerpt(digits, 20)} is out of range")
    return number


def _too_deep(value: Any) -> bool:
    """Whether ``clean_json`` would turn a part of this into text."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += item.values()
            elif isinstance(item, list):
                below += item
        if not below:
            return False
        level = below
    return any(isinstance(item, dict | list) for item in level)
