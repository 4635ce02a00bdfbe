"""A process takes a run: the ``run.opened`` that begins its epoch, for an actor or a verdict."""

import os
from pathlib import Path

from actors.events import SCHEMA, Opened
from actors.journal import hostname
from actors.messages import Prompt
from actors.money import Prices
from actors.record import Record
from actors.spec import Limits
from actors.version import VERSION


def begin(
    record: Record,
    *,
    why: str,
    run_id: str,
    root: str,
    agent: str,
    durability: str,
    config_digest: str,
    limits: Limits,
    tools: dict[str, str],
    prices: Prices | None,
    prompts: tuple[Prompt, ...] = (),
    crash: str = "",
) -> Opened:
    """The ``run.opened`` of the next epoch, for this process; the caller records it next."""
    opened = Opened(
        schema=SCHEMA,
        run_id=run_id,
        root=root,
        agent=agent,
        epoch=record.journal.epoch + 1,
        pid=os.getpid(),
        host=hostname(),
        boot_id=_boot_id(),
        durability=durability,
        code_version=VERSION,
        config_digest=config_digest,
        why=why,
        limits=limits,
        tools=tools,
        prices=prices,
        prompts=prompts,
        crash=crash,
        dropped=record.journal.dropped,
    )
    record.journal.begin(opened)
    return opened


def visit(record: Record) -> Opened:
    """The ``run.opened`` of a person who leaves word in a run that nobody performs now."""
    state = record.state
    return begin(
        record,
        why="verdict",
        run_id=state.run_id,
        root=state.root,
        agent=state.agent,
        durability=state.durability,
        config_digest=state.config_digest,
        limits=state.limits,
        tools=state.tools,
        prices=state.prices,
    )


def _boot_id() -> str:
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""
