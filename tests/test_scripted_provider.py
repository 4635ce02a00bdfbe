"""The scripted provider: the API's shapes, an exact bill, a prefix cache, and its limits."""

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_client import TASK, Provide, ask, body

from actors.testing import Call, Conversation, Say, script
from actors.testing.catalogue import ANSWER
from actors.tokens import REPLY_PRIMING, count_message, count_reply, count_text, count_tools

pytestmark = pytest.mark.usefixtures("counting")

TOOLS = [{"type": "function", "function": {"name": "list_files", "parameters": {}}}]
FOUND = "worker 7 timed out after 30000 ms"


def round_of(result: str, index: int = 1) -> list[dict[str, Any]]:
    """One turn that called a tool, and what the tool said."""
    function = {"name": "list_files", "arguments": "{}"}
    call = {"id": f"c{index}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{index}", "content": result},
    ]


def events(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


async def test_call_has_the_shape_of_the_api(provide: Provide) -> None:
    """A reply that asks for a tool has null content, calls with text arguments, and usage."""
    client = await provide()
    reply = await ask(client, body())
    call = {"name": "list_files", "arguments": "{}"}
    assert reply["object"] == "chat.completion"
    assert reply["choices"] == [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "call_1_0", "type": "function", "function": call}],
            },
            "finish_reason": "tool_calls",
        }
    ]


async def test_plan_runs_to_its_answer_without_memory(provide: Provide) -> None:
    """The turn comes from the request alone, so any server can give any reply."""
    client = await provide(script="plan")
    rounds = [*round_of("errors.log", 1), *round_of(FOUND, 2)]
    last = await ask(client, body(*rounds, model="some-other-name"))
    assert last["choices"][0]["message"] == {"role": "assistant", "content": ANSWER}
    assert last["choices"][0]["finish_reason"] == "stop"
    second = await ask(client, body(*rounds[:2]))
    assert "errors.log" in str(second["choices"][0]["message"]["tool_calls"])


