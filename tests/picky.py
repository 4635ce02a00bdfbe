"""A scripted provider behind a door: what the door refuses never reaches the script."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import trio

from actors.testing import replies
from actors.testing.provider import Provider, ProviderSettings
from actors.testing.replies import Answer
from actors.testing.server import Request, serve_http

Door = Callable[[dict[str, Any]], Answer | None]
"""Sees the body of a request; None lets it in."""


class Picky:
    """Serves a script to whoever asks as the door wants it, and keeps every body."""

    def __init__(self, script: str, door: Door, ledger: str | None = None) -> None:
        self._inside = Provider(ProviderSettings(script=script, ledger=ledger))
        self._door = door
        self.bodies: list[dict[str, Any]] = []

    async def serve(self, *, task_status: trio.TaskStatus[str]) -> None:
        """Serve until cancelled; ``nursery.start`` returns the base URL."""
        try:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            port = listeners[0].socket.getsockname()[1]
            task_status.started(f"http://127.0.0.1:{port}/v1")
            await serve_http(self._answer, listeners)
        finally:
            self._inside.close()

    def _answer(self, request: Request) -> Answer | None:
        body = json.loads(request.body)
        self.bodies.append(body)
        return self._door(body) or self._inside.answer(request)


def one_name(name: str) -> Door:
    """Know the output limit under this name alone, and refuse the other as OpenAI does."""

    def door(body: dict[str, Any]) -> Answer | None:
        for other in {"max_tokens", "max_completion_tokens"} - {name}:
            if other in body:
                words = (
                    f"Unsupported parameter: '{other}' is not supported with this model. "
                    f"Use '{name}' instead."
                )
                return replies.error(400, words, code="unsupported_parameter", param=other)
        return None

    return door


def alternate(body: dict[str, Any]) -> Answer | None:
    """Refuse two user messages in a row, as chat templates do."""
    roles = [message["role"] for message in body["messages"]]
    if ("user", "user") in itertools.pairwise(roles):
        return replies.error(400, "Conversation roles must alternate user/assistant/...")
    return None


def content_is(wanted: str) -> Door:
    """Take one form of a message without text: ``null``, ``empty`` or ``omit``."""

    def door(body: dict[str, Any]) -> Answer | None:
        for message in body["messages"]:
            content = message.get("content", "omit")
            form = {None: "null", "": "empty", "omit": "omit"}.get(content, wanted)
            if form != wanted:
                return replies.error(400, f"invalid content: {form}", param="messages")
        return None

    return door
