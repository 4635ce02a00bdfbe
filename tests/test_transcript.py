"""The transcript as it is sent: a prefix never changes, and calls and results stand in pairs."""

import json
import threading
from typing import Any

import msgspec
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from story import Story, call, look
from world import World

from actors.catalogue import Catalogue
from actors.estimate import Counter, counter_for
from actors.events import UserMessage
from actors.messages import Nature, ResultKind
from actors.request import request_body
from actors.testing.chat import decode
from actors.testing.scripts import Call, Conversation, Say
from actors.tokens import REPLY_PRIMING, count_message, count_tools
from actors.transcript import LOOP_CHARS_MAX, Transcript
from actors.window import Policy

TOOLS_JSON = Catalogue([look]).tools_json()


def transcript_of(story: Story) -> Transcript:
    transcript = Transcript(story.state, TOOLS_JSON, counter_for("plan", scripted=True))
    transcript.follow()
    return transcript


def sent(transcript: Transcript) -> list[dict[str, Any]]:
    return [json.loads(message) for message in transcript.messages]


def checked(transcript: Transcript) -> None:
    """A strict server would take this request."""
    decode(request_body("m", TOOLS_JSON, transcript.messages, 10, stream=False))


def test_a_new_run_sends_its_prompts():
    assert sent(transcript_of(Story())) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Go."},
    ]


def test_a_turn_is_sent_when_all_its_calls_are_answered():
    """A call is never sent without its result."""
    story = Story()
    transcript = Transcript(story.state, TOOLS_JSON, counter_for("plan", scripted=True))
    story.reply(call("look"), call("look", '{"at": 1}'))
    transcript.follow()
    assert len(transcript.messages) == 2
    story.finish("1.1", "second")
    transcript.follow()
    assert len(transcript.messages) == 2
    story.finish("1.0", "first")
    transcript.follow()
    assert len(transcript.messages) == 5
    checked(transcript)


def test_results_stand_in_the_order_of_their_calls():
    """However they came in."""
    story = Story()
    story.reply(*(call("look", f'{{"at": {n}}}') for n in range(12)))
    for number in reversed(range(12)):
        story.finish(f"1.{number}", f"result {number}")
    messages = sent(transcript_of(story))
    assert [m["content"] for m in messages[3:]] == [f"result {n}" for n in range(12)]
    assert [m["tool_call_id"] for m in messages[3:]] == [
        one["id"] for one in messages[2]["tool_calls"]
    ]


def test_ids_are_ours():
    """Unique in a request whatever the provider sent, and the same in every process."""
    story = Story()
    for turn in (1, 2):
        story.reply(call("look", call_id="same"), call("look", call_id=""))
        story.finish(f"{turn}.0")
        story.finish(f"{turn}.1")
    ids = [one["id"] for m in sent(transcript_of(story)) for one in m.get("tool_calls", [])]
    assert len(set(ids)) == 4
    assert ids == [one["id"] for m in sent(transcript_of(story)) for one in m.get("tool_calls", [])]


def test_what_is_sent_is_a_prefix_of_what_is_sent_next():
    """To the byte, in this process and in the next one: the provider's cache holds."""
    story = Story()
    transcript = transcript_of(story)
    before: list[bytes] = []
    for turn in range(1, 6):
        story.reply(call("look", f'{{"at": {turn}}}'), text=f"thought {turn}")
        story.run(f"{turn}.0", Nature.READ_ONLY, content=f"seen {turn}")
        transcript.follow()
        assert transcript.messages[: len(before)] == before
        before = list(transcript.messages)
        assert transcript_of(story).messages == before
        story.open("restart")


def test_a_verdict_in_words_is_a_result_like_others():
    """What the code decided about a call stands in the transcript."""
    story = Story()
    story.reply(call("delete"))
    story.finish("1.0", "rejected: no", ResultKind.REJECTED)
    assert sent(transcript_of(story))[-1]["content"] == "rejected: no"


def test_the_model_sees_what_it_wrote_even_where_a_person_edited():
    """An edit does not rewrite what was sent before."""
    story = Story()
    story.reply(call("delete", '{"what":1}'))
    story.ask_person("1.0", b"d")
    story.verdict("1.0", "approve", b"d", args='{"what":2}')
    story.run("1.0")
    (one,) = sent(transcript_of(story))[2]["tool_calls"]
    assert one["function"]["arguments"] == '{"what":1}'


def test_tokens_are_those_of_the_request():
    """Counted once a message, and equal to a count of the whole."""
    story = Story()
    transcript = transcript_of(story)
    transcript.tokens()
    story.reply(call("look", '{"at": 1}'), text="hm")
    story.finish("1.0", "seen <|endoftext|> " * 20)
    transcript.follow()
    expected = REPLY_PRIMING + count_tools(TOOLS_JSON)
    expected += count_message("system", "Be brief.") + count_message("user", "Go.")
    expected += count_message("assistant", "hm", [call("look", '{"at": 1}')])
    expected += count_message("tool", "seen <|endoftext|> " * 20)
    assert transcript.tokens() == transcript.tokens() == expected
    assert transcript_of(story).tokens() == expected


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
some_calls = st.lists(
    st.builds(call, texts, st.one_of(texts, st.just('{"at": 1}')), texts), max_size=4
)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(some_calls, st.none() | texts), min_size=1, max_size=4), st.randoms())
def test_any_transcript_is_well_formed(said: Any, rng: Any):
    """Whatever a model writes, a strict server takes the request that follows."""
    story = Story()
    for calls, text in said:
        if not calls:
            continue
        story.reply(*calls, text=text)
        refs = [one.ref for one in story.state.pending]
        rng.shuffle(refs)
        for ref in refs:
            story.finish(ref, text or "x")
    transcript = transcript_of(story)
    checked(transcript)
    assert all(msgspec.json.decode(message) for message in transcript.messages)


async def test_every_request_of_a_run_continues_the_one_before(world: World) -> None:
    """As the provider sees it: the prefix cache is hit from the second long turn on."""

    def play(conversation: Conversation) -> Any:
        if conversation.turn == 4:
            return Say("done")
        return Call("read_file", {"path": "long.log", "offset": conversation.turn})

    (world.workspace / "long.log").write_text("a line of a long log\n" * 300)
    await world.provide(play)
    await world.perform()
    cached = [bill["cached_input_tokens"] for bill in world.bills()]
    tokens = [bill["input_tokens"] for bill in world.bills()]
    long = [n for n, before in enumerate(tokens[:-1], 1) if before >= 1024]
    assert long
    assert all(cached[n] > 0.8 * tokens[n - 1] for n in long)


async def test_a_long_text_is_counted_beside_the_loop():
    """A person is heard meanwhile, and the next request holds what they said."""
    heard = threading.Event()

    def count(text: str) -> int:
        assert len(text) <= LOOP_CHARS_MAX or heard.wait(5), "the loop stood still"
        return len(text)

    story = Story()
    counter = Counter("slow", count, k0=1.0, calibrated=False)
    transcript = Transcript(story.state, TOOLS_JSON, counter, 10**6, Policy())
    story.reply(call("look"))
    story.finish("1.0", "x" * (LOOP_CHARS_MAX + 1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(transcript.take_in)
        await trio.testing.wait_all_tasks_blocked()
        story.tell(UserMessage(text="Hurry up.", who="boss"))
        heard.set()
    assert [message["role"] for message in sent(transcript)][2:] == ["assistant", "tool", "user"]
