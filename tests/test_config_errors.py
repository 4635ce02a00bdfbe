"""Mistakes in a configuration: each is told in one sentence that names file, key and remedy."""

import os

import pytest
from config_folder import PLAN, SERVED, Folder

from supervisor.config import FILE_MAX, ConfigError, load_config

LIMITS = "agents.lead.limits"
CONTEXT = "agents.lead.context"


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (f"{LIMITS}.max_turns=-3", 'a whole number from 1 to 1000000000 or "none", found -3'),
        (f"{LIMITS}.max_turns=0", "found 0"),
        (f"{LIMITS}.max_turns=true", "found true"),
        (f"{LIMITS}.max_turns=8.0", "found 8.0"),
        (f"{LIMITS}.max_turns=0x{'f' * 5000}", "found a number beyond 64 bits"),
        (f"{LIMITS}.max_budget_usd=nan", "a number above 0 and at most 1000000"),
        (f"{LIMITS}.max_budget_usd=inf", "found inf"),
        (f"{LIMITS}.deadline_s=-inf", "found -inf"),
        (f"{LIMITS}.stop_when=['x']", 'stop_when[0]: expected a function written as "module:f'),
        (f"{LIMITS}.stop_after_tool=delete", "this agent has no tool of that name"),
        (f"{LIMITS}.max_turn=3", "unknown key, correct or remove it; did you mean max_turns?"),
        ("agents.leed.limits.max_turns=3", "there is no [agents.leed] in FILE; did you mean lead?"),
        (f"{CONTEXT}.policy=bnad", 'expected one of "band", "off", "reference", found the text "b'),
        (f"{CONTEXT}.counter=x", 'expected one of "auto", "bytes", "o200k", "reference"'),
        (f"{CONTEXT}.budget_tokens=-5", 'from 1 to 1000000000 or "none", found -5'),
        (f"{CONTEXT}.cold_after_s=0", "expected a number above 0"),
        (f"{CONTEXT}.budget=9", "unknown key, correct or remove it; did you mean budget_tokens?"),
        ("provider.window_tokens=-1", "from 0 to 1000000000, found -1"),
        ("run.agent=leed", "there is no [agents.leed]; did you mean lead?"),
        ("run.task=2020-01-01", "expected a text that is not empty, found a date"),
        ("run.task.more=3", "run.task is no table"),
        ("provider.kind=gemini", 'expected one of "openai", "scripted", found the text "gemini"'),
        ("provider.empty_content=''", 'expected one of "empty", "keep", "null", "omit", found the'),
        ("provider.max_output_tokens_name=x", 'one of "max_completion_tokens", "max_tokens", fou'),
        ("provider.faults=[{turn = 0, kind = '429'}]", "turn and times count from 1"),
        ("provider.faults=[{turn = 1, kind = '428'}]", "provider.faults[0].kind: expected one of"),
        ("provider.api_key=sk-secret", "a key is never written in a config"),
        ("provider.api_key_env=sk-secret", "the name of an environment variable in capitals"),
        ("provider.max_retries='sk'", 'found the text "sk"'),
        ("agents.lead.provider=far", "there is no [providers.far]"),
        ("agents.lead.tools=list_files", "expected a list, each item a name"),
        ("agents.lead.tools=['list_file']", "no tool list_file (did you mean list_files?)"),
        ("agents.lead.tools=['read_file', 'read_file']", "read_file is named twice"),
        ("tools.files.root=/nowhere", "there is no folder /nowhere"),
        ("tools.other.root=files", "root belongs in [tools.files]"),
        ("tools.mine.description=x", "exactly one of root, module, agent, found none of them"),
        (
            "tools.files.environment=['LANG', 'OPENAI_API_KEY']",
            "OPENAI_API_KEY holds a provider's key, which no tool may see; take it out",
        ),
        ("mcp.web.command=[]", "a list that is not empty"),
        ("supervision.max_restarts=16", "a whole number from 0 to 15, found 16"),
        ("supervision.max_restarts=-1", "a whole number from 0 to 15, found -1"),
        ("state.durability=maybe", 'expected one of "power", "process"'),
    ],
)
def test_wrong_value_names_its_set(folder: Folder, option: str, words: str):
    """A mistake in a --set names that option, what was expected and what was found; no secret."""
    error = folder.error(PLAN, option)
    assert error.startswith(f"--set {option.partition('=')[0]}")
    assert words in error
    assert "secret" not in error


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "max_turns = 20",
            "max_turns = -1",
            "FILE: agents.lead.limits.max_turns: expected a whole",
        ),
        ("max_turns = 20", "max_turns = ", "FILE: is not valid TOML: Invalid value (at line 15,"),
        ("[tools.files]", "[tool.files]", "FILE: tool: unknown key, correct or remove it; did you"),
        ("[tools.files]", '[tools."a\x1b"]', "FILE: is not valid TOML"),
        ("[tools.files]", r'[tools."\u001b"]', r"FILE: tools.\x1b: expected a name of letters"),
        ('root = "files"', r'root = "\u0000"', "FILE: tools.files.root: there is no folder"),
        ('[tools.files]\nroot = "files"', "", "needs a folder to work on; name it as root in"),
        ('agent = "lead"', "", "FILE: run.agent: is missing; give a name"),
        ("task =", "#", "run.task: is missing; write the task there, or give it with --task"),
        ('script = "plan"', "", "FILE: provider.script: is missing"),
        ('kind = "scripted"', 'kind = "openai"', "FILE: provider.model: is missing"),
        (
            'kind = "scripted"',
            'kind = "openai"\nmodel = "m"',
            "FILE: provider.base_url: is missing",
        ),
        ("input = 2.00", "a = " + "[" * 50_000, "FILE: cannot be read as TOML"),
        ("input = 2.00", "input = " + "9" * 5000, "FILE: cannot be read as TOML"),
        ("input = 2.00", f"# {'x' * FILE_MAX}", "FILE: is over 1048576 bytes"),
        (
            "input = 2.00\ncached_input = 0.20\noutput = 12.00",
            "",
            "FILE: pricing.input: is missing",
        ),
    ],
)
def test_wrong_file_names_file_and_key(folder: Folder, old: str, new: str, words: str):
    """A mistake in the file names the file, the key or the line, and what to do."""
    assert old in PLAN
    assert words in folder.error(PLAN.replace(old, new))


