"""Two forked workers that go through a list of plans, and tell what they found broken."""

import gc
import os
import select
import time
import traceback
import warnings
from collections.abc import Callable, Sequence

import msgspec
from ground import Ground
from plans import PLAN, SEED, Plan, parse, perform

WORKERS = 2
PLAN_SECONDS_MAX = 60.0
FAILURES_MAX = 5
"""After so many a worker stops; more of the same tell nothing."""

Work = Callable[[Ground, Plan], object]


class Failure(msgspec.Struct, frozen=True):
    plan: str
    words: str


def run_all(ground: Ground, plans: Sequence[Plan], test: str, work: Work = perform) -> None:
    """Perform all plans; raises AssertionError that names the plans that failed, and how to see.

    ``test`` is the pytest node to replay a failing plan with.
    """
    if PLAN:
        plans = [parse(PLAN)]
    print(f"{len(plans)} plans, EXEUNT_SEED={SEED}")
    reports = [_fork(ground, plans[share::WORKERS], work) for share in range(WORKERS)]
    failures: list[Failure] = []
    for pid, fd in reports:
        failures += _collect(pid, fd, len(plans))
    if failures:
        replay = "\n".join(
            f"{failure.words}\n  EXEUNT_PLAN={failure.plan} EXEUNT_SEED={SEED} "
            f"python -P -m pytest -q {test}"
            for failure in failures
        )
        raise AssertionError(f"{len(failures)} plans failed (EXEUNT_SEED={SEED}):\n{replay}")


def _fork(ground: Ground, plans: Sequence[Plan], work: Work) -> tuple[int, int]:
    read_fd, write_fd = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        os.close(write_fd)
        return pid, read_fd
    status = 1
    try:
        os.close(read_fd)
        # So that no collection in a life copies what it shares with us.
        gc.freeze()
        failures = 0
        for plan in plans:
            words = _words(ground, plan, work)
            if words is not None:
                failures += 1
                os.write(write_fd, msgspec.json.encode(Failure(str(plan), words)) + b"\n")
            if failures >= FAILURES_MAX:
                break
        status = 0
    finally:
        os._exit(status)


def _words(ground: Ground, plan: Plan, work: Work) -> str | None:
    try:
        work(ground, plan)
    except Exception as error:
        where = "".join(traceback.format_exception(error)[-3:])
        return f"{plan}: {error}\n{where}"
    return None


def _collect(pid: int, fd: int, plans: int) -> list[Failure]:
    deadline = time.monotonic() + PLAN_SECONDS_MAX * max(1, plans)
    data = b""
    while select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
        chunk = os.read(fd, 1 << 16)
        if not chunk:
            break
        data += chunk
    os.close(fd)
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"a worker ended with {status}"
    return [msgspec.json.decode(line, type=Failure) for line in data.splitlines()]
