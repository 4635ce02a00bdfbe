"""A provider that cannot be asked ends the run in one sentence: what, and what to do about it."""

import socket
import ssl

import httpx
import pytest
import trio
from picky import Picky
from world import World

from actors.outcome import Status
from actors.provider_error import Kind, ProviderError, map_transport
from actors.remedy import remedy, shown_url
from actors.spec import ProviderSpec
from actors.testing import replies
from actors.testing.scripts import Say

KEY = "sk-very-secret-key"


@pytest.fixture
def ended(world: World, nursery: trio.Nursery):
    """The error of a run at an address, or of one whose provider answers this."""

    async def end(where: str | replies.Answer, key: str | None = KEY) -> str:
        await world.provide([Say("never said")])
        world.base_url = (
            where
            if isinstance(where, str)
            else await nursery.start(Picky(world.model, lambda body: where).serve)
        )
        world.ask(base_url=world.base_url, model="small", api_key_env="MY_KEY", max_retries=1)
        world.api_key = key
        outcome = await world.perform()
        assert outcome.status is Status.FAILED
        error = outcome.error or ""
        for path in world.run_dir.iterdir():
            assert KEY.encode() not in path.read_bytes(), path
        assert error.isprintable()
        return error.replace(world.base_url, "URL")

    return end


async def test_a_refused_connection_names_the_address(ended):
    """Nobody listens there: start it, or correct the address."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        error = await ended(f"http://127.0.0.1:{unused.getsockname()[1]}/v1")
    assert error == (
        "gave up after 2 attempts: no connection: connection refused; start the server or correct "
        "base_url (URL), which exeunt doctor CONFIG tries"
    )


class Unknown(trio.abc.HostnameResolver):
    """Knows no name."""

    async def getaddrinfo(self, host, port, family=0, type=0, proto=0, flags=0):  # noqa: A002
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def getnameinfo(self, sockaddr, flags):
        raise NotImplementedError


async def test_a_name_that_nobody_knows_is_said(ended):
    """A misspelt host is told from a server that is down."""
    trio.socket.set_custom_hostname_resolver(Unknown())
    error = await ended("http://modle.example/v1", None)
    assert "the host's name cannot be resolved (Name or service not known)" in error
    assert "correct base_url (URL)" in error


async def test_a_server_without_tls_is_said(ended, nursery):
    """https:// at a plain server is the commonest reason for a failed handshake."""

    async def plain(stream):
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await stream.aclose()

    listeners = await nursery.start(trio.serve_tcp, plain, 0)
    error = await ended(f"https://127.0.0.1:{listeners[0].socket.getsockname()[1]}/v1")
    assert error == (
        "no trusted connection: the server does not speak TLS there; correct base_url (URL), as "
        "https:// is for servers that speak TLS"
    )


def answer(status: int, body: bytes = b"", **headers: str) -> replies.Answer:
    return replies.Answer(status=status, body=body, headers=tuple(headers.items()))


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (
            replies.error(401, f"Incorrect API key provided: {KEY}."),
            "the provider answered HTTP 401: Incorrect API key provided: [key]; check that the key "
            "in MY_KEY is good for small at URL",
        ),
        (answer(403), "without a word; check that the key in MY_KEY is good for small at URL"),
        (replies.error(402, "no money"), "no money; see to the account of the key in MY_KEY"),
        (
            answer(404, b"<html><h1>Not Found</h1></html>"),
            "HTTP 404: Not Found; check model small and base_url (URL), which often ends in /v1",
        ),
        (answer(405), "check model small and base_url (URL)"),
        (
            answer(308, Location=f"https://models.example/v1/chat/completions?key={KEY}"),
            "and it leads to https://models.example/v1; correct base_url (URL)",
        ),
        (answer(302), "redirects are not followed; correct base_url (URL)"),
        (
            answer(200, b"<html>Welcome to nginx!</html>"),
            "Welcome to nginx!; if it stays so, correct base_url (URL), which often ends in /v1",
        ),
        (
            replies.error(400, "messages.2.content: Input should be a valid string, not null"),
            "not null; empty_content in [provider] says how messages of calls alone are sent",
        ),
    ],
)
async def test_a_refusal_names_what_to_look_at(ended, refused, words):
    """Address, model and the key's variable, whichever it may be; never the key."""
    assert words in await ended(refused)


async def test_a_refusal_without_a_key_says_that_none_was_sent(ended):
    """Where the variable of the key is not set, that is the reason."""
    error = await ended(replies.error(401, "Missing bearer authentication."), None)
    assert error.endswith("authentication; no key was sent to URL: export one in MY_KEY")


def test_a_certificate_that_is_not_trusted_names_the_variable_of_the_authority():
    """A server of one's own has a certificate that nobody else has signed."""
    cause = ssl.SSLCertVerificationError(1, "x")
    cause.verify_message = "self-signed certificate"
    error = httpx.ConnectError("")
    error.__cause__ = cause
    mapped = map_transport(error)
    spec = ProviderSpec(model="m", base_url="https://h/v1")
    assert mapped.words.endswith("the server's certificate is not good: self-signed certificate")
    step = remedy(mapped, spec, "https://h/v1", has_key=True)
    assert step.startswith("correct base_url (https://h/v1), or name the file of the authority")
    assert step.endswith("SSL_CERT_FILE")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("rate_limited", "slow down"),
        ("server", "busy"),
        ("overflow", "too long"),
        ("invalid_request", "no content filter of that name"),
        ("broken", "the answer was cut"),
    ],
)
def test_an_error_that_says_it_all_is_left_alone(kind: Kind, words: str):
    """No advice that leads nowhere."""
    spec = ProviderSpec(model="m", base_url="http://127.0.0.1:1/v1")
    assert remedy(ProviderError(kind, words), spec, "http://127.0.0.1:1/v1", has_key=True) == ""


def test_the_scripted_provider_has_no_address_to_correct():
    """It is started by itself, so its script is all that there is to look at."""
    spec = ProviderSpec(model="plan")
    steps: dict[Kind, str] = {"connection": "", "auth": "", "not_found": "check the script plan"}
    for kind, step in steps.items():
        assert remedy(ProviderError(kind, "x"), spec, "http://127.0.0.1:1", has_key=False) == step


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:pw@models.example:8/v1/?key=sk#x", "https://models.example:8/v1"),
        ("http://h:port/", "not a URL"),
        ("http://h/" + "x" * 5000, "http://h/xxx"),
    ],
)
def test_an_address_is_shown_without_what_may_be_secret(url, shown):
    """And in bounds."""
    found = shown_url(url)
    assert found.startswith(shown)
    assert "pw" not in found
    assert len(found) <= 200


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (OSError(101, "x"), "network is unreachable"),
        (OSError(113, "x"), "no route to host"),
        (ExceptionGroup("all attempts failed", [OSError(110, "x")]), "connection timed out"),
        (socket.gaierror(-3, "Temporary failure"), "cannot be resolved (Temporary failure)"),
        (ValueError("odd"), "ConnectError: all attempts failed"),
    ],
)
def test_a_failed_connection_says_why_in_the_systems_words(cause, words):
    """However deep the transport has wrapped the reason."""
    middle = OSError("all attempts failed")
    middle.__cause__ = cause
    error = httpx.ConnectError("all attempts failed")
    error.__context__ = middle
    assert words in map_transport(error).words