def test_budget_without_prices_is_refused(folder: Folder):
    """A budget that could never be reached is no budget."""
    start, end = PLAN.index("[pricing]"), PLAN.index("[agents.lead]")
    error = folder.error(PLAN[:start] + PLAN[end:])
    assert "max_budget_usd: no [pricing] for a run with max_budget_usd" in error


@pytest.mark.parametrize("text", [PLAN, SERVED])
def test_budget_above_the_window_is_refused_with_both_numbers(folder: Folder, text: str):
    """A request of that size would be refused by the provider; one of the window's size is not."""
    sets = ("provider.window_tokens=8000", "provider.base_url=http://127.0.0.1:9/v1")
    error = folder.error(text, *sets, f"{CONTEXT}.budget_tokens=8001")
    assert "8001 is more than the provider's window_tokens of 8000; lower the one or" in error
    config = load_config(folder.file, (*sets, f"{CONTEXT}.budget_tokens=8000"), environ={})
    assert config.run_spec().context.budget_tokens == 8000


def test_empty_file_lacks_its_first_table(folder: Folder):
    """The whole sentence, once."""
    assert folder.error("") == "FILE: run: is missing; give a table"


def test_what_is_no_file_is_refused(folder: Folder):
    """A missing file, a folder, a pipe without a writer, bytes that are no text: each its words."""
    os.mkfifo(folder.path / "pipe")
    (folder.path / "bytes").write_bytes(b"a = '\xff'")
    for name, words in [
        ("missing", "No such file"),
        (".", "regular file"),
        ("pipe", "regular file"),
        ("bytes", "expected UTF-8 text"),
        ("nul\0", "cannot be opened"),
    ]:
        with pytest.raises(ConfigError, match=words):
            load_config(folder.path / name)


@pytest.mark.parametrize("name", ["../secret.md", "/etc/hostname", "link.md", "none.md", r"\u0000"])
def test_system_file_stays_in_the_folder(folder: Folder, name: str):
    """A system file elsewhere, also behind a link, is not sent to a provider."""
    (folder.path.parent / "secret.md").write_text("secret")
    (folder.path / "link.md").symlink_to("../secret.md")
    error = folder.error(PLAN.replace("tools = [", f'system_file = "{name}"\ntools = ['))
    assert "agents.lead.system_file: there is no such file in the config's folder" in error


def test_system_and_system_file_exclude_each_other(folder: Folder):
    """Two system prompts are a mistake, not a choice."""
    sets = ("agents.lead.system=x", "agents.lead.system_file=y")
    assert "system is given as well" in folder.error(PLAN, *sets)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/v1",
        "host:80",
        "http://",
        "http://host:99999/",
        "http://[::1/v1",
        "http://host/\x1b",
        "http://a:secret@host/v1",
        "http://secret@host/v1",
        "http://host/?key=secret",
    ],
)
def test_base_url_takes_no_secret_and_must_be_one(folder: Folder, url: str):
    """An address that is none, or that carries a secret, is refused and never quoted."""
    error = folder.error(SERVED, LLM_BASE_URL=url)
    assert error.startswith("environment: LLM_BASE_URL: ")
    assert "secret" not in error
    error = folder.error(SERVED, f"provider.base_url={url}")
    assert error.startswith("--set provider.base_url ")
    assert "secret" not in error


def test_tools_of_later_versions_are_refused_in_words(folder: Folder):
    """Tools with an MCP server behind them are read, and a run with them is refused."""
    later = (
        '[agents.researcher]\n[tools.research]\nagent = "researcher"\ndescription = "Ask."\n'
        '[mcp.web]\ncommand = ["web-server"]\n'
    )
    folder.file.write_text(PLAN + later)
    assert load_config(folder.file).run_spec().tools.names == ("list_files", "read_file")
    error = folder.error(PLAN + later, 'agents.lead.tools=["web__get"]')
    assert "web__get is a tool of an MCP server, which is not supported in this version" in error
    wrong = later.replace('agent = "researcher"', 'agent = "reasercher"')
    assert "no [agents.reasercher]; did you mean researcher?" in folder.error(PLAN + wrong)


def test_an_empty_task_is_refused(folder: Folder):
    """Nothing to do is a mistake of whoever wrote the command line."""
    folder.file.write_text(PLAN)
    with pytest.raises(ConfigError, match="--task: expected a text"):
        load_config(folder.file, task=" ")


@pytest.mark.parametrize("option", ["x", "=3", ".=3", "a..b=3", "a b=3", "\x1b=3", "run.task"])
def test_set_without_a_key_and_a_value_is_refused(folder: Folder, option: str):
    """What is no KEY=VALUE is told so."""
    assert "expected KEY=VALUE" in folder.error(PLAN, option)
