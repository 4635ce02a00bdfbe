"""What is wrong with a configuration, in one sentence: where, what was expected, what to do."""

import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from actors.closest import closest
from actors.text import excerpt
from supervisor.terminal import visible

T = TypeVar("T")

# A key, or an address with a password, may stand here by mistake: no message repeats it.
_NEVER_QUOTED = frozenset({"api_key_env", "base_url"})
_NAMED_MAX = 20


class ConfigError(Exception):
    """The configuration cannot be used, and the user must change it; the message says how."""


class Origin:
    """Where the values come from: a file, and the ``--set`` options laid over it."""

    def __init__(self, file: str, sets: Mapping[str, str] | None = None) -> None:
        self.file = file
        self.sets = dict(sets or {})
        """Which ``--set`` option gave the value or made the table at a dotted key path."""

    def error(self, key: str, words: str) -> ConfigError:
        """An error at a key path; it names the ``--set`` when the value came from one."""
        for name, option in self.sets.items():
            if _within(key, name):
                detail = "" if key == option else f"{excerpt(key)}: "
                return ConfigError(visible(f"--set {option} (over {self.file}): {detail}{words}"))
        return ConfigError(visible(f"{self.file}: {excerpt(key)}: {words}"))


def _within(key: str, outer: str) -> bool:
    return key == outer or key.startswith((f"{outer}.", f"{outer}["))


def convert(table: Mapping[str, Any], kind: type[T], origin: Origin) -> T:
    """The table as a Struct; raises ConfigError at the first key that does not fit."""
    try:
        return msgspec.convert(table, kind, strict=True)
    except (msgspec.ValidationError, OverflowError) as error:
        raise _located(table, kind, "", str(error), origin) from None


def nearest(word: str, known: Iterable[str]) -> str:
    """``did you mean X?`` for the nearest known word, else the known words."""
    names = sorted(known)
    if near := closest(word, names):
        return f"did you mean {near}?"
    return f"known here: {', '.join(names[:_NAMED_MAX])}" if names else "none is known here"


def _located(value: Any, kind: Any, key: str, fallback: str, origin: Origin) -> ConfigError:
    """Walk down to the value that does not fit; msgspec's own path leaves out tables' names."""
    kind = _without_none(kind)
    base = typing.get_origin(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(value, dict):
        return _in_struct(typing.cast(dict[str, Any], value), kind, key, fallback, origin)
    if base is dict and isinstance(value, dict):
        name_kind, item_kind = typing.get_args(kind)
        for name, item in typing.cast(dict[str, Any], value).items():
            if not _fits(name, name_kind):
                return origin.error(f"{key}.{name}", f"expected {_expected(name_kind)}; rename it")
            if not _fits(item, item_kind):
                return _located(item, item_kind, f"{key}.{name}", fallback, origin)
    if base is tuple and isinstance(value, list):
        item_kind = typing.get_args(kind)[0]
        for index, item in enumerate(typing.cast(list[Any], value)):
            if not _fits(item, item_kind):
                return _located(item, item_kind, f"{key}[{index}]", fallback, origin)
    last = key.rpartition(".")[2]
    found = f"found {_kind_of(value)}" if last in _NEVER_QUOTED else _found(value)
    return origin.error(key, f"expected {_expected(kind)}, {found}; correct it")


def _in_struct(
    table: dict[str, Any], kind: type[msgspec.Struct], key: str, fallback: str, origin: Origin
) -> ConfigError:
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    prefix = f"{key}." if key else ""
    for name in table:
        if name not in fields:
            words = f"unknown key, correct or remove it; {nearest(name, fields)}"
            if name.endswith("api_key"):
                words = "a key is never written in a config; name its variable with api_key_env"
            return origin.error(f"{prefix}{name}", words)
    for name, field in fields.items():
        if field.required and name not in table:
            return origin.error(f"{prefix}{name}", f"is missing; give {_expected(field.type)}")
        if name in table and not _fits(table[name], field.type):
            return _located(table[name], field.type, f"{prefix}{name}", fallback, origin)
    return origin.error(key or "the file", f"{fallback}; correct it")


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind, strict=True)
    except (msgspec.ValidationError, OverflowError):
        return False
    return True


def _without_none(kind: Any) -> Any:
    """``Provider`` for ``Provider | None``: TOML has no null, so nobody is told about it."""
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return kind
    rest = [item for item in typing.get_args(kind) if item is not types.NoneType]
    return rest[0] if len(rest) == 1 else typing.Union[tuple(rest)]  # noqa: UP007


def _expected(kind: Any) -> str:
    """A type in words, from msgspec's description of it."""
    return _words(inspect.type_info(_without_none(kind)))


def _words(info: inspect.Type) -> str:
    match info:
        case inspect.Metadata():
            extra = typing.cast(dict[str, str] | None, info.extra_json_schema)  # pyright: ignore[reportUnknownMemberType]
            return extra["description"] if extra else _words(info.type)
        case inspect.UnionType(types=kinds):
            return " or ".join(_words(one) for one in kinds)
        case inspect.LiteralType(values=values):
            return _one_of(values)
        case inspect.EnumType(cls=cls):
            return _one_of(member.value for member in cls)
        case inspect.IntType() | inspect.FloatType():
            return _number(info)
        case inspect.BoolType():
            return "true or false"
        case inspect.StrType():
            return "a text"
        case inspect.VarTupleType(item_type=item, min_length=least):
            return f"a list{' that is not empty' if least else ''}, each item {_words(item)}"
        case _:
            return "a table"


def _one_of(values: Iterable[Any]) -> str:
    words = [f'"{value}"' for value in values]
    return words[0] if len(words) == 1 else f"one of {', '.join(words)}"


def _number(info: inspect.IntType | inspect.FloatType) -> str:
    noun = "a whole number" if isinstance(info, inspect.IntType) else "a number"
    if info.gt is not None:
        return f"{noun} above {info.gt:g} and at most {info.le}"
    return f"{noun} from {info.ge} to {info.le}"


def _found(value: Any) -> str:
    match value:
        case bool():
            return f"found {str(value).lower()}"
        case str():
            return f'found the text "{excerpt(value, 60)}"'
        case int() if abs(value) >= 2**63:
            # Written in hexadecimal, it may be too long to be turned into digits.
            return "found a number beyond 64 bits"
        case int() | float():
            return f"found {value}"
        case _:
            return f"found {_kind_of(value)}"


def _kind_of(value: Any) -> str:
    match value:
        case str():
            return "a text"
        case dict():
            return "a table"
        case list():
            return "a list" if value else "an empty list"
        case _:
            return f"a {type(value).__name__}"
