"""The scripted provider: chat completions by script, with an exact bill.

It keeps nothing about a run: the turn is the number of assistant messages in the request. What it
does remember lives in memory, is bounded, and may vanish at a restart: counts already made, the
prefix cache, and which faults have fired for whom. A fault belongs to a run, known by the part of
the Idempotency-Key before its first ``/`` or ``:``, or else by its first user message. Worlds that
share a provider may have runs of one name: each asks at ``/WORLD/v1``, and its keys are billed as
``WORLD/KEY``.
"""

import contextlib
import os
import re
import signal
import socket
import struct
from collections.abc import Sequence

import msgspec
import trio

from actors.money import Usage
from actors.testing import replies
from actors.testing.chat import Chat, ChatError, decode
from actors.testing.faults import BILLED, Fault, FaultBook, FaultKind, check_faults
from actors.testing.meter import Measure, Meter
from actors.testing.replies import Answer, Reply
from actors.testing.scripts import Conversation, Script, ScriptError, load, no_script, play
from actors.testing.server import Request, serve_http
from actors.tokens import TokenizerError, encoding

FRAME_MAX = 1024 * 1024
HANDSHAKE_SECONDS = 30.0
_LENGTH = struct.Struct("<I")


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a scripted provider behaves."""

    script: str = ""
    """Plays for requests whose model is no script; empty: such a request gets a 404."""
    latency_ms: float = 0.0
    window_tokens: int = 0
    """Requests of more tokens are refused; 0: no limit."""
    faults: tuple[Fault, ...] = ()
    ledger: str | None = None
    """A file that gets one JSON line for each billed reply, before the reply is sent."""
    modules: tuple[str, ...] = ()
    """Users' scripts, as ``module`` or ``module:attribute``."""
    search_path: tuple[str, ...] = ()
    """Folders put on ``sys.path`` before the modules are imported."""
    port: int = 0


class Ready(msgspec.Struct, frozen=True, omit_defaults=True):
    """What ``main`` writes back: where it serves which scripts, or why it does not."""

    base_url: str = ""
    scripts: tuple[str, ...] = ()
    error: str = ""
    key: str = ""
    """What of its settings is at fault, as the key of a ``[provider]`` table; empty: not known."""


class Bill(msgspec.Struct, frozen=True):
    """One line of the ledger."""

    key: str | None
    turn: int
    model: str
    input_tokens: int
    output_tokens: int
    cached_input_tokens: int


