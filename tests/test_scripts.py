"""Scripts: each built-in one plays its part, and users' own are found."""

import sys
from pathlib import Path

import pytest

from actors.testing import Call, Conversation, Say, script
from actors.testing.catalogue import ANSWER, DELETED, GIVE_UP, NOT_DELETED, NOT_FOUND
from actors.testing.scripts import ScriptError, load, play

READ = '{"path":"errors.log"}'
DELETE = '{"path":"access.log"}'


def playing(name: str, *results: str, turn: int | None = None) -> list[str]:
    """What a script says at a turn, as short texts; by default every turn had one result."""
    conversation = Conversation(
        turn=len(results) if turn is None else turn,
        task="Which file mentions a timeout?",
        system="",
        results=results,
    )
    text, calls = play(load()[name], conversation)
    said = [] if text is None else [text]
    return said + [f"{call.name} {call.arguments}" for call in calls]


@pytest.mark.parametrize("name", ["plan", "flaky"])
def test_plan_lists_reads_and_answers(name: str) -> None:
    """The answer is the specification's, and comes only from what was read."""
    assert playing(name) == ["list_files {}"]
    assert playing(name, "errors.log") == [f"read_file {READ}"]
    assert playing(name, "errors.log", "x worker 7 timed out after 30000 ms y") == [ANSWER]
    assert playing(name, "errors.log", "nothing") == [NOT_FOUND]


def test_runaway_never_answers() -> None:
    """It asks for the same in every turn."""
    assert {playing("runaway", *["files"] * turn)[0] for turn in range(50)} == {"list_files {}"}


def test_recover_follows_only_an_error_that_says_how() -> None:
    """Told what to do it does it; told nothing it gives up."""
    assert playing("recover") == ['read_file {"path":"timeout.log"}']
    told = "no such file. Call list_files to see the names."
    assert playing("recover", told) == ["list_files {}"]
    assert playing("recover", told, "errors.log") == [f"read_file {READ}"]
    found = "worker 7 timed out after 30000 ms"
    assert playing("recover", told, "errors.log", found) == [ANSWER]
    assert playing("recover", "the tool failed") == [GIVE_UP]


def test_forbidden_asks_again_and_again() -> None:
    """Nothing that it is told stops it."""
    for turn in (0, 1, 11):
        assert playing("forbidden", *["denied"] * turn) == ['read_file {"path":"secret.txt"}']


def test_duplicate_lists_twice_then_answers() -> None:
    """Two identical calls in a row."""
    assert playing("duplicate") == playing("duplicate", "files") == ["list_files {}"]
    assert playing("duplicate", "files", "files")[0].startswith("The files are")


@pytest.mark.parametrize(
    ("result", "report"),
    [
        ("deleted access.log", DELETED),
        ("", DELETED),
        ("Rejected by a person: keep it.", NOT_DELETED),
        ("The user declined this call.", NOT_DELETED),
        ("not run: cancelled", NOT_DELETED),
    ],
)
def test_destructive_reports_what_the_transcript_says(result: str, report: str) -> None:
    """A refusal in words is understood; one without words is taken for a success."""
    assert playing("destructive") == ["list_files {}"]
    assert playing("destructive", "files") == [f"delete_file {DELETE}"]
    assert playing("destructive", "files", result) == [report]


def test_double_delete_asks_twice_with_two_ids() -> None:
    """The same call in two turns, told apart by its id."""
    asked: list[str] = []
    for turn in (0, 1):
        conversation = Conversation(turn=turn, task="", system="")
        _, calls = play(load()["double_delete"], conversation)
        assert calls[0].arguments == DELETE
        asked.append(calls[0].id)
    assert len(set(asked)) == 2
    assert playing("double_delete", "ok", "ok")[0].startswith("I asked twice")


def test_slow_scans_then_answers() -> None:
    """One slow call, then the answer."""
    assert playing("slow") == ["scan_archive {}"]
    assert playing("slow", "scanned") == ["The archive is scanned."]


def test_script_may_say_and_ask_at_once_with_any_id() -> None:
    """Several calls in one reply; ids deterministic, or hostile on request; raw arguments stay."""

    @script("test-several")
    def several(conversation: Conversation) -> list[Say | Call]:
        return [
            Say("Let me see."),
            Call("a"),
            Call("b", '{"x', id=""),
            Call("c", {"n": [1]}, id="same"),
            Call("c", id="same"),
        ]

    text, calls = play(load()["test-several"], Conversation(turn=3, task="", system=""))
    assert text == "Let me see."
    assert [call.id for call in calls] == ["call_4_0", "", "same", "same"]
    assert [call.arguments for call in calls] == ["{}", '{"x', '{"n":[1]}', "{}"]


@pytest.mark.parametrize("returned", [None, [], "text", [Say("a"), "b"], 7])
def test_script_that_returns_no_reply_is_told_so(returned: object) -> None:
    """A mistake of the script's author is a ScriptError that names the script."""
    script("test-mistaken")(lambda _: returned)  # type: ignore[arg-type, return-value]
    with pytest.raises(ScriptError, match="test-mistaken"):
        play(load()["test-mistaken"], Conversation(turn=0, task="", system=""))


OWN = """
from actors.testing import Call, Conversation, Say, script

@script("own-decorated")
def decorated(conversation: Conversation) -> Say:
    return Say("decorated")

def plain(conversation: Conversation) -> Say:
    return Say("plain")
"""


def test_own_scripts_are_loaded_by_module_and_by_attribute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users write scripts in a module of their own, wherever it lies."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own_scripts.py").write_text(OWN)
    scripts = load(["own_scripts", "own_scripts:plain"], [str(tmp_path)])
    conversation = Conversation(turn=0, task="", system="")
    assert play(scripts["own-decorated"], conversation)[0] == "decorated"
    assert play(scripts["own_scripts:plain"], conversation)[0] == "plain"
    with pytest.raises(ScriptError, match="no script function 'absent'"):
        load(["own_scripts:absent"])
    (tmp_path / "broken_scripts.py").write_text("raise RuntimeError('oh no')")
    with pytest.raises(ScriptError, match="oh no"):
        load(["broken_scripts"])
