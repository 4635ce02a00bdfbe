"""``exeunt chaos``: the user's own tree, killed and frozen again and again, and what came of it."""

import argparse
import os
import random
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from actors.testing.chaos_report import ChaosReport
from supervisor import output
from supervisor.chaos.findings import findings
from supervisor.chaos.plan import Plan, PlanError, draw, parse
from supervisor.chaos.ready import marked, restart_marked
from supervisor.chaos.recorded import record
from supervisor.chaos.round import Round, Unstarted
from supervisor.chaos.session import NoReference, Session, open_session
from supervisor.cli_numbers import SEEDS
from supervisor.commands import UsageError
from supervisor.commands.run import check_environment
from supervisor.config import key_names, load_config
from supervisor.state_dir import StateDir
from supervisor.terminal import Style, visible
from supervisor.words import count

WORKERS_MAX = 4
MAKE_UP_MAX = 3
"""How often rounds that struck nothing are made up for."""
EXIT_BROKEN = 1


def chaos(args: argparse.Namespace) -> int:
    """Strike the tree once a round at another boundary, check what it promised, and report."""
    check_environment()
    if sys.platform != "linux":
        raise UsageError("chaos finds the processes of a tree in /proc, so it needs Linux")
    if not marked():
        restart_marked(key_names(load_config(args.config, args.sets)))
    recorded: str | None = args.recorded
    task = record(StateDir(args.state_dir), recorded) if recorded else None
    config = load_config(args.config, args.sets, task)
    config.run_spec()
    chosen = _chosen(args.plans or ())
    seed: int = secrets.randbelow(SEEDS) if args.seed is None else args.seed
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="exeunt-chaos-") as folder:
        try:
            with open_session(
                config, Path(folder), recorded=bool(recorded), waiting=_still
            ) as session:
                rng = random.Random(seed)
                rounds = _rounds(session, chosen) or _drawn_rounds(session, args.kills, rng)
        except Unstarted as refused:
            raise UsageError(str(refused)) from None
        except NoReference as error:
            output.note(f"exeunt: {error}")
            if args.json:
                output.document({"error": str(error)})
            return EXIT_BROKEN
        found = findings(
            session,
            rounds,
            command=_command(args),
            seed=seed,
            seconds=time.monotonic() - started,
            chosen=bool(chosen),
        )
    if args.json:
        output.document(found)
    _tell(found, Style(sys.stderr))
    return 0 if found.ok else EXIT_BROKEN


def _command(args: argparse.Namespace) -> list[str]:
    """What was typed, short of seed, kills and plans."""
    words = ["exeunt", "chaos", args.config]
    for option in args.sets:
        words += ["--set", option]
    if args.state_dir_shown:
        words += ["--state-dir", args.state_dir_shown]
    return [*words, "--recorded", args.recorded] if args.recorded else words


def _still(seconds: float) -> None:
    output.note(f"      still at it: nothing new for {seconds:.0f} s")


def _chosen(plans: Sequence[str]) -> list[Plan]:
    try:
        return [parse(plan) for plan in plans]
    except PlanError as error:
        raise UsageError(f"--plan: {error}") from None


def _rounds(session: Session, plans: Sequence[Plan]) -> list[Round]:
    rounds: list[Round] = []
    workers = min(WORKERS_MAX, os.cpu_count() or 1)
    for one in session.perform(plans, workers):
        rounds.append(one)
        output.note(f"{len(rounds):>4}/{len(plans)}  {_line(one)}")
    return rounds


def _drawn_rounds(session: Session, kills: int, rng: random.Random) -> list[Round]:
    """So many rounds; those that struck nothing are made up for at other boundaries."""
    rounds = _rounds(session, draw(session.boundaries, kills, rng, session.tools))
    for _ in range(MAKE_UP_MAX):
        met = [one for one in rounds if one.struck or one.failure]
        if len(met) == kills:
            break
        output.note(f"{count(kills - len(met), 'round')} missed; at other boundaries once more")
        rounds = [*met, *_rounds(session, draw(session.boundaries, kills - len(met), rng))]
    return rounds


def _line(one: Round) -> str:
    if one.failure:
        return f"BROKEN   {one.plan}: {visible(one.failure.strip().splitlines()[-1])}"
    if not one.struck:
        return f"missed   {one.plan}"
    doubts = ", ".join(one.doubts)
    return f"{'in doubt ' if doubts else 'kept     '}{one.plan}{f' ({doubts})' if doubts else ''}"


def _tell(found: ChaosReport, style: Style) -> None:
    words = [
        f"{count(found.kills, 'round')} over {found.boundaries:,} boundaries of "
        f"{count(found.runs, 'run')}, {len(found.missed)} missed, seed {found.seed}, "
        f"{found.seconds:.1f} s",
        *(
            f"{style.bold('not safe to repeat')}: {visible(tool.words)}."
            + (f"\n  see it again: {visible(tool.replay)}" if tool.replay else "")
            for tool in found.unsafe_tools
        ),
        *(
            f"{style.bold('not the same twice even undisturbed')}: {visible(words)}. "
            "No round was held to it."
            for words in found.varying
        ),
        *(
            f"A kill used up the budget of {visible(agent)}, as what was possibly spent counts: "
            "raise its max_budget_usd, or lower max_output_tokens."
            for agent in found.short_budgets
        ),
        *(
            f"{style.red('broken')}: {visible(failure.words, multiline=True)}\n"
            f"  see it again: {visible(failure.replay)}"
            for failure in found.failures
        ),
    ]
    words += [f"{style.red('missed')}: {visible(missed)}." for missed in found.missed]
    if found.lifted:
        names = " and ".join(map(visible, found.lifted))
        words.append(f"{names} held undisturbed alone: to be struck takes time.")
    if found.untried:
        names = ", ".join(map(visible, found.untried))
        words.append(f"Never run again in these rounds, so nothing is known of them: {names}.")
    if found.ok:
        words.append(
            f"{style.green('ok')}: same ending, nothing billed, written or counted twice, "
            "no process left behind"
        )
    output.write_note(sys.stderr, "\n".join(words))
