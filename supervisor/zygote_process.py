"""The process of a zygote: how one is started, and what its spawner needs of it."""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from actors import custodian
from supervisor.pidfd import Pidfd


class ZygoteProcess(Protocol):
    """As much of a Popen as a zygote's burial needs."""

    @property
    def pid(self) -> int:
        """Its pid."""
        ...

    def kill(self) -> None:
        """SIGKILL it, unless it was reaped."""
        ...

    def wait(self) -> int:
        """Reap it once it is dead."""
        ...


StartZygote = Callable[[int, Sequence[str], Mapping[str, str]], tuple[ZygoteProcess, Pidfd]]
"""Makes a zygote, of a control socket, a preload and an environment."""


def start_zygote(
    control_fd: int, preload: Sequence[str], env: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], Pidfd]:
    """Start a zygote that serves ``control_fd``; raises OSError."""
    # Popen and not trio.open_process: that forks from a worker thread. A session of its own keeps
    # the terminal's signals away before the zygote can ignore them.
    python = [sys.executable, "-P", *custodian.BLANK_ARGUMENTS]
    popen = subprocess.Popen(
        [*python, "-m", "actors.zygote", str(control_fd), *preload],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[control_fd],
        env=env,
        start_new_session=True,
    )
    try:
        return popen, Pidfd.of_child(popen.pid)
    except OSError:
        popen.kill()
        popen.wait()
        raise
