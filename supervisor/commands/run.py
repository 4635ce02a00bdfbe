"""``exeunt run`` and ``exeunt resume``: a run in the foreground, with its supervisor."""

import argparse
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from pathlib import Path

import trio

import supervisor
from actors.money import nusd
from actors.outcome import RESUMABLE, root_of
from actors.spec import LimitChange
from supervisor import output
from supervisor.commands import UsageError
from supervisor.config import Config, api_key, key_names, load_config
from supervisor.late_stop import end_left
from supervisor.progress import Progress
from supervisor.report import EXIT_KILLED, Report, tree_report
from supervisor.standing import standing_of, tree_ids
from supervisor.state_dir import StateDir, new_run_id
from supervisor.supervisor import Supervisor, open_supervisor
from supervisor.terminal import Style, visible
from supervisor.tree_lock import lock_tree
from supervisor.words import Commands, count, ending, money, next_steps

SIGNALS = {
    signal.SIGINT: "cancelled: ctrl-c",
    signal.SIGTERM: "cancelled: SIGTERM",
    signal.SIGHUP: "cancelled: SIGHUP",
}
"""The signals that stop a run, and the reason that is recorded."""

Work = Callable[[Supervisor], Awaitable[Report]]


def run(args: argparse.Namespace) -> int:
    """Start a root run and go on to its end."""
    check_environment()
    config = load_config(args.config, args.sets, args.task)
    # Whatever is wrong with it shall be told before there is a run on disk.
    config.run_spec()
    for agent in config.agents_in_use():
        api_key(config, agent=agent)
    state_dir = StateDir(args.state_dir)
    run_id: str = new_run_id() if args.run_id is None else args.run_id
    if state_dir.exists(run_id):
        hint = Commands(args.state_dir_shown).line("resume", run_id)
        raise UsageError(f"there is a run {run_id} already. Go on with it: {hint}")
    if root_of(run_id) != run_id:
        raise UsageError(f"{run_id} is a name for a child, as it has a dot; choose another")

    async def work(tree: Supervisor) -> Report:
        return await tree.run(config, run_id)

    return perform(args, state_dir, run_id, config, work)


def resume(args: argparse.Namespace) -> int:
    """Go on with a run from disk."""
    budget: float | None = args.max_budget_usd
    raised = LimitChange(
        max_turns=args.max_turns,
        max_budget_nusd=None if budget is None else nusd(budget),
        deadline_seconds=args.deadline_s,
    )
    return go_on(args, args.run, raised)


def go_on(args: argparse.Namespace, run_id: str, raised: LimitChange | None = None) -> int:
    """Resume a root run; one that has ended for good is only told."""
    check_environment()
    state_dir = StateDir(args.state_dir)
    state_dir.existing(run_id)
    if (root := root_of(run_id)) != run_id:
        hint = Commands(args.state_dir_shown).line("resume", root)
        raise UsageError(f"{run_id} is a child and goes on with its root. Type: {hint}")
    config = state_dir.config(run_id)
    state = state_dir.state(run_id)
    if state.outcome and state.outcome.status not in RESUMABLE:
        before = found = tree_report(state_dir, run_id)
        with lock_tree(state_dir.run_dir(run_id)) as refused:
            if refused is None:
                found = trio.run(end_left, state_dir, found)
        done = "nothing was done" if found == before else "what was left below it has ended now"
        output.note(f"{run_id} had ended; {done}")
        return tell(args, found, Style(sys.stderr))
    if raised:
        worked = state.head.active_seconds
        _refuse_used_up(tree_report(state_dir, run_id), worked, raised)

    async def work(tree: Supervisor) -> Report:
        return await tree.resume(run_id, raised)

    return perform(args, state_dir, run_id, config, work)


def _refuse_used_up(found: Report, worked_seconds: float, raised: LimitChange) -> None:
    """Raise UsageError for a limit of which the run has used all already: it would do nothing."""
    spent = found.tree.cost_usd + found.tree.possibly_spent_usd
    used: list[tuple[float | None, float, str, str]] = [
        (raised.max_turns, found.turns, f"made {count(found.turns, 'turn')}", "--max-turns"),
        (
            raised.max_budget_nusd,
            nusd(spent),
            f"spent {money(spent)}, with all below it and what was possibly spent",
            "--max-budget-usd",
        ),
        (raised.deadline_seconds, worked_seconds, f"worked {worked_seconds:.1f} s", "--deadline-s"),
    ]
    for limit, so_far, words, option in used:
        if limit is not None and limit <= so_far:
            raise UsageError(f"{found.run_id} has {words}; give {option} more than that")


