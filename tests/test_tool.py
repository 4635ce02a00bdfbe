"""Tools: the schema from the signature, the checking of arguments, and the catalogue of a run."""

import contextlib
import dataclasses
import enum
import importlib
import json
import subprocess
import sys
from typing import Annotated, Any, Literal

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

import actors
from actors.catalogue import Catalogue, CatalogueError
from actors.messages import Nature
from actors.spec import ToolsSpec
from actors.tool_arguments import MAX_ARGUMENT_BYTES
from actors.tool_context import ToolContext
from actors.tool_errors import ArgumentError
from actors.tool_result import result_text
from actors.tools import Tool, tool
from actors.user_module import ModuleError


def context_with(report=lambda _label: None, **fields: Any) -> ToolContext:
    return ToolContext(run_id="r", call="1.0", key="k", report=report, **fields)


@tool
async def search(
    words: Annotated[str, msgspec.Meta(description="What to look for.", min_length=1)],
    context: ToolContext,
    limit: int = 10,
    order: Literal["new", "old"] = "new",
) -> str:
    """Search   the archive for words.

    More for the reader of the code.
    """
    return f"{words} {limit} {order} {context.call}"


# Decoration.


def test_a_tool_takes_its_schema_and_words_from_the_function():
    """The model reads the name, the first paragraph, and the parameters without the context."""
    assert search.name == "search"
    assert search.description == "Search the archive for words."
    assert search.schema == {
        "type": "object",
        "properties": {
            "words": {"description": "What to look for.", "type": "string", "minLength": 1},
            "limit": {"type": "integer", "default": 10},
            "order": {"enum": ["new", "old"], "default": "new"},
        },
        "required": ["words"],
        "additionalProperties": False,
    }
    assert not search.plain
    assert search.nature is Nature.WRITE
    assert search.timeout_seconds == 120.0


def test_flags_say_what_may_be_done_with_a_call():
    """Each flag has its nature; name and description can be given."""

    def look(text: str, key: str) -> str:
        return "done"

    def plain(text: str) -> str:
        return text

    assert tool(read_only=True)(plain).nature is Nature.READ_ONLY
    assert tool(keyed=True)(plain).nature is Nature.KEYED
    assert tool(probe=look)(plain).nature is Nature.PROBED
    made = tool(needs_approval=True, timeout_s=3, name="send-mail", description="Send.")(plain)
    assert (made.name, made.description, made.needs_approval) == ("send-mail", "Send.", True)
    assert (made.timeout_seconds, made.plain) == (3, True)


def test_what_no_schema_can_say_is_refused_at_decoration():
    """The message names the function and the parameter, before any run starts."""

    def untyped(a) -> None: ...
    def many(*a: int) -> None: ...
    def more(**a: int) -> None: ...
    def first(a: int, /) -> None: ...
    def strange(good: int, a: Strange) -> None: ...
    def unknown(a: "Nowhere") -> None: ...  # noqa: F821  # pyright: ignore[reportUndefinedVariable]
    def unsafe(a: list[int] = [1]) -> None: ...  # noqa: B006
    def two(a: ToolContext, b: ToolContext) -> None: ...

    for function in (untyped, many, more, first, strange, unknown, unsafe, two):
        with pytest.raises(TypeError, match=function.__name__) as caught:
            tool(function)
        special = {"unknown": "Nowhere", "two": "parameter b"}
        named = special.get(function.__name__, "parameter a")
        assert named in str(caught.value)


class Strange:
    """A type that JSON knows nothing of."""

    def __init__(self, a: int, *more: int) -> None: ...


def test_what_is_no_tool_function_is_refused_at_decoration():
    """A mistake in the flags or in the kind of function is a TypeError."""

    def plain(text: str) -> str:
        return text

    async def stream(text: str):
        yield text

    with pytest.raises(TypeError, match="yields"):
        tool(stream)
    with pytest.raises(TypeError, match="no function"):
        tool(str)
    wrong: tuple[dict[str, Any], ...] = (
        {"read_only": True, "keyed": True},
        {"keyed": True, "probe": plain},
        {"timeout_s": 0},
        {"timeout_s": float("inf")},
        {"name": "two words"},
        {"name": "x" * 65},
    )
    for flags in wrong:
        with pytest.raises(TypeError, match="plain"):
            tool(**flags)(plain)


def test_nested_types_keep_their_definitions():
    """A parameter may be a Struct; what it refers to stays in the schema."""
    made = tool(nested)
    assert made.schema["properties"] == {"where": {"$ref": "#/$defs/Place"}}
    assert list(made.schema["$defs"]) == ["Place"]
    assert made.parse('{"where": {"city": "Rome"}}').values == {"where": Place("Rome")}


