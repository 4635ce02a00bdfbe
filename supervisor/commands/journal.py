"""``exeunt journal repair``: cuts a damaged journal at its first unsound byte, when told to."""

import argparse
import contextlib
import os
from pathlib import Path

from actors.damage import Damage, damage_of
from actors.journal import JOURNAL, TORN, Corrupt, Journal, disk_failed, take_lock
from actors.money import usd
from actors.outcome import root_of
from supervisor import output
from supervisor.commands import UsageError
from supervisor.report import EXIT_USAGE
from supervisor.state_dir import StateDir
from supervisor.terminal import visible
from supervisor.tree_lock import lock_tree
from supervisor.words import Commands, count, listed, money


def journal(args: argparse.Namespace) -> int:
    """Say what a repair would cut, and with ``--yes`` cut it and keep the bytes aside."""
    state_dir = StateDir(args.state_dir)
    run_id: str = args.run
    run_dir = state_dir.existing(run_id)
    commands = Commands(args.state_dir_shown)
    with lock_tree(state_dir.run_dir(root_of(run_id))) as refused:
        if refused:
            raise UsageError(refused.words)
        damage = _damage(state_dir, run_id)
        strangers = _strangers(state_dir, run_id, damage) if damage else []
        if damage and args.yes:
            with contextlib.ExitStack() as held:
                # An orphan of a supervisor that died may still write, as long as its grace lasts.
                for name in (run_id, *strangers):
                    held.callback(os.close, take_lock(state_dir.run_dir(name)))
                _put_aside(state_dir, run_dir / _aside(damage, ".runs"), strangers)
            Journal.open(run_dir, cut_damage=True).close()
    repaired = bool(damage and args.yes)
    if args.json:
        output.document(_document(run_id, damage, strangers, repaired))
    if damage is None:
        output.note(f"the journal of {run_id} is sound; there is nothing to repair")
        return 0
    output.note(_words(run_dir, damage, strangers, repaired))
    if repaired:
        output.note(f"next: {commands.line('resume', root_of(run_id))}")
        return 0
    output.note(
        f"Nothing was changed. To cut it: {commands.line('journal', 'repair', run_id)} --yes"
    )
    return EXIT_USAGE


def _damage(state_dir: StateDir, run_id: str) -> Damage | None:
    """What is wrong with a journal; raises JournalError where a cut mends nothing."""
    try:
        state_dir.events(run_id)
    except Corrupt:
        run_dir = state_dir.run_dir(run_id)
        if (run_dir / JOURNAL).exists() and (damage := damage_of(run_dir)):
            return damage
        raise
    return None


def _aside(damage: Damage, suffix: str = "") -> Path:
    """Where the journal keeps what it cuts, below the run's directory."""
    return Path(TORN) / f"{damage.offset}-{damage.offset + damage.size}{suffix}"


def _strangers(state_dir: StateDir, run_id: str, damage: Damage) -> list[str]:
    """The runs below whose calls are cut: another call will bear their name."""
    found: list[str] = []
    for name in state_dir.below(run_id):
        ref = ".".join(name.removeprefix(f"{run_id}.").split(".")[:2])
        try:
            damage.kept.call(ref)
        except KeyError:
            found.append(name)
    return found


def _put_aside(state_dir: StateDir, folder: Path, names: list[str]) -> None:
    """Move runs out of the tree; before the cut, so that a kill in between leaves it to be done."""
    try:
        for name in names:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            state_dir.run_dir(name).rename(folder / name)
    except OSError as error:
        raise disk_failed(folder, error) from None


def _words(run_dir: Path, damage: Damage, strangers: list[str], repaired: bool) -> str:
    cut, keeps, are = ("cut", "kept", "were") if repaired else ("would cut", "keeps", "would be")
    lines = [
        f"{run_dir / JOURNAL} is damaged at byte {damage.offset}, behind turn "
        f"{damage.kept.head.turns}: a repair {cut} {count(damage.size, 'byte')} with at least "
        f"{count(damage.events, 'event')} besides what cannot be read, and {keeps} them in "
        f"{run_dir / _aside(damage)}"
    ]
    if damage.turns:
        cost = money(usd(damage.cost_nusd))
        lines.append(f"  {count(damage.turns, 'turn')} ({cost}) will be asked and paid for again")
    if damage.calls:
        lines.append(f"  these calls may be run again: {listed(damage.calls)}")
    if strangers:
        lines.append(f"  the runs of calls that are cut {are} put beside it: {listed(strangers)}")
    return visible("\n".join(lines), multiline=True)


def _document(
    run_id: str, damage: Damage | None, strangers: list[str], repaired: bool
) -> dict[str, object]:
    found = damage and {
        "offset": damage.offset,
        "bytes": damage.size,
        "turns_kept": damage.kept.head.turns,
        "events": damage.events,
        "turns": damage.turns,
        "cost_usd": usd(damage.cost_nusd),
        "calls": damage.calls,
        "runs": strangers,
    }
    return {"run_id": run_id, "repaired": repaired, "damage": found}
