"""Clients of a scripted provider, and the requests that they send."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx

TASK = {"role": "user", "content": "Which file mentions a timeout?"}

Provide = Callable[..., Awaitable[httpx.AsyncClient]]
"""Starts a provider with these settings; a client of it comes back."""


def body(*messages: dict[str, Any], model: str = "plan", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [TASK, *messages], **more}


async def ask(client: httpx.AsyncClient, request: dict[str, Any], **headers: str) -> Any:
    response = await client.post("/chat/completions", json=request, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()