class Place(msgspec.Struct):
    city: str


async def nested(where: Place) -> None:
    """Go there."""


# Arguments.


def test_good_arguments_are_ready_to_pass():
    """Defaults are filled in for the function, and the canonical form is what was sent."""
    parsed = search.parse(' {"order": "old", "words": "a b"} ')
    assert parsed.values == {"words": "a b", "limit": 10, "order": "old"}
    assert parsed.canonical == b'{"order":"old","words":"a b"}'
    assert parsed.canonical == search.parse('{"words":"a b","order":"old"}').canonical


def test_an_empty_text_counts_as_no_arguments():
    """Some models send nothing for a tool without parameters."""

    @tool
    def now() -> str:
        """Tell the time."""
        return "noon"

    for text in ("", "  ", "{}"):
        parsed = now.parse(text)
        assert (parsed.values, parsed.canonical) == ({}, b"{}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"words": "x', r"not valid JSON.*character 10.*near: \{\"words\": \"x"),
        ('{"words": "x"} {"words": "y"}', "not valid JSON: Extra data"),
        ('{"words": NaN}', "NaN is no JSON number"),
        ('{"words": -Infinity}', "-Infinity is no JSON number"),
        ('{"limit": 1e999, "words": "x"}', "1e999 is out of range"),
        ('{"limit": ' + "9" * 5000 + "}", "not valid JSON"),
        ('{"words": "a\nb"}', "not valid JSON"),
        ("null", "must be an object"),
        ("[]", "must be an object"),
        ('"x"', "must be an object"),
        ("{}", r"missing required field `words`.*words \(required\), limit, order"),
        ('{"words": 1}', r"Expected `str`, got `int` - at `\$\.words`"),
        ('{"words": ""}', "length >= 1"),
        ('{"words": "x", "limit": "3"}', r"Expected `int`, got `str` - at `\$\.limit`"),
        ('{"words": "x", "order": "any"}', "Invalid enum value"),
        ('{"words": "x", "wrods": 1}', "unknown field `wrods`"),
        ('{"words": "x", "context": 1}', "unknown field `context`"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 70 + "1" + "}" * 70, "nested deeper than 64 levels"),
        ('{"words": "' + "x" * MAX_ARGUMENT_BYTES + '"}', "over the limit of 1048576"),
        ("x" * (MAX_ARGUMENT_BYTES - 1), "not valid JSON"),
    ],
)
def test_bad_arguments_are_refused_in_words_the_model_can_act_on(text, words):
    """Nothing is called on a parse error, and the echo of bad input is short."""
    with pytest.raises(ArgumentError, match=words) as caught:
        search.parse(text)
    assert len(str(caught.value)) < 400


def test_lone_surrogates_are_mended_at_the_entrance():
    """Raw or escaped, they could never be stored again."""
    for text in ('{"words": "\ud83d"}', '{"words": "\\ud83d"}'):
        parsed = search.parse(text)
        assert parsed.values["words"] == "\ufffd"
        assert parsed.canonical == '{"words":"\ufffd"}'.encode()


def test_the_last_of_two_equal_keys_counts():
    """It is the parsed value that is shown and hashed, never the raw text."""
    assert search.parse('{"words": "a", "words": "b"}').canonical == b'{"words":"b"}'


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda below: st.lists(below) | st.dictionaries(st.text(), below),
    max_leaves=8,
)


@settings(max_examples=50)
@given(st.text(st.characters()) | JSON_VALUES.map(json.dumps))
def test_any_text_is_parsed_or_refused(text):
    """No text that a model can write gets an exception out that is not in words."""
    with contextlib.suppress(ArgumentError):
        assert isinstance(free.parse(text).values, dict)


@tool
async def free(a: Any = None) -> None:
    """Take anything."""


# Calls.


async def test_an_async_tool_is_called_with_its_context():
    """The context goes to the parameter annotated with it, wherever that stands."""
    assert await search.call(context_with(), search.parse('{"words": "x"}')) == "x 10 new 1.0"


async def test_a_plain_tool_is_called_in_the_thread_of_the_caller():
    """It may block, so that whoever calls it gives it a thread."""

    @tool
    def double(n: int) -> int:
        """Double."""
        return 2 * n

    assert double.call_plain(context_with(), double.parse('{"n": 4}')) == 8


