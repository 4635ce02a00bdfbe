"""Scripts: what the scripted provider says, as a plain function of the conversation so far.

A script keeps nothing between two requests. Its turn is the number of assistant messages in the
request, so a run can be killed at any point and resumed against a provider that was restarted too::

    from actors.testing import Call, Conversation, Say, script

    @script("greedy")
    def greedy(conversation: Conversation) -> Say | Call:
        if conversation.turn < 3:
            return Call("list_files")
        return Say(f"The tools said: {conversation.results[-1]}")
"""

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from actors.closest import guess
from actors.messages import ToolCall
from actors.testing.faults import Fault, check_faults
from actors.user_module import ModuleError, load_module

CATALOGUE = "actors.testing.catalogue"
"""The module of the built-in scripts, loaded in the same way as users' own."""


class ScriptError(Exception):
    """A script cannot be found or loaded, or did not return a reply; its author must act.

    ``key`` is that of a ``[provider]`` table, such as ``scripts[0]``, where one is at fault.
    """

    def __init__(self, words: str, key: str = "") -> None:
        super().__init__(words)
        self.key = key


class Say(msgspec.Struct, frozen=True):
    """Text for the person: without a Call beside it, the final answer."""

    text: str


class Call(msgspec.Struct, frozen=True):
    """Ask for a tool. ``arguments`` given as text are sent as they are, well-formed or not.

    ``id`` None gives a deterministic id that differs for each call of a run; set it to play a
    server that sends constant, empty or repeated ids.
    """

    name: str
    arguments: Mapping[str, Any] | str = {}
    id: str | None = None


Step = Say | Call


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """What a script may look at."""

    turn: int
    """Number of assistant messages in the request: 0 when the model is asked for the first time."""
    task: str
    """The first user message."""
    system: str
    """The system prompt; empty when there is none."""
    results: tuple[str, ...] = ()
    """The contents of the tool messages, oldest first."""
    tools: tuple[str, ...] = ()
    """The names of the tools offered, in the order of the request."""

    def told(self, words: str) -> bool:
        """Whether any tool result holds these words."""
        return any(words in result for result in self.results)


ScriptFunction = Callable[[Conversation], Step | Sequence[Step]]


class Script(msgspec.Struct, frozen=True):
    """A named script, and the faults that belong to its story."""

    name: str
    function: ScriptFunction
    faults: tuple[Fault, ...] = ()


_scripts: dict[str, Script] = {}


def script(
    name: str, *, faults: Iterable[Fault] = ()
) -> Callable[[ScriptFunction], ScriptFunction]:
    """Register a function as the script of this name, which a request selects as its model.

    Raises:
        ValueError: a fault that cannot be.
    """
    story = check_faults(faults)

    def register(function: ScriptFunction) -> ScriptFunction:
        _scripts[name] = Script(name, function, story)
        return function

    return register


def load(modules: Iterable[str] = (), search_path: Sequence[str] = ()) -> dict[str, Script]:
    """Import the catalogue and users' modules; return all scripts known now, by name.

    An entry is ``module`` (its decorated functions count) or ``module:attribute`` (one function,
    which then bears this whole text as its name). ``search_path`` goes in front of ``sys.path``.

    Raises:
        ScriptError: a module fails to import, or an attribute is no function.
    """
    sys.path[:0] = [folder for folder in search_path if folder not in sys.path]
    importlib.import_module(CATALOGUE)
    for index, entry in enumerate(modules):
        module_name, _, attribute = entry.partition(":")
        try:
            module = load_module(module_name, search_path)
        except ModuleError as error:
            raise ScriptError(str(error), f"scripts[{index}]") from error
        if attribute:
            function: Any = getattr(module, attribute, None)
            if not callable(function):
                words = f"{module_name!r} has no script function {attribute!r}"
                raise ScriptError(words, f"scripts[{index}]")
            _scripts[entry] = Script(entry, cast("ScriptFunction", function))
    return dict(_scripts)


def no_script(name: str, known: Iterable[str]) -> str:
    """Words for a name that is not among the known ones."""
    names = sorted(known)
    return f"there is no script {name}; {guess(name, names)}the scripts are {', '.join(names)}"


def play(script: Script, conversation: Conversation) -> tuple[str | None, tuple[ToolCall, ...]]:
    """Ask a script for its reply: the text, if any, and the calls with their ids.

    Raises:
        ScriptError: the script raised, or returned something that is no reply.
    """
    try:
        returned: Any = script.function(conversation)
        steps: tuple[Any, ...] = (returned,) if isinstance(returned, Step) else tuple(returned)
        texts = [step.text for step in steps if isinstance(step, Say)]
        asked = [step for step in steps if isinstance(step, Call)]
        if not steps or len(texts) + len(asked) != len(steps):
            raise ScriptError(f"script {script.name!r} returned {returned!r}, which is no reply")
        calls = tuple(
            _tool_call(call, conversation.turn + 1, index) for index, call in enumerate(asked)
        )
    except ScriptError:
        raise
    except Exception as error:  # a user's script may raise anything
        raise ScriptError(f"script {script.name!r} raised {error!r}") from error
    return "\n".join(texts) if texts else None, calls


def _tool_call(call: Call, turn: int, index: int) -> ToolCall:
    arguments = call.arguments
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(dict(arguments)).decode()
    call_id = f"call_{turn}_{index}" if call.id is None else call.id
    return ToolCall(id=call_id, name=call.name, arguments=arguments)
