"""Chaos sessions from a test: what the pytest fixture ``exeunt_chaos`` gives.

A session runs in a process of its own, so it does not matter what the test's process has loaded,
which threads it has, or whether it is inside of trio or asyncio.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from actors.testing.chaos_report import ChaosReport

KILLS = 10
SECONDS_MAX = 600.0
SEED_VARIABLE = "EXEUNT_SEED"
"""The environment variable with the seed of all sessions that name none."""


class ChaosFailed(Exception):
    """The session could not be held: the configuration is wrong, or the tree fails undisturbed."""


class Chaos:
    """Holds chaos sessions; what the fixture ``exeunt_chaos`` gives a test."""

    def __call__(
        self,
        config: str | os.PathLike[str],
        *,
        kills: int = KILLS,
        seed: int | None = None,
        plans: Sequence[str] = (),
        sets: Sequence[str] = (),
        recorded: str | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        seconds_max: float = SECONDS_MAX,
    ) -> ChaosReport:
        """Strike the tree of a configuration, and return what came of it.

        Args:
            config: a TOML file with a scripted provider, or with a real one and ``recorded``.
            kills: rounds, each with strikes at another boundary.
            seed: decides which; ``EXEUNT_SEED``, or a new one, when not given.
            plans: what to strike instead, each as a report prints it: for instance
                ``kill/actor/1.0/turn/2/0`` is SIGKILL to the actor of the run behind call 1.0,
                right after its second turn; ``repeat/pay`` and ``behind/pay`` kill the process in
                which your tool ``pay`` has returned, before its answer is saved and right after.
            sets: changes of the configuration, as ``KEY=VALUE``.
            recorded: a run that was made with a real provider, whose replies are replayed.
            state_dir: where that run is kept.
            seconds_max: how long all of it may take.

        Raises:
            ChaosFailed: in words.
            subprocess.TimeoutExpired: it took longer.
        """
        if seed is None and os.environ.get(SEED_VARIABLE):
            given = os.environ[SEED_VARIABLE]
            if not (given.isascii() and given.isdigit()):
                raise ChaosFailed(f"{SEED_VARIABLE} is {given!r}; set it to a whole number")
            seed = int(given)
        # By name: the supervisor stands above this package, and a process needs no import.
        command = [sys.executable, "-P", "-m", "supervisor", "chaos", os.fspath(config), "--json"]
        command += [] if plans else [f"--kills={kills}"]
        command += [f"--seed={seed}"] if seed is not None else []
        command += [f"--plan={plan}" for plan in plans]
        command += [f"--set={option}" for option in sets]
        command += [f"--recorded={recorded}"] if recorded else []
        command += [f"--state-dir={os.fspath(state_dir)}"] if state_dir else []
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            timeout=seconds_max,
        )
        if done.returncode not in (0, 1):
            raise ChaosFailed(done.stderr.decode("utf-8", "replace").strip())
        # Shown by pytest when the test fails.
        print(done.stderr.decode("utf-8", "replace"))  # noqa: T201
        found = msgspec.json.decode(done.stdout, type=dict[str, Any])
        if "error" in found:
            raise ChaosFailed(found["error"])
        return msgspec.convert(found, ChaosReport)