def test_progress_is_one_short_line():
    """A label cannot flood the trace or break its lines."""
    labels: list[str] = []
    context_with(labels.append).progress("a\nb\ud800" + "x" * 500)
    assert labels[0].startswith("a b\ufffdx")
    assert len(labels[0]) == 200


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("done", "done"), ("not_done", "not_done"), ("unknown", "unknown"), (None, "unknown")],
)
async def test_a_probe_answers_whether_a_call_has_happened(answer, expected):
    """Async or plain, it gets what the call got and the key; anything odd means unknown."""
    seen: list[tuple[str, str]] = []

    async def look(text: str, key: str) -> Any:
        seen.append((text, key))
        return answer

    def look_plainly(text: str, key: str) -> Any:
        seen.append((text, key))
        return answer

    for probe in (look, look_plainly):
        made = tool(probe=probe)(send)
        arguments = made.parse('{"text": "hi"}')
        assert await made.ask_probe(arguments, "k") == expected
    assert seen == [("hi", "k")] * 2


async def send(text: str) -> None:
    """Send a text."""


def test_a_probe_that_takes_something_else_is_refused_at_decoration():
    """It could only ever raise, and its tool's calls would be in doubt for a reason nobody sees."""

    def with_context(key: str, context: ToolContext) -> str: ...
    def without_key(text: str) -> str: ...
    def without_the_argument(key: str) -> str: ...
    def by_place(text: str, key: str, /) -> str: ...
    def nothing() -> str: ...

    no_function: Any = "done"
    probes = (with_context, without_key, without_the_argument, by_place, nothing, no_function)
    for probe in probes:
        with pytest.raises(TypeError) as caught:
            tool(probe=probe)(send)
        words = str(caught.value)
        assert words.startswith("send: its probe ")
        assert getattr(probe, "__name__", "done") in words
        assert words.endswith("it must take (text, key), the tool's arguments and the key, by name")


def test_a_probe_may_take_more_than_it_is_given():
    """Parameters with defaults, or any at all, by whatever name they come."""

    def later(text: str, key: str, again: bool = False) -> str:
        return "done"

    def anything(**given: object) -> str:
        return "done"

    for probe in (later, anything):
        assert tool(probe=probe)(send).nature is Nature.PROBED


def test_a_tool_with_a_probe_has_no_parameter_of_the_keys_name():
    """The probe would be told the one in place of the other."""

    def lock(key: str) -> None: ...

    with pytest.raises(TypeError, match=r"lock: .* no parameter key"):
        tool(probe=lambda key: "done")(lock)


async def test_a_probe_that_fails_or_hangs_does_not_know(autojump_clock):
    """A broken check never makes a write run twice."""

    async def fail(text: str, key: str) -> str:
        raise ValueError(key)

    async def hang(text: str, key: str) -> str:
        await trio.sleep_forever()
        return "done"

    for probe in (fail, hang):
        made = tool(probe=probe)(send)
        arguments = made.parse('{"text": "hi"}')
        assert await made.ask_probe(arguments, "k") == "unknown"


# Results.


@dataclasses.dataclass
class Point:
    x: int
    name: str


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Odd:
    def __repr__(self) -> str:
        return "Odd()"


class Colour(enum.Enum):
    RED = "red"


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\0", "as it is\0"),
        ("\ud83d", "\ufffd"),
        ("", "(empty)"),
        (bytearray(), "(empty)"),
        (None, "(no output)"),
        (b"a\xff", "a\ufffd"),
        (True, "true"),
        ({"b": [1, (2, "\ud800")], 3: None}, '{"b":[1,[2,"\ufffd"]],"3":null}'),
        (2**70, f'"{2**70}"'),
        (Point(1, "p"), '{"x":1,"name":"p"}'),
        (Place("Rome"), '{"city":"Rome"}'),
        (Colour.RED, '"red"'),
        ([Odd()], '["Odd()"]'),
        (ENDLESS, "[[...]]"),
        (Broken(), "(a Broken that cannot be shown)"),
        ([], "[]"),
    ],
)
def test_a_result_is_a_text_that_is_never_empty(value, text):
    """Whatever a tool returns, the model reads words that can be stored."""
    assert result_text(value) == text
    msgspec.json.encode(result_text(value))


# The catalogue.


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Write modules of tools into a folder; they are forgotten again afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text)
        importlib.invalidate_caches()

    yield write
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", "").startswith(str(tmp_path)):
            del sys.modules[name]


ONE = '''
from actors import tool
@tool
async def one(a: int) -> int:
    """First."""
    return a
@tool(read_only=True)
def two() -> str:
    """Second."""
    return "2"
'''


def spec_of(tmp_path, *names: str, modules: tuple[str, ...] = (), workspace: bool = False):
    where = str(tmp_path) if workspace else None
    return ToolsSpec(names=names, modules=modules, search_path=(str(tmp_path),), workspace=where)


