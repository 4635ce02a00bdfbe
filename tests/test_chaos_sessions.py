"""``exeunt chaos`` as users hold a session: over whole configurations, in processes of its own."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from actors.testing.chaos import Chaos, ChaosFailed
from actors.testing.chaos_report import ChaosReport
from supervisor.cli import main

README = Path(__file__).parent.parent / "README.md"
CONFIGS = Path(__file__).parent.parent / "configs"
pytestmark = pytest.mark.chaos


def test_a_session_reports_what_it_did() -> None:
    """Rounds, boundaries, ending, and the tools that cannot be repeated."""
    report = Chaos()(CONFIGS / "destructive.toml", kills=4, seed=5)
    assert report.ok, report
    assert (report.kills, report.seed, report.runs) == (4, 5, 1)
    assert report.status == "completed"
    assert report.repeatable
    assert report.boundaries > 20
    assert [tool.tool for tool in report.unsafe_tools] == ["delete_file"]
    assert "is a plain write, so it is never run twice" in report.unsafe_tools[0].words


def test_what_cannot_be_tried_is_refused_in_words(tmp_path: Path) -> None:
    """A real provider would be paid for every round; a plan must be one."""
    served = ("provider.kind=openai", "provider.base_url=http://127.0.0.1:9/v1")
    with pytest.raises(ChaosFailed, match=r"provider\.kind: each round would ask"):
        Chaos()(CONFIGS / "plan.toml", sets=(*served, "provider.model=m"))
    with pytest.raises(ChaosFailed, match="'x' is no strike of a plan"):
        Chaos()(CONFIGS / "plan.toml", plans=["x"])
    with pytest.raises(ChaosFailed, match=r"no-such\.toml"):
        Chaos()(tmp_path / "no-such.toml")


def test_a_plan_strikes_when_its_moment_comes() -> None:
    """However quick the tree is, and in whichever life the boundary was passed."""
    plans = [
        "kill/actor/root/turn/1/0",
        "kill/actor/root/turn/3/0",
        "kill/supervisor/root/bytes/10/0",
        "kill/actor/root/turn/2/0,kill/actor/root/turn/1/0",
        "freeze/tree/root/turn/2/5",
    ] * 2
    report = Chaos()(CONFIGS / "plan.toml", plans=plans, sets=["provider.latency_ms=0"])
    assert report.ok, report
    assert report.struck == len(plans)
    assert report.missed == ()


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ("kill/actor/7.0/turn/1/0", "undisturbed, there is no run 7.0; it has root"),
        ("kill/actor/root/turns/1/0", "run root has no turns; it has bytes, "),
        ("kill/actor/root/turn/9/0", "run root has turn 3 times"),
        ("repeat/pay", "undisturbed, the tree calls no tool pay"),
    ],
)
def test_a_plan_that_strikes_nothing_has_tried_nothing(
    capsys: pytest.CaptureFixture[str], plan: str, why: str
) -> None:
    """That is not ok, and the words say what there would have been to strike."""
    report = Chaos()(CONFIGS / "plan.toml", plans=[plan, "kill/actor/root/turn/1/0"])
    assert not report.ok
    (missed,) = report.missed
    assert missed.startswith(f"{plan} struck nothing: {why}")
    assert missed in str(report)
    shown = capsys.readouterr().out
    assert ", 1 missed, seed" in shown
    assert f"missed: {missed}." in shown


@pytest.mark.skipif(not README.exists(), reason="README.md is not beside the tests")
def test_the_test_that_readme_shows_passes_as_it_stands(tmp_path: Path) -> None:
    """Four files and a folder, in a place that knows nothing of Exeunt."""
    section = README.read_text().split("## Test your own agents\n")[1].split("\n## ")[0]
    files = re.findall(r"^```\w+\n# (\S+)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in files][-1] == "test_notes.py"
    for name, text in files:
        (tmp_path / name).write_text(text)
    (tmp_path / "notes").mkdir()
    command = [sys.executable, "-P", "-m", "pytest", "-q", "test_notes.py"]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    assert not [*(tmp_path / "notes").iterdir()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_session_that_is_cut_short_tells_what_it_has_found(tmp_path: Path, number: int) -> None:
    """With its seed, as words and as a document; and it leaves nothing in the temporary folder."""
    command = [sys.executable, "-P", "-m", "supervisor", "chaos", str(CONFIGS / "plan.toml")]
    session = subprocess.Popen(
        [*command, "--kills=5000", "--seed=7", "--json"],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert session.stderr
    first = session.stderr.readline()
    assert "1/5000" in first
    session.send_signal(number)
    out, told = session.communicate(timeout=30)
    assert session.returncode == 6
    report = msgspec.json.decode(out, type=ChaosReport)
    assert (report.interrupted, report.ok, report.seed) == (True, False, 7)
    assert 1 <= report.kills < 5000
    assert "interrupted: what was found until then" in told
    assert "seed 7" in told
    assert list(tmp_path.iterdir()) == []


def test_a_real_run_is_replayed(tmp_path: Path) -> None:
    """Its replies stand in its journals, so nobody is asked or paid again."""
    state = ["--state-dir", str(tmp_path / "state"), "--json"]
    config = str(CONFIGS / "research.toml")
    task = "Ask 2 questions."
    assert main(["run", config, "--run-id", "once", "--task", task, *state]) == 0
    sets = ("provider.kind=openai", "provider.base_url=http://127.0.0.1:9/v1")
    report = Chaos()(
        config,
        kills=3,
        seed=4,
        sets=sets,
        recorded="once",
        state_dir=tmp_path / "state",
    )
    assert report.ok, report
    assert (report.runs, report.status) == (3, "completed")
    again = ("research.toml", "agents.researcher.tools=['list_files']"), ("plan.toml", sets[0])
    for name, change in again:
        with pytest.raises(ChaosFailed, match=r"the recording once|in the recording once this"):
            Chaos()(
                CONFIGS / name,
                sets=(*sets, "provider.model=m", change),
                recorded="once",
                state_dir=tmp_path / "state",
            )
