"""``exeunt provider``: the scripted provider alone, for runs configured elsewhere."""

import argparse
import signal
import sys
from pathlib import Path

import trio

from actors.testing.provider import ProviderSettings, serve
from actors.testing.scripts import ScriptError
from supervisor import output
from supervisor.commands import UsageError
from supervisor.terminal import visible


def provider(args: argparse.Namespace) -> int:
    """Serve until a signal ends it; the address is the product."""
    settings = ProviderSettings(
        script=args.script,
        latency_ms=args.latency_ms,
        window_tokens=args.window_tokens,
        ledger=args.ledger,
        modules=tuple(args.scripts),
        search_path=(str(Path.cwd()),),
        port=args.port,
    )
    try:
        trio.run(_serve, settings, args.json)
    except* (ValueError, ScriptError, OSError) as group:
        words = "; ".join(sorted({str(error) for error in _leaves(group)}))
        raise UsageError(f"the scripted provider cannot serve: {words}") from None
    return 0


async def _serve(settings: ProviderSettings, as_json: bool) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as received:
        async with trio.open_nursery() as nursery:
            base_url: str = await nursery.start(serve, settings)
            if as_json:
                output.document({"base_url": base_url})
            else:
                output.text(base_url)
            output.write_note(sys.stderr, visible(f"serving at {base_url}; Ctrl-C ends it"))
            async for _ in received:
                break
            nursery.cancel_scope.cancel()


def _leaves(group: BaseExceptionGroup[Exception]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
