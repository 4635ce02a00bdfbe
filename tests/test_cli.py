"""The command line: what it accepts, how mistakes are told, and how fast help is."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import supervisor
from supervisor.cli import main, parse, parser
from supervisor.commands import UsageError

VERBS = [
    "run",
    "resume",
    "approve",
    "reject",
    "stop",
    "tell",
    "ps",
    "show",
    "trace",
    "journal",
    "provider",
    "chaos",
    "doctor",
    "completion",
]


def test_every_verb_explains_itself_and_takes_the_common_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """``exeunt VERB --help`` works for each verb, and names --state-dir and --json."""
    for verb in VERBS:
        with pytest.raises(SystemExit) as leaving:
            main([verb, "--help"])
        assert leaving.value.code == 0
        shown = capsys.readouterr().out
        assert "--state-dir DIR" in shown
        assert "--json" in shown


def test_help_and_version_go_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    """The verbs are listed, those of later versions are not."""
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert all(f"    {verb} " in shown for verb in VERBS)
    assert "watch" not in shown
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.startswith("exeunt 0.")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "required: VERB"),
        (["fly"], "invalid choice: 'fly'"),
        (["run"], "required: CONFIG"),
        (["run", "a.toml", "b.toml"], "what is 'b.toml'? See: exeunt run --help"),
        (["run", "a.toml", "--sett", "a=1"], "what is '--sett'?"),
        (["resume", "r1", "--max-turns", "0"], "from 1 to"),
        (["resume", "r1", "--max-turns", "9" * 5000], "from 1 to"),
        (["resume", "r1", "--max-budget-usd", "nan"], "--max-budget-usd"),
        (["resume", "r1", "--deadline-s", "0"], "above 0"),
        (["provider", "--port", "65536"], "from 0 to 65535"),
        (["show", "r1", "--turn", "-1"], "--turn"),
        (["doctor", "--set", "run.task=x"], "name its file too"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No usage block and no traceback; the sentence says where to read more."""
    assert main(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("exeunt: ")
    assert shown.err.count("\n") == 1
    assert expected in shown.err
    assert "--help" in shown.err


def test_with_json_a_mistake_is_a_document_too(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output holds one JSON document whatever happens."""
    for words in (["run"], ["show", "r1"], ["run", "no.toml"], ["approve", "../x", "1.0"]):
        assert main([*words, "--json", "--state-dir", str(tmp_path)]) == 2
        shown = capsys.readouterr()
        assert shown.err == f"exeunt: {json.loads(shown.out)['error']}\n"


def test_a_mistake_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A file name with an escape sequence is shown, not obeyed."""
    main(["run", "a.toml", "b\x1b[2J\u202e.toml"])
    main(["run", "\x1b]0;owned\x07\udcff.toml"])
    main(["show", "\x1b[2J"])
    shown = capsys.readouterr().err
    assert shown.replace("\n", "").isprintable()
    assert "\\x1b" in shown


def test_several_values_of_set_are_all_taken() -> None:
    """``--set A=1 B=2`` and ``--set A=1 --set B=2`` mean the same."""
    once = parse(["run", "c.toml", "--set", "a.b=1", "c=2", "d=3"])
    again = parse(["run", "c.toml", "--set", "a.b=1", "--set", "c=2", "--set", "d=3"])
    assert once.sets == again.sets == ["a.b=1", "c=2", "d=3"]
    assert once.config == "c.toml"
    with pytest.raises(UsageError, match="what is 'e'"):
        parse(["run", "c.toml", "--set", "a.b=1", "e"])


def test_the_state_directory_comes_from_the_option_then_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before or behind the verb; it is repeated in hints only where it must be typed again."""
    monkeypatch.delenv("EXEUNT_STATE_DIR", raising=False)
    assert parse(["ps"]).state_dir == ".exeunt"
    assert parse(["ps"]).state_dir_shown is None
    assert parse(["--state-dir", "x", "ps"]).state_dir == "x"
    monkeypatch.setenv("EXEUNT_STATE_DIR", "from-env")
    assert parse(["ps"]).state_dir == "from-env"
    assert parse(["ps"]).state_dir_shown is None
    given = parse(["ps", "--state-dir", "y"])
    assert (given.state_dir, given.state_dir_shown) == ("y", "y")
    assert parse(["ps", "--state-dir", "from-env"]).state_dir_shown is None


def test_an_interrupt_outside_of_a_run_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while something is only shown ends with the shell's code for it."""

    def interrupted(args: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("supervisor.commands.ps.ps", interrupted)
    assert main(["ps"]) == 130


def test_a_bug_is_not_taken_for_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody foresaw leaves as it is, with its traceback."""

    def broken(args: argparse.Namespace) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr("supervisor.commands.ps.ps", broken)
    with pytest.raises(ZeroDivisionError):
        main(["ps"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completions_know_the_verbs_and_complete_files(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shell is taught all verbs."""
    assert main(["completion", shell]) == 0
    shown = capsys.readouterr().out
    assert all(verb in shown for verb in VERBS)


def test_no_two_verbs_share_a_command() -> None:
    """Each verb names the function that does it."""
    subparsers: Any = next(a for a in parser()._actions if a.dest == "verb")
    commands = [inner.get_default("command") for inner in subparsers.choices.values()]
    assert len(set(commands)) == len(VERBS)


@pytest.mark.parametrize("words", [["run", "configs/plan.toml"], ["resume", "r1"]])
def test_files_of_supervisord_among_ours_are_told_before_anything_runs(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Another distribution has a package of our name; what it would break is not tried out."""
    (tmp_path / "supervisord.py").touch()
    monkeypatch.setattr(supervisor, "__file__", str(tmp_path / "__init__.py"))
    assert main([*words, "--state-dir", str(tmp_path)]) == 2
    assert "install exeunt in an environment of its own" in capsys.readouterr().err


def test_an_unknown_kind_of_spawner_is_a_mistake_and_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt variable is told in a sentence."""
    monkeypatch.setenv("EXEUNT_SPAWN", "zygot")
    assert main(["run", "configs/plan.toml"]) == 2
    assert "EXEUNT_SPAWN is 'zygot'; set it to zygote or subprocess" in capsys.readouterr().err


def test_help_loads_nothing_heavy() -> None:
    """``exeunt --help`` imports neither trio nor msgspec, so it takes far under 120 ms of CPU."""
    code = (
        "import sys; sys.argv = ['exeunt', '--help']\n"
        "from supervisor.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('trio', 'msgspec', 'httpx', 'tiktoken') if m in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    assert ran.stdout.endswith("[]\n")
