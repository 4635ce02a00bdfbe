"""What the window policies cost, and what they refuse, over long runs."""

import importlib.util
import math
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from actors.events import Finished, Opened, Replied
from actors.journal import Journal
from actors.messages import Assistant, Prompt, ResultKind, ToolCall
from actors.money import Usage
from actors.spec import Limits
from actors.testing.corpus import CORPUS
from actors.window import Policy


def _load(name):
    path = Path(__file__).parents[1] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    # Registered, because msgspec looks the module of a Struct up by its name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


simulator = _load("window_policies")
languages = _load("window_languages")


def test_band_costs_what_the_table_says():
    """Medium results over 400 rounds: billed input, cache hits and rewrites."""
    workload = next(w for w in simulator.synthetic(7) if w.name.startswith("medium"))
    band = simulator.Simulation(workload, Policy(), 7).run()
    reference = simulator.Simulation(workload, Policy(name="reference"), 7).run()
    assert band.usd / reference.usd == pytest.approx(0.65, rel=0.05)
    assert band.cached / band.sent == pytest.approx(0.95, abs=0.02)
    assert band.busts == pytest.approx(12, abs=2)
    assert reference.busts == pytest.approx(90, abs=5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 7])
def test_band_is_cheaper_than_the_reference_and_keeps_more(seed):
    """Over six workloads, as geometric means: at most 0.62 of the cost, 1.3 of the whole text."""
    costs, wholes = [], []
    for workload in simulator.synthetic(seed):
        band = simulator.Simulation(workload, Policy(), seed).run()
        reference = simulator.Simulation(workload, Policy(name="reference"), seed).run()
        cost, whole = simulator.ratios(band, reference)
        costs.append(math.log(cost))
        wholes.append(math.log(whole))
    assert math.exp(sum(costs) / len(costs)) <= 0.62
    assert math.exp(sum(wholes) / len(wholes)) >= 1.3


def test_simulator_replays_a_journal_and_draws(tmp_path, monkeypatch, capsys, counting):
    """A run's own rounds instead of synthetic ones, and a picture that is well-formed."""
    run_dir = tmp_path / "r1"
    run_dir.mkdir()
    journal = Journal.open(run_dir)
    opened = Opened(
        schema=1,
        run_id="r1",
        root="r1",
        agent="a",
        epoch=1,
        pid=1,
        host="h",
        boot_id="b",
        durability="process",
        code_version="0",
        config_digest="",
        why="start",
        limits=Limits(),
        tools={},
        prompts=(Prompt("user", "Go."),),
    )
    journal.begin(opened)
    journal.write(opened)
    call = ToolCall("x", "read_file", "{}")
    for turn in (1, 2, 3):
        message = Assistant(None, (call,))
        journal.write(
            Replied(turn=turn, message=message, usage=Usage(), cost_nusd=0, finish="tool_calls"),
            Finished(ref=f"{turn}.0", outcome=ResultKind.OK, content="word " * 50),
        )
    journal.close()
    picture = tmp_path / "fill.svg"
    monkeypatch.setattr(sys, "argv", ["window_policies.py", "--svg", str(picture), str(run_dir)])
    assert simulator.main() == 0
    assert "r1, 3 rounds" in capsys.readouterr().out
    assert len(ET.parse(picture).getroot().findall(".//{*}polyline")) == 6


def test_simulator_says_what_is_wrong_with_a_directory(tmp_path, monkeypatch, capsys):
    """No traceback for a folder that is no run."""
    monkeypatch.setattr(sys, "argv", ["window_policies.py", str(tmp_path)])
    assert simulator.main() == 2
    assert "journal" in capsys.readouterr().err


@pytest.mark.usefixtures("counting")
def test_a_run_that_changes_its_language_is_never_refused():
    """From cheap text to dear text, on a tokenizer that needs half as many tokens again."""
    assert languages.refusals(["English", "Hindi", "JSON"], 1.5, 60, window=3000) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize("scale", [0.8, 1.0, 1.6])
@pytest.mark.parametrize("language", CORPUS)
def test_no_request_of_six_hundred_is_refused(language, scale):
    """In no language, and for no tokenizer, once the window is 5 % larger than the budget."""
    assert languages.refusals([language], scale, 600) == 0
