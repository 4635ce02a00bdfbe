"""The log of an actor: where what it prints goes, and how it is kept from growing on."""

import os
from pathlib import Path

import pytest
import trio
from grove import Grove, played

from actors.testing.scripts import Call, Say
from supervisor import actor_log, tree
from supervisor.actor_log import LOG, cut_log, open_log

LEFT_OUT = b"what was printed before is left out: a log is cut at "


def test_a_log_that_is_too_long_keeps_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what is missing, and whoever writes into it goes on behind that."""
    monkeypatch.setattr(actor_log, "LOG_MAX", 1000)
    monkeypatch.setattr(actor_log, "LOG_KEPT", 100)
    cut_log(tmp_path)  # Before there is one.
    fd = open_log(tmp_path)
    assert isinstance(fd, int)
    os.write(fd, b"a" * 1000)
    cut_log(tmp_path)
    assert (tmp_path / LOG).stat().st_size == 1000
    os.write(fd, b"b" * 500)
    cut_log(tmp_path)
    os.write(fd, b"c")
    os.close(fd)
    assert (tmp_path / LOG).read_bytes() == (
        b"[... " + LEFT_OUT + b"1000 bytes ...]\n" + b"b" * 100 + b"c"
    )


@played
async def test_a_tool_that_prints_without_end_fills_no_disk(
    grove: Grove, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log is cut while it runs, in whichever run, and what it says last is there."""
    monkeypatch.setattr(actor_log, "LOG_MAX", 20_000)
    monkeypatch.setattr(actor_log, "LOG_KEPT", 1000)
    monkeypatch.setattr(tree, "LOOK_SECONDS", 0.01)
    grove.family(1, [Call("chatter"), Say("done")], "chatter")
    log = grove.folder / "state" / "runs" / "r1.1.0" / LOG

    async def act() -> None:
        await grove.heard("tool_progress", "r1.1.0")
        before, cuts = 0, 0
        while cuts < 5:
            await trio.sleep(0.005)
            size = log.stat().st_size
            before, cuts = size, cuts + (size < before)
        grove.go()

    report = await grove.beside(act)
    assert report.status == "completed"
    data = log.read_bytes()
    assert len(data) <= 20_000
    assert LEFT_OUT in data
    assert data.endswith(b"x\n")