class Provider:
    """Decides what each request is answered; it never waits.

    Raises:
        ValueError: settings that cannot be, in words.
        ScriptError: a script that cannot be loaded or is not there.
        OSError: the ledger cannot be opened.
    """

    def __init__(self, settings: ProviderSettings) -> None:
        if settings.latency_ms < 0 or settings.window_tokens < 0:
            raise ValueError("latency_ms and window_tokens must not be negative")
        self._settings = settings
        self._faults = check_faults(settings.faults)
        self._scripts = load(settings.modules, settings.search_path)
        if settings.script and settings.script not in self._scripts:
            raise ScriptError(no_script(settings.script, self._scripts), "script")
        self._meter = Meter()
        self._book = FaultBook()
        self._ledger = -1
        if settings.ledger is not None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._ledger = os.open(settings.ledger, flags, 0o600)

    @property
    def scripts(self) -> tuple[str, ...]:
        """The names of the scripts that it plays."""
        return tuple(sorted(self._scripts))

    def close(self) -> None:
        """Close the ledger."""
        if self._ledger >= 0:
            os.close(self._ledger)
            self._ledger = -1

    def answer(self, request: Request) -> Answer | None:
        """The answer to one request; None: it is never answered."""
        world, _, path = request.path.rpartition("/v1")
        match request.method, path:
            case "POST", "/chat/completions":
                try:
                    return self._complete(request, world.removeprefix("/"))
                except ChatError as bad:
                    words = str(bad)
                    return replies.error(bad.status, words, code=bad.code, param=bad.param)
                except ScriptError as bad:
                    return replies.error(500, str(bad), kind="server_error", code="script_error")
            case "GET", "/models":
                return self._models()
            case _, "/chat/completions" | "/models":
                return replies.error(405, f"{request.method} is not allowed here.")
            case _:
                return replies.error(404, f"Invalid URL ({request.method} {request.path})")

    def _models(self) -> Answer:
        models = [
            {"id": name, "object": "model", "created": 0, "owned_by": "exeunt"}
            for name in self.scripts
        ]
        return Answer(body=replies.to_json({"object": "list", "data": models}))

    def _complete(self, request: Request, world: str) -> Answer | None:
        chat = decode(request.body)
        script = self._script(chat.model)
        conversation = chat.conversation()
        measure = self._meter.measure(chat)
        key = request.headers.get(b"idempotency-key", b"").decode("latin-1") or None
        run = re.split("[/:]", key, maxsplit=1)[0] if key else f"task {conversation.task}"
        faults = script.faults + self._faults
        fault = self._book.take(faults, conversation.turn + 1, f"{script.name}\0{world}\0{run}")
        if world:
            key = f"{world}/{key or ''}"
        window = self._settings.window_tokens
        if fault is not None and fault.kind not in BILLED:
            return replies.refused(fault, measure.input_tokens, window or measure.input_tokens // 2)
        if window and measure.input_tokens > window:
            return replies.too_long(measure.input_tokens, window)
        return self._reply(chat, script, conversation, measure, key, fault and fault.kind)

    def _script(self, model: str) -> Script:
        found = self._scripts.get(model) or self._scripts.get(self._settings.script)
        if found is None:
            words = f"The model `{model}` does not exist or you do not have access to it."
            raise ChatError(words, status=404, code="model_not_found", param="model")
        return found

    def _reply(
        self,
        chat: Chat,
        script: Script,
        conversation: Conversation,
        measure: Measure,
        key: str | None,
        kind: FaultKind | None,
    ) -> Answer:
        text, calls = play(script, conversation)
        text, calls, output_tokens, cut = replies.limited(text, calls, chat.max_tokens)
        usage = Usage(measure.input_tokens, output_tokens, self._meter.cached(measure))
        self._meter.remember(measure)
        self._bill(Bill(key, conversation.turn + 1, chat.model, *_amounts(usage)))
        reply = Reply(
            id=f"chatcmpl-{measure.prefixes[-1][0].hex()}",
            model=chat.model,
            text=text,
            calls=calls,
            output_tokens=output_tokens,
            cut=cut,
        )
        if chat.stream:
            return replies.streamed(reply, usage, chat.include_usage, kind)
        return replies.whole(reply, usage, kind)

    def _bill(self, bill: Bill) -> None:
        if self._ledger >= 0:
            # One write of a short line: appended whole or not at all, whoever else appends.
            os.write(self._ledger, msgspec.json.encode(bill) + b"\n")


def _amounts(usage: Usage) -> tuple[int, int, int]:
    return usage.input_tokens, usage.output_tokens, usage.cached_input_tokens


async def serve(
    settings: ProviderSettings,
    listeners: Sequence[trio.SocketListener] | None = None,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; ``nursery.start`` returns the base URL, which ends in ``/v1``.

    Without listeners it opens ``settings.port`` on 127.0.0.1, 0 being any free port.

    Raises:
        ValueError: settings that cannot be, in words.
        ScriptError: a script that cannot be loaded or is not there.
        OSError: the port or the ledger cannot be opened.
    """
    provider = Provider(settings)
    try:
        encoding()  # here, so that no request pays for the half second it takes
        if listeners is None:
            listeners = await trio.open_tcp_listeners(settings.port, host="127.0.0.1")
        host, port = listeners[0].socket.getsockname()[:2]
        task_status.started(f"http://{host}:{port}/v1")
        await serve_http(provider.answer, listeners, settings.latency_ms / 1000)
    finally:
        provider.close()


def main(fd: int) -> int:
    """Be the provider's process: settings come in as a frame on a socket, a Ready goes back.

    Frames are a 4-byte little-endian length and msgpack, as between supervisor and actor. Serves
    until the other end of ``fd`` is closed. Returns the exit status: 0, or 2 when it cannot serve,
    which the Ready then explains.
    """
    # Ctrl-C goes to the whole terminal group; this process leaves when its channel is closed.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=fd) as channel:
        channel.settimeout(HANDSHAKE_SECONDS)
        try:
            settings = msgspec.msgpack.decode(_read_frame(channel), type=ProviderSettings)
            rehearsal = Provider(settings)  # so that a mistake is told in words
            rehearsal.close()
            encoding()
            bound = socket.create_server(("127.0.0.1", settings.port))
        except (ValueError, ScriptError, TokenizerError, OSError, EOFError) as problem:
            with contextlib.suppress(OSError):  # nobody may be left to read why
                key = problem.key if isinstance(problem, ScriptError) else ""
                _send_frame(channel, Ready(error=str(problem), key=key))
            return 2
        trio.run(_serve_channel, settings, rehearsal.scripts, bound, channel)
    return 0


async def _serve_channel(
    settings: ProviderSettings,
    scripts: tuple[str, ...],
    bound: socket.socket,
    channel: socket.socket,
) -> None:
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(bound))
    async with trio.open_nursery() as nursery:
        base_url: str = await nursery.start(serve, settings, [listener])
        with contextlib.suppress(OSError):  # a reset is the other end's way of closing, too
            _send_frame(channel, Ready(base_url=base_url, scripts=scripts))
            ears = trio.socket.from_stdlib_socket(channel)
            while await ears.recv(1):
                pass
        nursery.cancel_scope.cancel()


def _read_frame(channel: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(_read_exactly(channel, _LENGTH.size))
    if length > FRAME_MAX:
        raise ValueError(f"settings of {length} bytes are over the limit of {FRAME_MAX}")
    return _read_exactly(channel, length)


def _read_exactly(channel: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = channel.recv(size - len(data))
        if not part:
            raise EOFError("the channel was closed before the settings were whole")
        data += part
    return data


def _send_frame(channel: socket.socket, ready: Ready) -> None:
    body = msgspec.msgpack.encode(ready)
    channel.sendall(_LENGTH.pack(len(body)) + body)
