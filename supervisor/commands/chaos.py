"""``exeunt chaos``: the user's own tree, killed and frozen again and again, and what came of it."""

import argparse
import os
import random
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from actors import prctl
from actors.testing.chaos_report import ChaosReport
from supervisor import output
from supervisor.chaos.findings import findings
from supervisor.chaos.life import kill_left_behind
from supervisor.chaos.plan import Plan, PlanError, draw, parse
from supervisor.chaos.ready import marked, restart_marked
from supervisor.chaos.recorded import check_recorded, record
from supervisor.chaos.round import GONE_SECONDS, Round, Unstarted
from supervisor.chaos.session import NoReference, Session, open_session
from supervisor.cli_numbers import SEEDS
from supervisor.commands import UsageError
from supervisor.commands.run import SIGNALS, check_environment
from supervisor.config import Config, key_names, load_config
from supervisor.report import EXIT_KILLED
from supervisor.state_dir import StateDir
from supervisor.terminal import Style, visible
from supervisor.words import count

KILLS = 20
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
    chosen = check_plans(args)
    if recorded:
        check_recorded(StateDir(args.state_dir), recorded, config)
    seed: int = secrets.randbelow(SEEDS) if args.seed is None else args.seed
    started = time.monotonic()
    rounds: list[Round] = []
    _be_interruptible()
    try:
        session, interrupted = _hold(
            config, bool(recorded), chosen, args.kills or KILLS, seed, rounds
        )
    except NoReference as error:
        return _end_early(args, str(error), EXIT_BROKEN)
    if session is None:
        return _end_early(args, f"interrupted before the first round, seed {seed}", EXIT_KILLED)
    found = findings(
        session,
        rounds,
        command=_command(args),
        seed=seed,
        seconds=time.monotonic() - started,
        chosen=bool(chosen),
        interrupted=interrupted,
    )
    if args.json:
        output.document(found)
    _tell(found, Style(sys.stderr))
    return EXIT_KILLED if interrupted else 0 if found.ok else EXIT_BROKEN


def _be_interruptible() -> None:
    """Let the first signal end the session in good order; what comes after it is not heard."""

    def interrupt(number: int, _: object) -> None:
        for one in SIGNALS:
            signal.signal(one, signal.SIG_IGN)
        raise KeyboardInterrupt

    for one in SIGNALS:
        # nohup ignores SIGHUP on purpose.
        if one is not signal.SIGHUP or signal.getsignal(one) is not signal.SIG_IGN:
            signal.signal(one, interrupt)


def _hold(
    config: Config, recorded: bool, chosen: list[Plan], kills: int, seed: int, rounds: list[Round]
) -> tuple[Session | None, bool]:
    """Hold the session, and fill in its ``rounds``; says whether a signal cut it short.

    Returns no session where it was cut short before there was one. Raises NoReference.
    """
    session: Session | None = None
    # Whatever a worker leaves that is cut short becomes ours, and is gone before the folder is.
    prctl.adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="exeunt-chaos-") as folder:
        try:
            with open_session(config, Path(folder), recorded=recorded, waiting=_still) as session:
                if chosen:
                    _perform(session, chosen, rounds)
                else:
                    _perform_drawn(session, kills, random.Random(seed), rounds)
        except Unstarted as refused:
            raise UsageError(str(refused)) from None
        except KeyboardInterrupt:
            return session, True
        finally:
            kill_left_behind(GONE_SECONDS)
    return session, False


def _end_early(args: argparse.Namespace, words: str, code: int) -> int:
    output.note(f"exeunt: {words}")
    if args.json:
        output.document({"error": words})
    return code


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


def check_plans(args: argparse.Namespace) -> list[Plan]:
    """The plans that were typed; raises UsageError."""
    plans: list[str] = args.plans or []
    if plans and args.kills is not None:
        raise UsageError("--kills draws so many rounds, and --plan says which: give one of them")
    try:
        return [parse(plan) for plan in plans]
    except PlanError as error:
        raise UsageError(f"--plan: {error}") from None


def _perform(session: Session, plans: Sequence[Plan], rounds: list[Round]) -> None:
    workers = min(WORKERS_MAX, os.cpu_count() or 1)
    for number, one in enumerate(session.perform(plans, workers), 1):
        rounds.append(one)
        output.note(f"{number:>4}/{len(plans)}  {_line(one)}")


def _perform_drawn(session: Session, kills: int, rng: random.Random, rounds: list[Round]) -> None:
    """So many rounds; those that struck nothing are made up for at other boundaries."""
    _perform(session, draw(session.boundaries, kills, rng, session.tools), rounds)
    for _ in range(MAKE_UP_MAX):
        met = [one for one in rounds if one.struck or one.failure]
        missed = kills - len(met)
        if not missed:
            break
        output.note(f"{count(missed, 'round')} missed; at other boundaries once more")
        rounds[:] = met
        _perform(session, draw(session.boundaries, missed, rng), rounds)


def _line(one: Round) -> str:
    if one.failure:
        return f"BROKEN   {one.plan}: {visible(one.failure.strip().splitlines()[-1])}"
    if not one.struck:
        return f"missed   {one.plan}"
    doubts = ", ".join(one.doubts)
    return f"{'in doubt ' if doubts else 'kept     '}{one.plan}{f' ({doubts})' if doubts else ''}"


def _tell(found: ChaosReport, style: Style) -> None:
    words = [
        *([style.bold("interrupted: what was found until then")] if found.interrupted else []),
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
