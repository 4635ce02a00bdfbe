"""What is known of a run from outside of it: bills, effects, and what it said it had saved."""

from pathlib import Path

import msgspec

from actors.messages import ResultKind
from actors.testing.provider import Bill


class Broken(AssertionError):
    """A promise was broken; the words say which one and how."""


def hold(fact: bool, promise: str, words: str) -> None:
    """Raise Broken with the promise and the words, unless the fact holds."""
    if not fact:
        raise Broken(f"{promise}: {words}")


class Effect(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the tools' ledger: what a call did to the world, written when it did it."""

    kind: str
    """``read``, ``write`` (plain), ``keyed``, ``probed``, or a word of the test's own."""
    ref: str
    key: str = ""
    attempt: int = 1


class Evidence(msgspec.Struct, kw_only=True):
    """What is known of one run from outside of it, and where its journal is."""

    run_dir: Path
    crashes: int = 0
    bills: list[Bill] = []
    effects: list[Effect] = []
    notes: list[str] = []
    power_cut: bool = False
    """The power went, so that reads may have happened whose start nobody remembers."""


class Reference(msgspec.Struct, frozen=True):
    """How the same run ends when nobody disturbs it."""

    output: str | None
    results: dict[str, tuple[ResultKind, str]]


def read_effects(path: Path) -> list[Effect]:
    """Read the tools' ledger; none when nothing happened yet."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Effect) for line in lines]


class Bills:
    """The provider's ledger, which may grow while it is read; of one world where that is named."""

    def __init__(self, path: Path, world: str = "") -> None:
        self._path = path
        self._prefix = f"{world}/" if world else ""
        self._offset = 0
        self._runs: dict[str, list[Bill]] = {}

    def of(self, run_id: str) -> list[Bill]:
        """The bills of one run, oldest first."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            bill = msgspec.json.decode(line, type=Bill)
            key = bill.key or ""
            if key.startswith(self._prefix):
                whose = key.removeprefix(self._prefix).partition(":")[0]
                self._runs.setdefault(whose, []).append(bill)
        return list(self._runs.get(run_id, ()))
