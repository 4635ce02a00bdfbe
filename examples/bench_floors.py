"""What any harness is held against: the same requests by hand over httpx, and made beforehand."""

import json
import time
from typing import Any

import httpx
import trio


def ready_made(url: str, bodies: list[bytes]) -> dict[str, Any]:
    """The floor under any harness: bodies made beforehand, and answers that nobody reads."""

    async def main() -> dict[str, Any]:
        async with httpx.AsyncClient(verify=False, trust_env=False) as client:
            headers = {"content-type": "application/json"}
            cpu, wall = time.process_time(), time.perf_counter()
            marks: list[float] = []
            for body in bodies:
                answer = await client.post(f"{url}/chat/completions", content=body, headers=headers)
                assert answer.status_code == 200, answer.text
                marks.append(time.process_time())
            return {
                "cpu": time.process_time() - cpu,
                "wall": time.perf_counter() - wall,
                "marks": marks,
            }

    return trio.run(main)


def raw_loop(url: str, bodies: list[bytes]) -> dict[str, Any]:
    """A loop as one writes it by hand over httpx: no journal, no limits, no trace.

    It keeps a list of messages, sends it with ``json=``, reads the streamed answer line by line,
    and calls the tool, for the same requests as ``bodies``.
    """
    first = json.loads(bodies[0])

    async def main() -> dict[str, Any]:
        messages: list[dict[str, Any]] = list(first["messages"])
        marks: list[float] = []
        async with httpx.AsyncClient(verify=False, trust_env=False) as client:
            cpu, wall = time.process_time(), time.perf_counter()
            for _ in bodies:
                request = first | {"messages": messages}
                text, calls = "", dict[int, dict[str, Any]]()
                async with client.stream(
                    "POST", f"{url}/chat/completions", json=request
                ) as response:
                    response.raise_for_status()
                    async for line in response.aiter_lines():
                        if not line.startswith("data: ") or line == "data: [DONE]":
                            continue
                        for choice in json.loads(line[6:])["choices"]:
                            delta = choice["delta"]
                            text += delta.get("content") or ""
                            for part in delta.get("tool_calls") or ():
                                call = calls.setdefault(part["index"], {"arguments": ""})
                                call["id"] = part.get("id") or call.get("id")
                                function = part["function"]
                                call["name"] = function.get("name") or call.get("name")
                                call["arguments"] += function.get("arguments") or ""
                made = [
                    {
                        "id": f"call-{len(messages)}-{index}",
                        "type": "function",
                        "function": {"name": call["name"], "arguments": call["arguments"]},
                    }
                    for index, call in calls.items()
                ]
                messages.append({"role": "assistant", "content": text or None, "tool_calls": made})
                for call in made:
                    result = {"role": "tool", "tool_call_id": call["id"], "content": "x" * 200}
                    messages.append(result)
                marks.append(time.process_time())
            return {
                "cpu": time.process_time() - cpu,
                "wall": time.perf_counter() - wall,
                "marks": marks,
            }

    return trio.run(main)