def test_a_catalogue_keeps_the_order_of_the_spec(tmp_path, modules):
    """The request's bytes are the same in every process of a run."""
    modules("exeunt_one", ONE)
    spec = spec_of(tmp_path, "two", "read_file", "one", modules=("exeunt_one",), workspace=True)
    catalogue = Catalogue.load(spec)
    assert [made.name for made in catalogue] == ["two", "read_file", "one"]
    assert catalogue.names == ("two", "read_file", "one")
    assert len(catalogue) == 3
    assert catalogue.get("two") is not None
    assert catalogue.get("three") is None
    assert catalogue.tools_json() == Catalogue.load(spec).tools_json()
    assert msgspec.json.decode(catalogue.tools_json())[2] == {
        "type": "function",
        "function": {
            "name": "one",
            "description": "First.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}},
                "required": ["a"],
                "additionalProperties": False,
            },
        },
    }


def test_a_run_without_tools_has_an_empty_catalogue():
    """Nothing is imported for it."""
    catalogue = Catalogue.load(ToolsSpec())
    assert (catalogue.tools_json(), catalogue.names) == (b"[]", ())


def test_a_digest_changes_with_what_the_model_is_told():
    """A description that was changed between two processes does not pass unseen."""
    digests = {
        Catalogue([tool(description=words)(send)]).digest("send") for words in ("a", "b", "a")
    }
    assert len(digests) == 2


def test_a_tool_imported_by_two_modules_is_one(tmp_path, modules):
    """Only another tool of the same name is a duplicate."""
    modules("exeunt_one", ONE)
    modules("exeunt_again", "from exeunt_one import one")
    spec = spec_of(tmp_path, "one", modules=("exeunt_one", "exeunt_again"))
    assert Catalogue.load(spec).names == ("one",)


def test_tools_that_no_module_holds_can_be_added(tmp_path):
    """A tool with a run behind it is made from the configuration."""
    catalogue = Catalogue.load(spec_of(tmp_path, "send"), further=[tool(send)])
    assert catalogue.names == ("send",)


@pytest.mark.parametrize(
    ("names", "given", "words"),
    [
        ((), ("exeunt_none",), "there is no module exeunt_none in /"),
        ((), ("exeunt_needs",), "exeunt_needs needs exeunt_gone, which is missing"),
        ((), ("exeunt_broken",), "exeunt_broken cannot be imported: ZeroDivisionError"),
        ((), ("exeunt_exit",), "exeunt_exit cannot be imported: SystemExit"),
        (("tree",), ("exeunt_one",), r"no tool tree; available: one, two \(the file tools need"),
        ((), ("exeunt_one", "exeunt_other"), "named one: one in exeunt_one and one in exeunt_oth"),
        (("one", "one"), ("exeunt_one",), "a tool is named twice"),
    ],
)
def test_tools_that_cannot_be_gathered_are_refused_in_words(tmp_path, modules, names, given, words):
    """The operator reads which module or name to mend, before the run starts."""
    modules("exeunt_one", ONE)
    modules("exeunt_other", ONE)
    modules("exeunt_needs", "import exeunt_gone")
    modules("exeunt_broken", "1 / 0")
    modules("exeunt_exit", "raise SystemExit(2)")
    with pytest.raises((ModuleError, CatalogueError), match=words):
        Catalogue.load(spec_of(tmp_path, *names, modules=given))


def test_a_users_tool_cannot_replace_a_file_tool(tmp_path, modules):
    """Two tools of one name are an error, whichever the user meant."""
    modules("exeunt_mine", ONE.replace("def two", "def read_file"))
    spec = spec_of(tmp_path, modules=("exeunt_mine",), workspace=True)
    with pytest.raises(CatalogueError, match=r"actors\.file_tools and one in exeunt_mine"):
        Catalogue.load(spec)


# The face of the package.


def test_the_decorator_is_had_from_the_package():
    """``from actors import tool`` decorates, bare or with flags, whoever imported what before."""
    importlib.import_module("actors.tools")
    assert isinstance(actors.tool(send), Tool)
    assert actors.tool(read_only=True)(send).nature is Nature.READ_ONLY
    assert isinstance(actors.__getattr__("tool")(send), Tool)
    assert [getattr(actors, name).__name__.rpartition(".")[2] for name in actors.__all__] == (
        actors.__all__
    )
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = actors.nothing


def test_the_package_is_cheap_to_import():
    """Nothing heavy is loaded until a name is used."""
    code = "import actors, sys; print({'trio', 'httpx', 'msgspec', 'inspect'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
