"""Configuration: what is read, and the run specifications that follow from it."""

from pathlib import Path

import pytest
from config_folder import PLAN, SERVED, Folder

from actors.money import Prices
from actors.spec import ErrorPolicy, Limits, ProviderSpec, RunSpec, ToolsSpec
from supervisor.config import Config, ConfigError, api_key, load_config

CONFIGS = Path(__file__).parent.parent / "configs"


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_config_loads(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Every config in ``configs`` is valid from the repository, plays its script, has a budget."""
    monkeypatch.chdir(CONFIGS.parent)
    # The book is written by a command that the config names, so a fresh clone has none.
    sets = [f"tools.files.root={tmp_path}"] if file.stem == "chapters" else []
    spec = load_config(file, sets).run_spec()
    assert spec.provider.model == {"research": "lead"}.get(file.stem, file.stem)
    assert spec.prices == Prices(input=2_000_000, cached_input=200_000, output=12_000_000)
    assert spec.limits.max_budget_nusd


def test_run_spec_follows_from_the_config(folder: Folder):
    """The whole specification of a run: absolute paths, integers for money, and the defaults."""
    spec = folder.load(PLAN).run_spec()
    assert spec == RunSpec(
        agent="lead",
        task="Which file mentions a timeout?",
        system=spec.system,
        provider=ProviderSpec(model="plan"),
        prices=Prices(input=2_000_000, cached_input=200_000, output=12_000_000),
        tools=ToolsSpec(
            names=("list_files", "read_file"),
            search_path=(str(folder.path),),
            workspace=str(folder.path / "files"),
        ),
        limits=Limits(max_turns=20, max_budget_nusd=500_000_000),
    )
    assert "tools" in spec.system


def test_run_spec_takes_every_extra(folder: Folder):
    """Keys beyond the usual ones arrive where the actor reads them."""
    extras = """
    deadline_s = 600
    max_tokens = 1000
    stop_after_tool = "read_file"
    stop_when = ["my_stops:enough"]
    strict_budget = false
    [agents.lead.errors]
    tool_errors = "hide"
    repeat_limit = 2
    on_in_doubt = "words"
    [tools.mine]
    module = "my_package.my_tools"
    environment = ["LANG"]
    [supervision]
    max_restarts = 0
    restart_period_s = 5
    [state]
    durability = "process"
    keep_days = 30
    """
    config = folder.load(PLAN.replace("max_budget_usd = 0.50\n", "max_budget_usd = 1\n" + extras))
    spec = config.run_spec()
    assert spec.limits == Limits(
        max_turns=20,
        max_budget_nusd=1_000_000_000,
        strict_budget=False,
        deadline_seconds=600.0,
        max_tokens=1000,
        stop_after_tool="read_file",
        stop_when=("my_stops:enough",),
    )
    assert spec.errors == ErrorPolicy(tool_errors="hide", repeat_limit=2)
    assert spec.tools.modules == ("my_package.my_tools",)
    assert (spec.tools.on_in_doubt, spec.tools.environment) == ("words", ("LANG",))
    assert (spec.durability, spec.max_restarts, spec.restart_period_seconds) == ("process", 0, 5.0)
    assert config.state.keep_days == 30


def test_what_a_server_wants_otherwise_arrives_at_the_run(folder: Folder):
    """The name of the output limit, the content of messages of calls alone, roles in turn."""
    sets = (
        "provider.max_output_tokens_name=max_completion_tokens",
        "provider.empty_content=omit",
        "provider.merge_user_messages=true",
        "provider.base_url=http://127.0.0.1:1/v1",
    )
    provider = folder.load(SERVED, *sets).run_spec().provider
    assert provider.max_output_tokens_name == "max_completion_tokens"
    assert provider.empty_content == "omit"
    assert provider.merge_user_messages


def test_a_limit_may_be_none_and_turns_have_a_default(folder: Folder):
    """``"none"`` switches a limit off; a run without limits still has 100 turns."""
    sets = ("agents.lead.limits.max_turns=none", 'agents.lead.limits.max_budget_usd="none"')
    assert folder.load(PLAN, *sets).run_spec().limits == Limits(max_turns=None)
    assert folder.load(PLAN, "agents.lead.limits={}").run_spec().limits == Limits(max_turns=100)


def test_cached_input_costs_as_input_unless_priced(folder: Folder):
    """Without a price of its own, a cached token is no cheaper."""
    prices = folder.load(PLAN.replace("cached_input = 0.20", "")).run_spec().prices
    assert prices == Prices(input=2_000_000, cached_input=2_000_000, output=12_000_000)


def test_set_and_task_go_over_the_file(folder: Folder):
    """A VALUE is TOML where it can be, else a bare text; the later option and --task win."""
    config = folder.load(
        PLAN,
        "provider.script=runaway",
        "agents.lead.limits.max_turns=9",
        "agents.lead.limits.max_turns=8",
        'agents.lead.tools=["list_files"]',
        "agents.lead.errors.tool_errors=fatal",
        "run.task=What = this?\nkey = 1",
    )
    spec = config.run_spec()
    assert (spec.provider.model, spec.limits.max_turns) == ("runaway", 8)
    assert (spec.tools.names, spec.errors.tool_errors) == (("list_files",), "fatal")
    assert spec.task == "What = this?\nkey = 1"
    spec = folder.load(PLAN, "run.task=no", task="Another\ud83d?").run_spec()
    assert spec.task == "Another\ufffd?"


def test_config_goes_on_from_its_json_anywhere(folder: Folder, monkeypatch: pytest.MonkeyPatch):
    """Stored and read again from another folder, without files or environment, it is the same."""
    (folder.path / "system.md").write_text("Be brief.")
    text = SERVED.replace("tools = [", 'system_file = "system.md"\ntools = [')
    config = folder.load(text, LLM_BASE_URL="http://127.0.0.1:8080/v1/")
    stored = config.to_json()
    (folder.path / "system.md").unlink()
    monkeypatch.chdir("/")
    again = Config.from_json(stored)
    assert again == config
    assert again.digest() == config.digest()
    assert len(again.digest()) == 16
    assert again.digest() != folder.load(PLAN).digest()
    spec = again.run_spec()
    assert spec.system == "Be brief."
    assert spec.provider.base_url == "http://127.0.0.1:8080/v1"


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b'{"path": 1}', b"[" * 100_000])
def test_damaged_json_is_told_in_words(data: bytes):
    """A stored config that cannot be read is a ConfigError, not a traceback."""
    with pytest.raises(ConfigError, match="stored configuration"):
        Config.from_json(data)


def test_relative_root_is_found_beside_the_config_first(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
):
    """A config means the same folder wherever somebody stands; the working directory comes last."""
    here = folder.path / "here"
    (here / "files").mkdir(parents=True)
    monkeypatch.chdir(here)
    assert folder.load(PLAN).run_spec().tools.workspace == str(folder.path / "files")
    (folder.path / "files").rmdir()
    assert folder.load(PLAN).run_spec().tools.workspace == str(here / "files")


def test_each_agent_has_its_provider_and_model(folder: Folder):
    """Agents name one of several providers, and may override its model."""
    text = SERVED.replace("[provider]", "[providers.near]").replace(
        "[agents.lead]",
        '[providers.far]\nkind = "scripted"\nscript = "plan"\n'
        '[agents.other]\nprovider = "far"\nmodel = "researcher"\n'
        '[agents.lead]\nprovider = "near"',
    )
    config = folder.load(text, OPENAI_BASE_URL="http://127.0.0.1:1/v1")
    assert config.run_spec().provider.model == "small"
    assert config.run_spec().provider.api_key_env == "OPENAI_API_KEY"
    assert config.run_spec("other").provider == ProviderSpec(model="researcher")


def test_api_key_comes_from_the_named_variable(folder: Folder):
    """A key is looked up by name, needed only when its name was given, and quoted nowhere."""
    base = {"LLM_BASE_URL": "http://127.0.0.1:1/v1"}
    config = folder.load(SERVED, **base)
    assert api_key(config, {}) is None
    assert api_key(config, {"OPENAI_API_KEY": "sk-1\n"}) == "sk-1"
    assert api_key(folder.load(PLAN), {"OPENAI_API_KEY": "sk-1"}) is None
    named = folder.load(SERVED, "provider.api_key_env=MY_KEY", **base)
    assert api_key(named, {"MY_KEY": "sk-2"}) == "sk-2"
    with pytest.raises(ConfigError, match=r"provider\.api_key_env: the variable MY_KEY is not set"):
        api_key(named, {"OPENAI_API_KEY": "sk-1"})
    with pytest.raises(ConfigError) as caught:
        api_key(named, {"MY_KEY": "sk-3 \x1b"})
    assert "sk-3" not in str(caught.value)


def test_a_tool_of_a_users_module_is_checked_later(folder: Folder):
    """With a module of the user's own, a tool's name is known only where the module is imported."""
    sets = ("tools.mine.module=my_tools", 'agents.lead.tools=["mine_alone"]')
    assert folder.load(PLAN, *sets).run_spec().tools.names == ("mine_alone",)


def test_a_byte_order_mark_is_skipped(folder: Folder):
    """What some editors put at the start of a file is no mistake."""
    assert folder.load("\ufeff" + PLAN) == folder.load(PLAN)
