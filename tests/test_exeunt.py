"""The command ``exeunt`` as a user has it: real processes, real signals, real terminals."""

import json
import os
import pty
import resource
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

REPOSITORY = Path(__file__).parent.parent
CONFIGS = REPOSITORY / "configs"
EXEUNT = [sys.executable, "-P", "-m", "supervisor"]
SECONDS_MAX = 30.0
_IN_A_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
"""Makes standard input the controlling terminal, so that ^C typed there is a signal."""

pytestmark = pytest.mark.slow

Process = subprocess.Popen[str]


class Place:
    """A state directory and a workspace, and ``exeunt`` typed there."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.workspace = folder / "workspace"
        shutil.copytree(REPOSITORY / "examples" / "workspace", self.workspace)
        self.env = {**os.environ, "EXEUNT_STATE_DIR": str(self.state)}
        self.env.pop("OPENAI_API_KEY", None)

    def config(self, name: str) -> list[str]:
        return [str(CONFIGS / f"{name}.toml"), "--set", f"tools.files.root={self.workspace}"]

    def type_(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*EXEUNT, *words],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )

    def json(self, *words: str, code: int = 0) -> Any:
        """The one document on standard output; the exit code must be ``code``."""
        ran = self.type_(*words, "--json")
        assert ran.returncode == code, ran.stderr
        assert ran.stdout.count("\n") == 1
        return json.loads(ran.stdout)

    def start(self, *words: str, **env: str) -> Process:
        return subprocess.Popen(
            [*EXEUNT, *words],
            env=self.env | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def scanning(self, run_id: str) -> Process:
        """A run in the middle of a tool that takes twelve seconds, in this process alone."""
        words = ("run", *self.config("slow"), "--run-id", run_id, "--json")
        running = self.start(*words, EXEUNT_SCAN_SECONDS="12")
        assert running.stderr
        read_until(running.stderr, "scanned 200")
        return running


def read_until(stream: IO[str], words: str) -> None:
    for line in stream:
        if words in line:
            return
    raise AssertionError(f"the stream ended without {words!r}")


def result(process: Process) -> tuple[int, Any, str]:
    """Exit code, the document on standard output if there is one, standard error."""
    out, err = process.communicate(timeout=SECONDS_MAX)
    return process.returncode, json.loads(out) if out else None, err


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(scope="module")
def completed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, Any]:
    """One run of the demonstration, which several tests look at."""
    place = Place(tmp_path_factory.mktemp("completed"))
    return place, place.json("run", *place.config("plan"), "--run-id", "r1")


def test_run_prints_one_document_with_everything_in_it(completed: tuple[Place, Any]) -> None:
    """The keys of the contract, and the answer of the demonstration."""
    _, document = completed
    assert list(document) == [
        "run_id", "status", "interruption", "error", "output", "turns", "tool_runs",
        "input_tokens", "output_tokens", "cached_input_tokens", "cost_usd", "possibly_spent_usd",
        "tree", "children",
    ]  # fmt: skip
    assert document["run_id"] == "r1"
    assert document["status"] == "completed"
    assert document["output"].startswith("errors.log mentions a timeout")
    assert (document["turns"], document["tool_runs"]) == (3, 2)
    assert document["cost_usd"] == pytest.approx(
        (document["input_tokens"] * 2 + document["output_tokens"] * 12) / 1e6
    )
    assert document["tree"] == {
        "runs": 1, "turns": 3, "tool_runs": 2, "cost_usd": document["cost_usd"],
        "possibly_spent_usd": 0.0,
    }  # fmt: skip


def test_without_json_the_answer_alone_goes_to_standard_output(place: Place) -> None:
    """Progress, ending and the next command are for people, on standard error."""
    ran = place.type_("run", *place.config("plan"), "--task", "Which file?", "--run-id", "r1")
    assert ran.returncode == 0
    assert ran.stdout == "errors.log mentions a timeout: worker 7 timed out after 30000 ms.\n"
    lines = ran.stderr.splitlines()
    assert lines[0] == "run r1  agent lead  scripted:plan"
    assert lines[1].startswith("turn 1  ")
    assert lines[2].startswith("  list_files {}  ok ")
    assert lines[-2].startswith("completed  3 turns, 2 tool runs, ")
    assert lines[-1] == "next: exeunt show r1"


def test_an_approval_over_three_processes(place: Place) -> None:
    """Interrupted with 5, recorded without a process that runs, gone on with to the end."""
    found = place.json("run", *place.config("destructive"), "--run-id", "r1", code=5)
    asked = found["interruption"]
    assert asked == {
        "type": "approval", "run_id": "r1", "call": "2.0", "tool_name": "delete_file",
        "args": {"path": "access.log"}, "path": ["r1"],
    }  # fmt: skip
    assert (place.workspace / "access.log").exists()
    edited = json.dumps({"path": "notes.txt"})
    found = place.json("approve", asked["run_id"], asked["call"], "--args", edited)
    assert found["status"] == "completed"
    assert found["tool_runs"] == 2
    assert (place.workspace / "access.log").exists()
    assert not (place.workspace / "notes.txt").exists()
    assert "no call waits" in place.json("approve", "r1", "2.0", code=2)["error"]


def test_limits_have_their_exit_codes_and_can_be_raised(place: Place) -> None:
    """3 for turns, 4 for money; resume goes on with more of either."""
    found = place.json("run", *place.config("runaway"), "--run-id", "r1", code=3)
    assert found["interruption"] == {"type": "max_turns", "max_turns": 8}
    found = place.json("resume", "r1", "--max-turns", "9", code=3)
    assert found["turns"] == 9
    low = "agents.lead.limits.max_budget_usd=0.001"
    found = place.json("run", *place.config("runaway"), "--set", low, code=4)
    assert found["status"] == "budget_exceeded"


@pytest.mark.parametrize(
    ("number", "reason"),
    [(signal.SIGINT, "cancelled: ctrl-c"), (signal.SIGTERM, "cancelled: SIGTERM")],
)
def test_a_signal_stops_the_run_and_resume_goes_on(
    place: Place, number: signal.Signals, reason: str
) -> None:
    """The ending is recorded, the tool is gone, and nothing that was paid is paid again."""
    running = place.scanning("r1")
    running.send_signal(number)
    code, document, told = result(running)
    assert code == 6
    assert document["interruption"] == {"type": "cancelled", "reason": reason, "who": "user"}
    assert f"{reason}: stopping; once more kills" in told
    assert "next: exeunt resume r1" in told
    found = place.json("resume", "r1")
    assert (found["status"], found["turns"]) == ("completed", 2)


def test_a_stop_before_the_run_has_begun_is_kept(place: Place) -> None:
    """A signal while the processes still start leaves a run that ended before its first turn."""
    running = place.start("run", *place.config("slow"), "--run-id", "r1", "--json")
    assert running.stderr
    read_until(running.stderr, "run r1")
    running.send_signal(signal.SIGINT)
    code, document, _ = result(running)
    assert (code, document["status"], document["turns"]) == (6, "interrupted", 0)


def test_a_second_signal_kills_what_does_not_stop(place: Place) -> None:
    """An actor that does not answer is gone at once; the run has no ending and can be resumed."""
    running = place.scanning("r1")
    pid: int = place.json("ps", "r1")[0]["pid"]
    os.kill(pid, signal.SIGSTOP)
    running.send_signal(signal.SIGINT)
    assert running.stderr
    read_until(running.stderr, "once more kills")
    running.send_signal(signal.SIGINT)
    code, document, told = result(running)
    assert code == 6
    assert document["status"] is None
    assert "next: exeunt resume r1" in told
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert place.json("ps", "r1")[0]["status"] == "cut off"


def test_a_supervisor_that_was_killed_is_replaced_by_resume(place: Place) -> None:
    """Its death takes the actors along, and the bill is that of a run that was never cut."""
    running = place.scanning("r1")
    running.kill()
    result(running)
    found = place.json("resume", "r1")
    assert (found["status"], found["turns"]) == ("completed", 2)


def test_a_tree_whose_supervisor_was_killed_is_replaced_by_resume(place: Place) -> None:
    """Lead and researchers go on where they were, and the result has all of them."""
    running = place.start("run", *place.config("research"), "--run-id", "r1")
    assert running.stderr
    read_until(running.stderr, ".1.0  turn 1")
    running.kill()
    running.communicate(timeout=SECONDS_MAX)
    found = place.json("resume", "r1")
    assert found["output"].startswith("8 of 8 questions came back answered; 8 found")
    assert found["tree"]["runs"] == 9
    assert [child["run_id"] for child in found["children"]] == [f"r1.1.{n}" for n in range(8)]
    assert {child["status"] for child in found["children"]} == {"completed"}
    assert {child["turns"] for child in found["children"]} == {3}


def test_stop_from_another_terminal(place: Place) -> None:
    """Stop waits for the ending, run tells it, and whoever follows the trace comes to its end."""
    running = place.scanning("r1")
    following = place.start("trace", "r1", "--follow")
    assert following.stdout
    read_until(following.stdout, '"tool_progress"')
    assert place.json("resume", "r1", code=2)["error"].startswith("run r1 is held by process ")
    found = place.json("stop", "r1", "--reason", "enough")
    assert found == {"run_id": "r1", "stopped": True, "status": "interrupted", "reason": "enough"}
    assert result(running)[0] == 6
    rest, _ = following.communicate(timeout=SECONDS_MAX)
    assert following.returncode == 0
    assert json.loads(rest.splitlines()[-1])["reason"] == "enough"


def test_a_run_goes_on_when_nobody_reads_what_it_says(place: Place) -> None:
    """Both streams closed by their reader: no traceback, and the exit code is the run's."""
    running = place.start("run", *place.config("plan"), "--run-id", "r1")
    assert running.stdout
    assert running.stderr
    running.stdout.close()
    running.stderr.close()
    assert running.wait(SECONDS_MAX) == 0
    assert place.json("ps", "r1")[0]["status"] == "completed"