async def test_stream_says_the_same_as_the_whole_reply(provide: Provide) -> None:
    """The deltas add up to the reply; usage comes last, with no choices, and only if asked for."""
    client = await provide()
    request = body(*round_of("errors.log", 1), *round_of(FOUND, 2), tools=TOOLS)
    plain = await ask(client, request)
    request |= {"stream": True, "stream_options": {"include_usage": True}}
    response = await client.post("/chat/completions", json=request)
    assert response.headers["content-type"] == "text/event-stream"
    *chunks, usage = events(response.text)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": None}
    assert "".join(delta.get("content") or "" for delta in deltas) == ANSWER
    assert chunks[-1]["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    assert usage["choices"] == []
    assert usage["usage"] == plain["usage"]
    del request["stream_options"]
    response = await client.post("/chat/completions", json=request)
    assert all("usage" not in chunk for chunk in events(response.text))


async def test_streamed_calls_come_in_pieces(provide: Provide) -> None:
    """Id and name first, arguments after, each with its index."""

    @script("test-two-calls")
    def two(conversation: Conversation) -> list[Call]:
        return [Call("a", {"x": 1}, id=""), Call("b", id="")]

    client = await provide()
    request = body(model="test-two-calls", stream=True)
    response = await client.post("/chat/completions", json=request)
    deltas = [chunk["choices"][0]["delta"] for chunk in events(response.text)]
    pieces = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert [piece["index"] for piece in pieces] == [0, 0, 1, 1]
    assert [piece["function"]["arguments"] for piece in pieces] == ["", '{"x":1}', "", "{}"]
    assert pieces[0] == {
        "index": 0,
        "id": "",
        "type": "function",
        "function": {"name": "a", "arguments": ""},
    }


async def test_usage_is_the_formula_of_the_estimate(provide: Provide) -> None:
    """What we estimate before a request is what the scripted provider bills."""
    client = await provide()
    messages = round_of("access.log\nerrors.log")
    usage = (await ask(client, body(*messages, tools=TOOLS)))["usage"]
    name, arguments = "list_files", "{}"
    called = 4 + count_text(name) + count_text(arguments) + 3
    assert usage["prompt_tokens"] == (
        REPLY_PRIMING
        + count_tools(json.dumps(TOOLS, separators=(",", ":")).encode())
        + count_message("user", TASK["content"])
        + called
        + count_message("tool", "access.log\nerrors.log")
    )
    assert usage["completion_tokens"] == (
        count_text("read_file") + count_text('{"path":"errors.log"}') + 3
    )
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


async def test_spaces_in_the_request_cost_nothing(provide: Provide) -> None:
    """Tools are counted as compact JSON, however they were sent."""
    client = await provide()
    compact = await ask(client, body(tools=TOOLS))
    spaced = json.dumps(body(tools=TOOLS), indent=4)
    loose = (await client.post("/chat/completions", content=spaced)).json()
    assert loose["usage"]["prompt_tokens"] == compact["usage"]["prompt_tokens"]


@pytest.mark.parametrize("limit", [1, 4, 5, 6, 7, 8, 12])
async def test_max_tokens_cuts_the_reply(provide: Provide, limit: int) -> None:
    """A reply is cut in tokens, finish_reason says so, and no more than the limit is billed."""

    @script("test-long")
    def long(conversation: Conversation) -> list[Say | Call]:
        return [Say("one two three four"), Call("tool", {"text": "five six"}), Call("tool")]

    client = await provide()
    reply = await ask(client, body(model="test-long", max_tokens=limit))
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["usage"]["completion_tokens"] == limit
    message = reply["choices"][0]["message"]
    assert "one two three four".startswith(message["content"])
    assert count_reply(message["content"]) <= limit
    for call in message.get("tool_calls", ()):
        assert '{"text":"five six"}'.startswith(call["function"]["arguments"])


async def test_prefix_cache_counts_as_providers_do(provide: Provide) -> None:
    """The longest beginning seen before: nothing below 1,024 tokens, then steps of 128."""
    client = await provide()

    async def cached(request: dict[str, Any]) -> int:
        details = (await ask(client, request))["usage"]["prompt_tokens_details"]
        return details["cached_tokens"]

    small = body(*round_of("few words"), model="runaway")
    assert await cached(small) == await cached(small) == 0
    rounds = round_of("word " * 2000)
    assert await cached(body(*rounds, model="runaway")) == 0
    size = (await ask(client, body(*rounds, model="runaway")))["usage"]["prompt_tokens"]
    longer = body(*rounds, *round_of("more", 2), model="runaway")
    assert await cached(longer) == size - size % 128
    assert await cached(body(*rounds, model="plan")) == 0, "another model has another cache"
    assert await cached(longer | {"tools": TOOLS}) == 0, "other tools stand in front"
    changed = body(*round_of("Word " * 2000), *round_of("more", 2), model="runaway")
    assert await cached(changed) == 0


async def test_request_over_the_window_is_refused_with_both_numbers(provide: Provide) -> None:
    """A window is kept to the token, and the refusal has the API's words and code."""
    size = (await ask(await provide(), body()))["usage"]["prompt_tokens"]
    await ask(await provide(window_tokens=size), body())
    client = await provide(window_tokens=size - 1)
    response = await client.post("/chat/completions", json=body())
    error = response.json()["error"]
    assert response.status_code == 400
    assert error["code"] == "context_length_exceeded"
    assert f"maximum context length is {size - 1} tokens" in error["message"]
    assert f"resulted in {size} tokens" in error["message"]


async def test_every_billed_reply_is_in_the_ledger(provide: Provide, tmp_path: Path) -> None:
    """The ledger is the provider's own truth about the money; refusals are not in it."""
    ledger = tmp_path / "bills"
    client = await provide(ledger=str(ledger))
    usage = (await ask(client, body(), **{"Idempotency-Key": "r1:1"}))["usage"]
    await ask(client, body(*round_of("x")))
    await client.post("/chat/completions", json=body(model="absent"))
    first, second = [json.loads(line) for line in ledger.read_bytes().splitlines()]
    assert first == {
        "key": "r1:1",
        "turn": 1,
        "model": "plan",
        "input_tokens": usage["prompt_tokens"],
        "output_tokens": usage["completion_tokens"],
        "cached_input_tokens": 0,
    }
    assert (second["key"], second["turn"]) == (None, 2)
    assert ledger.stat().st_mode & 0o777 == 0o600


async def test_models_lists_the_scripts(provide: Provide) -> None:
    """A health check can see what may be asked for."""
    client = await provide()
    models = (await client.get("/models")).json()["data"]
    assert {"plan", "runaway", "flaky"} <= {model["id"] for model in models}


async def test_lone_surrogate_in_a_script_goes_out_as_an_escape(provide: Provide) -> None:
    """A script can play a model that writes what no encoder takes."""

    @script("test-surrogate")
    def surrogate(conversation: Conversation) -> Say:
        return Say("half \ud83d")

    client = await provide()
    response = await client.post("/chat/completions", json=body(model="test-surrogate"))
    assert b"half \\ud83d" in response.content
