"""What a person says to a run reaches its model, whenever it is said."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from story import Story
from world import World

from actors.estimate import counter_for
from actors.events import UserMessage
from actors.opening import OpenRun
from actors.outcome import Status
from actors.testing.faults import Fault, FaultKind
from actors.testing.scripts import Say
from actors.transcript import Transcript

STEPS = ("tell", "ask", "fail", "crash", "visit", "reply")


def sent(story: Story) -> list[dict[str, Any]]:
    """The messages of the request that would be sent now."""
    transcript = Transcript(story.state, b"[]", counter_for("plan", scripted=True))
    transcript.follow()
    return [json.loads(message) for message in transcript.messages]


@given(st.lists(st.sampled_from(STEPS), max_size=24))
@settings(max_examples=200, deadline=None)
def test_no_message_is_lost_or_moves_before_what_was_sent(steps: list[str]) -> None:
    """Whatever fails or dies around it: every one is sent, and no sent prefix ever changes."""
    story = Story()
    said: list[str] = []
    prefix: list[dict[str, Any]] = []
    for step in steps:
        match step:
            case "tell":
                said.append(f"message {len(said)}")
                story.tell(UserMessage(text=said[-1], who="person"))
            case "ask" if not story.state.asked:
                now = sent(story)
                assert now[: len(prefix)] == prefix
                prefix = now
                story.ask()
            case "fail" if story.state.asked:
                story.fail()
            case "crash":
                story.open("restart")
            case "visit":
                story.open("verdict")
            case "reply" if story.state.asked:
                story.reply(text="go on")
            case _:
                pass
    if story.state.asked:
        story.fail()
    assert [m["content"] for m in sent(story) if m["content"] in said] == said


async def test_a_message_in_a_wait_for_the_provider_is_in_the_next_request(world: World) -> None:
    """A person types when nothing seems to happen, and that is exactly then."""
    await world.provide(
        [Say("done"), Say("done again")],
        faults=(Fault(turn=1, kind=FaultKind.RATE_LIMIT, retry_after="1"),),
    )

    async def say(run: OpenRun) -> None:
        await world.told["turn_failed"].wait()
        await run.tell("hurry", "person")

    outcome = await world.perform(meanwhile=say)
    assert outcome.status is Status.COMPLETED
    assert world.state.told == [(0, "hurry")]
    assert world.state.head.turns == 1