def test_a_terminal_sees_progress_in_place_and_its_ctrl_c_stops(place: Place) -> None:
    """On a terminal labels overwrite each other; ^C reaches the supervisor alone."""
    master, slave = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-c", _IN_A_TERMINAL, *EXEUNT, "run", *place.config("slow")],
        env=place.env | {"TERM": "xterm"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    shown = b""
    try:
        while b"scanned 400" not in shown:
            shown += os.read(master, 4096)
        os.write(master, b"\x03")
        while part := os.read(master, 4096):
            shown += part
    except OSError:
        pass  # The terminal's last process has gone.
    finally:
        os.close(master)
    assert running.wait(SECONDS_MAX) == 6
    assert b"\r  \x1b[2mscan_archive scanned 400 of 1200 files" in shown
    assert b"exeunt resume" in shown


def test_doctor_says_what_is_there_and_what_is_not(place: Place) -> None:
    """Exit code 0 when all is well; an unreachable provider is a problem with a remedy."""
    found = place.json("doctor", str(CONFIGS / "plan.toml"))
    assert found["ok"] is True
    names = {check["name"] for check in found["checks"]}
    assert {"tokenizer", "state directory", "configuration", "processes", "provider"} <= names
    config = place.state.parent / "served.toml"
    text = (CONFIGS / "plan.toml").read_text().replace('kind = "scripted"', 'kind = "openai"')
    text = text.replace('script = "plan"', 'model = "m"\nbase_url = "http://127.0.0.1:9/v1"')
    config.write_text(text)
    ran = place.type_("doctor", str(config))
    assert ran.returncode == 1
    assert "problem provider: http://127.0.0.1:9/v1 cannot be reached" in ran.stdout
    ran = place.type_("doctor", str(CONFIGS / "plan.toml"), "--set", "provider.script=none")
    assert ran.returncode == 1
    assert "none" in ran.stdout


@pytest.fixture
def serving(place: Place) -> Iterator[tuple[Process, str]]:
    """A scripted provider of its own, and its address."""
    running = place.start("provider", "--script", "plan", "--json")
    assert running.stdout
    yield running, json.loads(running.stdout.readline())["base_url"]
    running.kill()
    running.communicate()


def test_provider_serves_until_it_is_interrupted(serving: tuple[Process, str]) -> None:
    """Its address is the document; Ctrl-C is its ordinary end."""
    running, base_url = serving
    with urllib.request.urlopen(f"{base_url}/models", timeout=SECONDS_MAX) as answer:
        models = json.load(answer)["data"]
    assert "plan" in [model["id"] for model in models]
    running.send_signal(signal.SIGINT)
    assert running.wait(SECONDS_MAX) == 0


def test_help_takes_little_processor_time() -> None:
    """At most 120 ms, user and system, in the median of five."""
    used: list[float] = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*EXEUNT, "--help"], stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert sorted(used)[2] < 0.120
