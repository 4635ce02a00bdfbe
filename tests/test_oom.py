"""A process that was killed for memory says so, as far as the kernel lets anybody know."""

from pathlib import Path

import pytest

from actors.spec import Resources
from supervisor import oom
from supervisor.oom import OomWatch
from supervisor.spawned import Exit

NONE = Resources()


@pytest.fixture
def vmstat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "vmstat"
    path.write_text("pgfault 17\noom_kill 4\npgmajfault 1\n")
    monkeypatch.setattr(oom, "VMSTAT", path)
    return path


def test_a_kill_while_the_system_killed_for_memory_is_explained(vmstat: Path):
    watch = OomWatch()
    vmstat.write_text("pgfault 18\noom_kill 5\n")
    words = watch.words(Exit(signal=9), NONE)
    assert words == ", very likely by the system, which had run out of memory"
    assert watch.words(Exit(signal=9), NONE) == "", "one kill explains one ending"


@pytest.mark.parametrize("ending", [Exit(signal=11), Exit(status=1), Exit()])
def test_another_ending_is_not(vmstat: Path, ending: Exit):
    watch = OomWatch()
    vmstat.write_text("oom_kill 5\n")
    assert watch.words(ending, NONE) == ""


def test_a_kill_by_somebody_else_is_not(vmstat: Path):
    assert OomWatch().words(Exit(signal=9), NONE) == ""


LIMITS = Resources(cpu_seconds=2)
TIME = ", as it had used up its CPU time of 2 s (cpu_s)"


@pytest.mark.parametrize(
    ("ending", "limits", "words"),
    [
        (Exit(signal=24, cpu_seconds=2.0), LIMITS, TIME),
        (Exit(signal=9, cpu_seconds=3.0), LIMITS, TIME),
        (Exit(signal=9, cpu_seconds=1.9), LIMITS, ""),
        (Exit(signal=11, cpu_seconds=3.0), LIMITS, ""),
        (Exit(signal=24, cpu_seconds=2.0), Resources(), ""),
    ],
)
def test_a_process_that_used_up_its_cpu_time_says_so(
    vmstat: Path, ending: Exit, limits: Resources, words: str
):
    """By its signal, and where that was ignored by the time it had; never without a limit."""
    assert OomWatch().words(ending, limits) == words


@pytest.mark.parametrize("text", [None, "", "pgfault 1\n"])
def test_where_the_kernel_tells_nothing_nothing_is_said(vmstat: Path, text: str | None):
    vmstat.unlink()
    if text is not None:
        vmstat.write_text(text)
    assert OomWatch().words(Exit(signal=9), NONE) == ""