def check_environment() -> None:
    """Raise UsageError for what would keep every process from being started."""
    kind = os.environ.get("EXEUNT_SPAWN") or "zygote"
    if kind not in ("zygote", "subprocess"):
        raise UsageError(f"EXEUNT_SPAWN is {kind!r}; set it to zygote or subprocess, or unset it")
    if supervisord_is_here():
        raise UsageError(
            "the package supervisor (supervisord) is installed in the same environment, and its "
            "files lie among ours; install exeunt in an environment of its own"
        )


def supervisord_is_here() -> bool:
    """Whether files of supervisord lie in our package's folder."""
    return Path(supervisor.__file__).with_name("supervisord.py").exists()


def perform(
    args: argparse.Namespace, state_dir: StateDir, run_id: str, config: Config, work: Work
) -> int:
    """Do supervised work on one run with live progress, and tell its ending."""
    provider = config.provider_of()
    spec = config.run_spec()
    progress = Progress(sys.stderr)
    logging.basicConfig(level=logging.WARNING, handlers=[_Warnings(progress)])
    for name in tree_ids(state_dir, run_id) if state_dir.exists(run_id) else ():
        standing = standing_of(state_dir, name)
        progress.know(standing.state)
        if standing.warning:
            progress.note(f"exeunt: {name}: {standing.warning}")
    header = (run_id, spec.agent, f"{provider.kind}:{spec.provider.model}")
    try:
        found = trio.run(supervise, state_dir, key_names(config), progress, header, work)
    finally:
        progress.close()
    if found is None and not state_dir.run_dir(run_id).exists():
        words = "killed before there was a run"
        output.note(words)
        if args.json:
            output.document({"error": words})
        return EXIT_KILLED
    # Of a run that was killed, its journal tells how far it came.
    return tell(args, found or tree_report(state_dir, run_id), progress.style)


class _Warnings(logging.Handler):
    """Shows warnings among the lines of the live view, whose block they would tear otherwise."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        self._progress.note(f"exeunt: {record.getMessage()}")


def tell(args: argparse.Namespace, found: Report, style: Style) -> int:
    """Print a run's answer and ending; returns the exit code."""
    if args.json:
        output.document(found)
    elif found.output is not None:
        output.text(visible(found.output, multiline=True))
    commands = Commands(args.state_dir_shown)
    output.write_note(sys.stderr, ending(found, style))
    output.write_note(sys.stderr, next_steps(found, commands))
    return found.exit_code


async def supervise(
    state_dir: StateDir,
    key_names: Collection[str],
    progress: Progress,
    header: tuple[str, str, str],
    work: Work,
) -> Report | None:
    """Do the work with a supervisor, stopped by the first signal and killed by the second.

    ``header`` names the run, its agent and its model. None when it was killed. Raises what the
    work raises.
    """
    found: Report | None = None
    failure: Exception | None = None
    # The receiver comes first: while the spawner starts there is no default handler to die by.
    with trio.open_signal_receiver(*_signals()) as received:
        progress.header(*header)
        async with trio.open_nursery() as nursery:
            stopping = _Stopping(progress, nursery.cancel_scope)
            nursery.start_soon(stopping.listen, received)
            nursery.start_soon(progress.animate)
            try:
                async with open_supervisor(
                    state_dir, listener=progress.take, key_names=key_names
                ) as tree:
                    stopping.attach(tree)
                    found = await work(tree)
                    while found.answered and not stopping.asked:
                        # All verdicts came while others still worked, so nobody has to resume.
                        found = await tree.resume(found.run_id)
            except Exception as error:
                # Kept, as the nursery would hand it on inside a group.
                failure = error
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return found


def _signals() -> list[signal.Signals]:
    # nohup ignores SIGHUP on purpose.
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [one for one in SIGNALS if one is not signal.SIGHUP or not ignored]


class _Stopping:
    """What signals do to a supervisor, also to one that is not there yet."""

    def __init__(self, progress: Progress, scope: trio.CancelScope) -> None:
        self._progress = progress
        self._scope = scope
        self._tree: Supervisor | None = None
        self._reason: str | None = None

    @property
    def asked(self) -> bool:
        """Whether a signal came."""
        return self._reason is not None

    def attach(self, tree: Supervisor) -> None:
        self._tree = tree
        if self._reason:
            tree.stop(self._reason)

    async def listen(self, received: AsyncIterator[int]) -> None:
        async for number in received:
            if self._reason:
                break
            self._reason = SIGNALS[signal.Signals(number)]
            self._progress.note(f"{self._reason}: stopping; once more kills")
            if self._tree:
                self._tree.stop(self._reason)
        if self._tree:
            self._tree.kill()
        self._scope.cancel()
