"""Whole runs against servers that differ in what they take."""

from collections.abc import Callable

import pytest
import trio
from picky import Door, Picky, alternate, content_is, one_name
from world import World

from actors.events import AskFailed
from actors.limit_name import OTHER_NAME, LimitName
from actors.outcome import Outcome, Status
from actors.spec import ContextSpec, LimitChange
from actors.testing import replies
from actors.testing.chapters import write_chapters
from actors.testing.scripts import Call, Say
from actors.tools import tool

LIST = Call("list_files")


@pytest.fixture
def behind(world: World, nursery: trio.Nursery):
    """Put a provider of these steps behind a door."""

    async def put(steps: list[Say | Call], door: Door) -> Picky:
        await world.provide(steps)
        picky = Picky(world.model, door, str(world.ledger))
        world.base_url = await nursery.start(picky.serve)
        return picky

    return put


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_a_refused_name_of_the_output_limit_is_asked_under_the_other_once_a_run(
    world: World, behind: Callable, name: LimitName, stream: bool
) -> None:
    """Whichever is refused: one refused request, no retry used up, nothing billed for it."""
    picky = await behind([LIST, LIST, Say("done")], one_name(name))
    world.ask(max_output_tokens_name=OTHER_NAME[name], max_retries=0, stream=stream)
    assert (await world.perform()).output == "done"
    assert [name in body for body in picky.bodies] == [False, True, True, True]
    assert world.state.head.maybe_nusd == 0
    assert len(world.bills()) == 3
    (failed,) = world.lines("turn_failed")
    assert failed["kind"] == "limit_name"
    assert failed["error"].endswith(f"; it is sent once more with {name}")


async def test_the_name_that_is_configured_is_asked_first(world: World, behind: Callable) -> None:
    """With the right name in the configuration nothing is refused."""
    picky = await behind([LIST, Say("done")], one_name("max_completion_tokens"))
    world.ask(max_output_tokens_name="max_completion_tokens")
    assert (await world.perform()).output == "done"
    assert len(picky.bodies) == 2
    assert not world.lines("turn_failed")


async def test_the_name_is_remembered_by_the_next_process(world: World, behind: Callable) -> None:
    """It stands in the journal, so a resume is not refused again."""
    picky = await behind([LIST, Say("done")], one_name("max_completion_tokens"))
    world.limit(max_turns=1)
    assert (await world.perform()).status is Status.MAX_TURNS
    resumed = await world.perform("resume", raised=LimitChange(max_turns=5))
    assert resumed.output == "done"
    assert ["max_tokens" in body for body in picky.bodies] == [True, False, False]


async def test_a_server_that_refuses_both_names_ends_the_run(
    world: World, behind: Callable
) -> None:
    """Each name is tried once, and the run ends with the server's words."""

    def neither(body):
        (name,) = {"max_tokens", "max_completion_tokens"} & body.keys()
        return replies.error(400, f"Unrecognized request argument supplied: {name}")

    picky = await behind([Say("done")], neither)
    outcome = await world.perform()
    assert outcome.status is Status.FAILED
    assert "argument supplied: max_completion_tokens" in (outcome.error or "")
    assert len(picky.bodies) == 2
    assert [e.permanent for e in world.events if isinstance(e, AskFailed)] == [False, True]


async def test_a_refused_value_of_the_output_limit_is_not_sent_under_another_name(
    world: World, behind: Callable
) -> None:
    """The server would pass over the name it does not know, and write without a limit."""

    def door(body):
        if "max_tokens" not in body:
            return None
        words = "Unsupported value: 'max_tokens' does not support 4096 with this model."
        return replies.error(400, words, code="unsupported_value", param="max_tokens")

    picky = await behind([Say("done")], door)
    outcome = await world.perform()
    assert outcome.status is Status.FAILED
    assert "Unsupported value" in (outcome.error or "")
    assert ["max_tokens" in body for body in picky.bodies] == [True]
    assert not world.bills()


async def test_a_template_that_wants_roles_in_turn_gets_a_long_run_whole(
    make_world: Callable[[], World], nursery: trio.Nursery
) -> None:
    """The list of earlier calls follows the task: they are sent as one, or the error says how."""
    ended: dict[bool, Outcome] = {}
    for merge in (True, False):
        world = make_world()
        write_chapters(world.workspace, 1000)
        world.change(context=ContextSpec(budget_tokens=4000))
        await world.provide("chapters")
        picky = Picky("chapters", alternate)
        world.base_url = await nursery.start(picky.serve)
        world.ask(merge_user_messages=merge, base_url=world.base_url)
        ended[merge] = await world.perform()
    assert ended[True].output == "I have read 40 of 40 chapters."
    assert str(ended[False].error).endswith("set merge_user_messages in [provider] to true")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("form", ["null", "empty", "omit"])
@pytest.mark.parametrize("text", [None, "", " \n"])
async def test_a_message_of_calls_alone_has_the_content_that_the_server_takes(
    world: World, behind: Callable, form: str, text: str | None, stream: bool
) -> None:
    """Whatever the model sent beside its calls, a strict server gets its one form."""

    @tool(read_only=True)
    def look() -> str:
        """Look."""
        return "seen"

    steps = [[Say(text), Call("look")] if text is not None else Call("look"), Say("done")]
    world.offer(look)
    picky = await behind(steps, content_is(form))
    world.ask(empty_content=form, stream=stream)
    assert (await world.perform()).output == "done"
    (message,) = [m for m in picky.bodies[-1]["messages"] if m["role"] == "assistant"]
    assert message.get("content", "omit") == {"null": None, "empty": ""}.get(form, "omit")
