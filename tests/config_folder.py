"""A folder with one config in it, for tests of what a configuration says and what it gets wrong."""

from pathlib import Path

import pytest

from supervisor.config import Config, ConfigError, load_config

PLAN = """
[run]
agent = "lead"
task = "Which file mentions a timeout?"
[provider]
kind = "scripted"
script = "plan"
[pricing]
input = 2.00
cached_input = 0.20
output = 12.00
[agents.lead]
tools = ["list_files", "read_file"]
[agents.lead.limits]
max_turns = 20
max_budget_usd = 0.50
[tools.files]
root = "files"
"""
SERVED = PLAN.replace('kind = "scripted"', 'kind = "openai"\nmodel = "small"')


class Folder:
    """A folder with a config in it, loaded without the environment of the test run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path / "exeunt.toml"
        (path / "files").mkdir()

    def load(self, text: str, *sets: str, task: str | None = None, **environ: str) -> Config:
        self.file.write_text(text)
        return load_config(self.file, sets, task, environ)

    def error(self, text: str, *sets: str, **environ: str) -> str:
        """What the user is told; the config's path reads FILE."""
        with pytest.raises(ConfigError) as caught:
            self.load(text, *sets, **environ).run_spec()
        words = str(caught.value)
        assert words.isprintable()
        return words.replace(str(self.file), "FILE")
