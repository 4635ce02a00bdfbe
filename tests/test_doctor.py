"""What doctor says of a provider, from one question that costs nothing."""

import socket

import pytest
import trio

from actors.testing import replies
from actors.testing.server import serve_http
from supervisor.commands.doctor import Problem, _ask
from supervisor.config_sections import Provider

SERVED = Provider(kind="openai", model="m", api_key_env="MY_KEY")


@pytest.fixture
def asked(nursery: trio.Nursery):
    """What is said of a server that answers this; its address reads URL."""

    async def ask(answer: replies.Answer, key: str | None = "sk-secret") -> str:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(serve_http, lambda request: answer, listeners)
        url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/v1"
        try:
            said = await _ask(url, key, {"m": None}, SERVED)
        except Problem as problem:
            said = f"problem: {problem}"
        assert "sk-secret" not in said
        return said.replace(url, "URL")

    return ask


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_named_by_its_variable(asked, status):
    """Whether one was sent decides what there is to do."""
    refused = replies.error(status, "no")
    assert await asked(refused) == f"problem: URL refuses the key in MY_KEY (status {status})"
    said = await asked(refused, key=None)
    assert said == f"problem: URL wants a key: export it in MY_KEY (status {status})"


async def test_an_address_that_leads_elsewhere_is_a_problem(asked):
    """A run would not follow it either."""
    moved = replies.Answer(status=301, body=b"", headers=(("Location", "https://h/v1"),))
    assert "problem: URL leads elsewhere (status 301)" in await asked(moved)


async def test_a_server_without_a_list_of_models_may_be_a_good_one(asked):
    """Many have none; with 404 it may as well be the address."""
    said = await asked(replies.error(404, "no"))
    assert said == "URL answers, but lists no models (status 404); base_url often ends in /v1"
    said = await asked(replies.error(500, "no"))
    assert said == "URL answers, but lists no models (status 500)"


async def test_an_address_where_nobody_listens_is_said_in_the_systems_words():
    """As a run says it."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        with pytest.raises(Problem, match="no connection: connection refused; start it or mend"):
            await _ask(url, None, {"m": None}, SERVED)
