"""Configurations of trees: what cannot be is refused at load, naming file and key."""

from pathlib import Path

import pytest

from actors.spec import AgentTool
from supervisor.config import Config, ConfigError, load_config

TREE = """
[run]
agent = "lead"
task = "Ask."
[provider]
kind = "scripted"
[pricing]
input = 2.00
output = 12.00
[agents.lead]
model = "lead"
tools = ["research"]
[agents.lead.limits]
max_budget_usd = 0.50
[agents.researcher]
model = "researcher"
tools = ["list_files"]
[agents.researcher.limits]
max_turns = 6
max_budget_usd = 0.05
[tools.research]
agent = "researcher"
description = "Investigate."
[tools.files]
root = "."
"""


def load(folder: Path, text: str) -> Config:
    file = folder / "exeunt.toml"
    file.write_text(text)
    return load_config(file, environ={})


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            'agent = "researcher"',
            'agent = "reseacher"',
            "tools.research.agent: there is no [agents.reseacher]; did you mean researcher?",
        ),
        (
            "max_budget_usd = 0.05",
            "max_budget_usd = 0.51",
            "agents.researcher.limits.max_budget_usd: $0.51 is more than the $0.5 of lead, which "
            "starts it as research; lower the one or raise the other",
        ),
        (
            'tools = ["list_files"]',
            'tools = ["list_files", "research"]',
            "agents.lead.limits.max_depth: is missing, and researcher can start itself again "
            "through its tools; say how many levels of children there may be",
        ),
        (
            '[tools.research]\nagent = "researcher"',
            '[tools.read_file]\nagent = "researcher"',
            "tools.read_file: read_file is the name of a shipped tool; choose another",
        ),
        (
            'description = "Investigate."',
            'module = "mine"',
            "tools.research: expected exactly one of root, module, agent, found module and agent",
        ),
        (
            'tools = ["research"]',
            'tools = ["research", "research"]',
            "agents.lead.tools[1]: research is named twice; remove one",
        ),
        (
            "[tools.files]",
            '[tools.mine]\nmodule = "m"\n[tools.more]\nmodule = "m"\n[tools.files]',
            "tools.more.module: m is the module of [tools.mine] already; keep one of the two",
        ),
        (
            'tools = ["research"]',
            'tools = ["reserch"]',
            "agents.lead.tools[0]: there is no tool reserch (did you mean research?)",
        ),
        (
            "max_turns = 6",
            "max_depth = 0",
            "agents.researcher.limits.max_depth: expected a whole number from 1 to 100",
        ),
        ("max_turns = 6", "children_at_once = 0", "agents.researcher.limits.children_at_once"),
        ("max_turns = 6", "max_children = -1", "agents.researcher.limits.max_children"),
        ("max_turns = 6", "idle_s = 0", "agents.researcher.limits.idle_s"),
        (
            'model = "researcher"',
            "",
            "provider.script: is missing; name the script that agent researcher asks",
        ),
    ],
)
def test_a_tree_that_cannot_be_is_refused(tmp_path: Path, old: str, new: str, words: str):
    """Before anything is started or paid for."""
    assert old in TREE
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, TREE.replace(old, new))
    assert str(caught.value).startswith(f"{tmp_path / 'exeunt.toml'}: ")
    assert words in str(caught.value)


def test_a_cycle_with_a_depth_is_a_tree(tmp_path: Path):
    """Somebody has thought about how deep it may grow."""
    text = TREE.replace('tools = ["list_files"]', 'tools = ["research"]')
    text = text.replace("max_budget_usd = 0.50", "max_budget_usd = 0.50\nmax_depth = 3")
    config = load(tmp_path, text)
    assert config.run_spec().limits.max_depth == 3
    assert config.agents_in_use() == ["lead", "researcher"]


@pytest.mark.parametrize("by", ["lead", "researcher"])
def test_a_longer_cycle_is_found_too(tmp_path: Path, by: str):
    """Through other agents, and wherever the root stands in it."""
    text = TREE.replace('tools = ["list_files"]', 'tools = ["dig"]')
    text += f"""
[agents.digger]
model = "digger"
tools = ["back"]
[tools.dig]
agent = "digger"
[tools.back]
agent = "{by}"
"""
    if by == "lead":
        text = text.replace("max_budget_usd = 0.50", "").replace("max_budget_usd = 0.05", "")
    with pytest.raises(ConfigError, match="max_depth: is missing"):
        load(tmp_path, text)


def test_an_agent_that_nobody_starts_may_be_in_a_cycle(tmp_path: Path):
    """It stands in the file and in no tree."""
    text = f"{TREE}[agents.loner]\nmodel = 'x'\ntools = ['self']\n[tools.self]\nagent = 'loner'\n"
    assert load(tmp_path, text).agents_in_use() == ["lead", "researcher"]


def test_a_childs_tool_says_whose_run_it_is(tmp_path: Path):
    """With what its agent may spend; a description of our own where none is given."""
    (tool,) = load(tmp_path, TREE).run_spec().tools.agents
    assert tool == AgentTool(
        name="research", agent="researcher", description="Investigate.", max_budget_nusd=50_000_000
    )
    text = TREE.replace('description = "Investigate."', "")
    (tool,) = load(tmp_path, text).run_spec().tools.agents
    assert "researcher" in tool.description


def test_each_agent_has_its_own_specification(tmp_path: Path):
    """A child inherits neither prompt, tools nor limits of its parent."""
    config = load(tmp_path, TREE)
    lead, child = config.run_spec(), config.run_spec("researcher", task="Who?")
    assert (child.agent, child.task, child.tools.names) == ("researcher", "Who?", ("list_files",))
    assert child.tools.agents == ()
    assert (lead.limits.max_turns, child.limits.max_turns) == (100, 6)
    assert child.limits.max_budget_nusd == 50_000_000
