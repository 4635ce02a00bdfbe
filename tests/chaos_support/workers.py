"""Forked workers that go through a list of plans, and tell what they found broken."""

import faulthandler
import gc
import os
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Sequence

from ground import Ground
from plans import PLAN, SEED, Plan, parse, perform

from actors import prctl

WORKERS = 2
PLAN_SECONDS_MAX = 60.0
FAILURES_MAX = 5
"""After so many a worker stops; more of the same tell nothing."""

Work = Callable[[Ground, Plan], object]


def run_all(ground: Ground, plans: Sequence[Plan], test: str, work: Work = perform) -> None:
    """Perform all plans; raises AssertionError that names the plans that failed, and how to see.

    ``test`` is the pytest node to replay a failing plan with.
    """
    if PLAN:
        plans = [parse(PLAN)]
    # Thousands of plans take longer than any one test may without being asked where it hangs.
    faulthandler.cancel_dump_traceback_later()
    print(f"{len(plans)} plans, EXEUNT_SEED={SEED}")

    def failures_of(share: Sequence[Plan]) -> str:
        failures: list[str] = []
        for plan in share:
            if (words := _words(ground, plan, work)) is not None:
                replay = f"EXEUNT_PLAN={plan} EXEUNT_SEED={SEED} python -P -m pytest -q {test}"
                failures.append(f"{words}To see it again:\n  {replay}\n")
            if len(failures) >= FAILURES_MAX:
                break
        return "\n".join(failures)

    shares = [plans[first::WORKERS] for first in range(WORKERS)]
    workers = [Worker(lambda share=share: failures_of(share)) for share in shares]
    told = [worker.wait(PLAN_SECONDS_MAX * max(1, len(plans))) for worker in workers]
    if any(told):
        raise AssertionError("\n".join(filter(None, told)))


def _words(ground: Ground, plan: Plan, work: Work) -> str | None:
    try:
        work(ground, plan)
    except Exception as error:
        return f"{plan}: " + "".join(traceback.format_exception(error)[-3:])
    return None


class Worker:
    """A forked process that calls a function and tells what it returned, or raised."""

    def __init__(self, function: Callable[[], str]) -> None:
        self._fd, write_fd = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if self._pid:
            os.close(write_fd)
            return
        status = 1
        try:
            os.close(self._fd)
            prctl.die_with_parent(signal.SIGKILL)
            # So that no collection in a life copies what it shares with us.
            gc.freeze()
            try:
                words = function()
            except Exception as error:
                words = f"{type(error).__name__}: {error}"
            os.write(write_fd, words.encode())
            status = 0
        finally:
            os._exit(status)

    def wait(self, seconds: float) -> str:
        """Return what the function told."""
        deadline = time.monotonic() + seconds
        data = b""
        while select.select([self._fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
            chunk = os.read(self._fd, 1 << 16)
            if not chunk:
                break
            data += chunk
        else:
            os.kill(self._pid, signal.SIGKILL)
            data += b"a worker did not end"
        os.close(self._fd)
        _, status = os.waitpid(self._pid, 0)
        return data.decode() if status == 0 else f"a worker died: {status} {data.decode()}"
