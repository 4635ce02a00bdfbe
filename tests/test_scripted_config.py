"""A scripted provider that a configuration describes wrongly: refused before there is a run."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from grove import Host

from supervisor import ConfigError, StateDir, Supervisor, load_config, scripted
from supervisor.report import Report

SECONDS_MAX = 30.0
EXEUNT = [sys.executable, "-P", "-m", "supervisor"]
CONFIG = """
[run]
agent = "lead"
task = "Ask."
[provider]
kind = "scripted"
scripts = ["my_scripts", "more_scripts"]
[agents.lead]
model = "asking"
tools = ["ask"]
[agents.leaf]
model = "leaf"
[tools.ask]
agent = "leaf"
"""
SCRIPTS = """
from actors.testing import Call, Conversation, Say, script

@script("asking")
def asking(conversation: Conversation) -> Say | Call:
    return Say("asked") if conversation.turn else Call("ask", {"question": "who?"})

@script("leaf")
def leaf(conversation: Conversation) -> Say:
    return Say("nobody")
"""
HANG = "__import__('threading').Event().wait()"


class Stage:
    """A folder with a configuration, modules of scripts beside it and a state directory."""

    def __init__(self, folder: Path, host: Host) -> None:
        self.folder = folder
        self.config = folder / "my.toml"
        self.config.write_text(CONFIG)
        self.state = StateDir(folder / "state")
        self.module("my_scripts", SCRIPTS)
        self.module("more_scripts", "")
        self._host = host

    def module(self, name: str, text: str) -> None:
        (self.folder / f"{name}.py").write_text(text)

    def change(self, old: str, new: str) -> None:
        text = self.config.read_text()
        assert old in text
        self.config.write_text(text.replace(old, new))

    def play(self, test: Callable[[Supervisor], Awaitable[None]]) -> None:
        """Play a test with a supervisor of its own."""

        async def played() -> None:
            self.state.prepare()
            with trio.fail_after(SECONDS_MAX):
                async with trio.open_nursery() as nursery:
                    spawner = self._host.spawner
                    await test(Supervisor(self.state, spawner, nursery, lambda *_: None))
                    nursery.cancel_scope.cancel()

        self._host.play(played)

    def run(self) -> Report:
        """The run r1 to its end."""
        found: list[Report] = []

        async def test(supervisor: Supervisor) -> None:
            found.append(await supervisor.run(load_config(self.config), "r1"))

        self.play(test)
        return found[0]

    def refused(self) -> str:
        """The words behind the name of the file; there is no run."""
        caught: list[ConfigError] = []

        async def test(supervisor: Supervisor) -> None:
            with pytest.raises(ConfigError) as refused:
                await supervisor.run(load_config(self.config), "r1")
            caught.append(refused.value)

        self.play(test)
        assert list(self.state.runs.iterdir()) == []
        file, _, words = str(caught[0]).partition(": ")
        assert file == str(self.config)
        return words


@pytest.fixture
def stage(tmp_path: Path, host: Host) -> Stage:
    """A tree of two whose scripts are sound."""
    return Stage(tmp_path, host)


def test_scripts_of_ones_own_are_played(stage: Stage) -> None:
    """By root and child; what the other tests break is whole here."""
    report = stage.run()
    assert (report.output, report.tree.runs) == ("asked", 2)


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        (None, "[1]", "there is no module more_scripts in /"),
        ("import nowhere", "[1]", "the module more_scripts needs nowhere, which is missing; inst"),
        ("\n1 / 0", "[1]", "cannot be imported: ZeroDivisionError: division by zero (/"),
        ("\n1 / 0", "[1]", "/more_scripts.py, line 2)"),
        ("x = = 1", "[1]", "SyntaxError: invalid syntax (more_scripts.py, line 1)"),
        ("raise SystemExit(3)", "[1]", "cannot be imported: SystemExit: 3"),
        ("import os; os._exit(0)", "", "the provider's process ended before it served"),
        (HANG, "", "the provider did not answer within 2 s"),
    ],
)
def test_scripts_that_cannot_be_loaded_are_named_with_file_and_key(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, text: str | None, key: str, words: str
) -> None:
    """The one of several; of scripts that keep their process from saying it, the list."""
    if text is None:
        (stage.folder / "more_scripts.py").unlink()
    else:
        stage.module("more_scripts", text)
    if text == HANG:
        monkeypatch.setattr(scripted, "READY_SECONDS", 2.0)
    refused = stage.refused()
    assert refused.startswith(f"provider.scripts{key}: ")
    assert words in refused


@pytest.mark.parametrize(
    ("old", "new", "key", "guess"),
    [
        ('model = "leaf"', 'model = "leafy"', "agents.leaf.model", "leafy; did you mean leaf? "),
        ('model = "asking"', 'model = "qqqq"', "agents.lead.model", "qqqq; "),
        ("scripts =", 'script = "askin"\nscripts =', "provider.script", "askin; did you mean aski"),
        ("[provider]", "[providers.one]", "providers.one.script", "aska; did you mean asking? "),
    ],
)
def test_a_script_that_there_is_not_is_named_with_file_and_key(
    stage: Stage, old: str, new: str, key: str, guess: str
) -> None:
    """Of a child as of the root, before the first turn; the words list the scripts there are."""
    stage.change(old, new)
    if key == "providers.one.script":
        stage.change("scripts =", 'script = "aska"\nscripts =')
    refused = stage.refused()
    assert refused.startswith(f"{key}: there is no script {guess}")
    assert "the scripts are asking, chapters, " in refused


def test_a_provider_that_serves_one_run_is_asked_of_every_other(stage: Stage) -> None:
    """It is started once, and still knows which agent wants a script that it does not have."""

    async def both(supervisor: Supervisor) -> None:
        await supervisor.run(load_config(stage.config), "r1")
        stage.change('model = "leaf"', 'model = "leafy"')
        with pytest.raises(ConfigError, match=r"agents\.leaf\.model: there is no script leafy"):
            await supervisor.run(load_config(stage.config), "r2")
        assert not supervisor.state_dir.exists("r2")

    stage.play(both)


def test_the_providers_own_script_stands_in_for_a_model_that_is_none(stage: Stage) -> None:
    """An agent may bear the name of a real model, whose tokens are then counted."""
    stage.change("scripts =", 'script = "leaf"\nscripts =')
    stage.change('model = "leaf"', 'model = "gpt-4o"')
    assert stage.run().output == "asked"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"more_scripts"', '"na_scriptz"', "provider.scripts[1]: there is no module na_scriptz in"),
        ('model = "leaf"', 'model = "leafy"', "agents.leaf.model: there is no script leafy; did"),
    ],
)
def test_run_and_doctor_say_the_same(stage: Stage, old: str, new: str, words: str) -> None:
    """Exit code 2 and no run on disk; a problem of the provider."""
    stage.change(old, new)

    def type_(verb: str) -> tuple[int, dict[str, object]]:
        env = {**os.environ, "EXEUNT_STATE_DIR": str(stage.state.path)}
        command = [*EXEUNT, verb, "my.toml", "--json"]
        run = functools.partial(subprocess.run, cwd=stage.folder, env=env, text=True, check=False)
        done = run(command, capture_output=True, timeout=SECONDS_MAX)
        return done.returncode, json.loads(done.stdout)

    code, document = type_("run")
    assert code == 2
    assert str(document["error"]).startswith(f"{stage.config}: {words}")
    assert list(stage.state.runs.iterdir()) == []
    code, document = type_("doctor")
    assert code == 1
    (problem,) = [one for one in document["checks"] if not one["ok"]]  # type: ignore[attr-defined]
    assert problem["name"] == "provider"
    assert problem["detail"].startswith(f"{stage.config}: {words}")
