"""An agent's own notes: what the tools keep, what they refuse, and what a kill leaves of them."""

import os

import pytest
from caged import caged, helpers_on_the_path
from test_landlock import needs_landlock
from world import Watched, World

from actors import note_tools, notes
from actors.catalogue import Catalogue
from actors.events import Started
from actors.messages import Nature
from actors.notes import NOTE_TOOLS, Notes
from actors.outcome import Status
from actors.spec import Sandbox, ToolsSpec
from actors.testing.scripts import Call, Say
from actors.tool_errors import ArgumentError, ToolError
from supervisor.config import load_config

__all__ = ["helpers_on_the_path"]

NAMES = ("note_write", "note_read", "note_list")
DONE = Say("done")


def note(name: str, text: str) -> Call:
    return Call("note_write", {"name": name, "text": text})


@pytest.fixture
def kept(tmp_path):
    made = Notes(tmp_path)
    yield made
    made.close()


@pytest.fixture
def noting(world: World) -> World:
    """A world whose run has the note tools, and no workspace."""
    world.change(tools=ToolsSpec(names=NAMES))
    return world


async def test_notes_are_written_read_and_listed_by_a_run(noting: World):
    """They are plain files in the run's directory, and the second text takes the first one's place.

    A read behind a write sees what was written, though the same read was made before.
    """
    read = Call("note_read", {"name": "plan.md"})
    steps = [Call("note_list"), note("plan.md", "one 🦆"), read, note("plan.md", "two"), read]
    await noting.provide([*steps, Call("note_list"), DONE])
    assert (await noting.perform()).status is Status.COMPLETED
    assert noting.results() == [
        "(there are no notes)",
        "The note plan.md was written, 8 bytes.",
        "one 🦆",
        "The note plan.md was written, 3 bytes.",
        "two",
        "plan.md 3",
    ]
    folder = noting.run_dir / "notes"
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("plan.md", "two")]
    assert folder.stat().st_mode & 0o777 == 0o700


class Killed(BaseException):
    """What ends a process in the middle of a call."""


class Deadly(Watched):
    """A disk beside which the run is ended at the first boundary of a name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def boundary(self, name: str) -> None:
        super().boundary(name)
        if name == self._name:
            raise Killed


@pytest.mark.parametrize("boundary", ["before", "after"])
async def test_a_write_that_was_cut_off_is_made_again(noting: World, boundary: str):
    """Whether the text was there or not, it is there once and before what is written later."""
    await noting.provide([[note("a", "first"), note("a", "later")], DONE])
    noting.fs = Deadly(f"tool:note_write:{boundary}")
    with pytest.raises(BaseExceptionGroup) as caught:
        await noting.perform()
    assert caught.group_contains(Killed)
    assert [path.read_text() for path in (noting.run_dir / "notes").iterdir()] == (
        ["first"] if boundary == "after" else []
    )
    noting.fs = Watched()
    await noting.perform("restart")
    starts = [(e.ref, e.attempt) for e in noting.events if isinstance(e, Started)]
    assert starts == [("1.0", 1), ("1.0", 2), ("1.1", 1)]
    assert noting.results() == ["The note a was written, 5 bytes."] * 2
    assert (noting.run_dir / "notes" / "a").read_text() == "later"


def test_natures_say_what_may_be_done_again():
    """A write is keyed by its own text: made twice, it leaves the same note."""
    catalogue = Catalogue.load(ToolsSpec(names=NAMES))
    assert {tool.name: tool.nature for tool in catalogue} == {
        "note_write": Nature.KEYED,
        "note_read": Nature.READ_ONLY,
        "note_list": Nature.READ_ONLY,
    }


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".new", "a/b", "../a", "/etc/passwd", "a\0", "a\n", "x" * 65, "ä", "-r"]
)
def test_a_name_that_is_no_plain_word_is_refused(kept: Notes, name: str):
    """Whatever looks like a path, or is hidden, is told what a name is; nothing is made."""
    for act in (lambda: kept.write(name, "x"), lambda: kept.read(name)):
        with pytest.raises(ToolError, match="is no name for a note"):
            act()
    assert list(kept.folder.iterdir()) == []


def test_the_schema_refuses_what_is_no_name():
    """A model is told before anything is called."""
    for name in ("../a", "a b"):
        with pytest.raises(ArgumentError):
            note_tools.note_write.parse(f'{{"name": "{name}", "text": ""}}')


def test_links_and_folders_in_the_place_of_a_note_are_not_followed(kept: Notes, tmp_path):
    """Somebody who shares the folder cannot lead a note elsewhere."""
    secret = tmp_path / "secret"
    secret.write_text("theirs")
    (kept.folder / "link").symlink_to(secret)
    (kept.folder / ".new").symlink_to(secret)
    assert kept.sizes() == {}
    with pytest.raises(ToolError, match="no note link"):
        kept.read("link")
    with pytest.raises(OSError, match="symbolic"):
        kept.write("other", "ours")
    assert secret.read_text() == "theirs"
    (kept.folder / ".new").unlink()
    kept.write("link", "ours")
    assert (secret.read_text(), kept.read("link")) == ("theirs", "ours")


def test_a_note_over_its_limit_changes_nothing(kept: Notes):
    """The limit counts bytes, and the words name both numbers."""
    kept.write("a", "before")
    with pytest.raises(ToolError, match=r"may have 65536 bytes, and this text has 65538"):
        kept.write("a", "é" * (notes.NOTE_MAX_BYTES // 2 + 1))
    assert kept.read("a") == "before"
    kept.write("a", "x" * notes.NOTE_MAX_BYTES)


def test_all_notes_together_have_a_limit(kept: Notes, monkeypatch):
    """In bytes and in number; writing over a note frees what it had."""
    monkeypatch.setattr(notes, "NOTES_MAX_BYTES", 10)
    kept.write("a", "12345")
    kept.write("b", "12345")
    with pytest.raises(ToolError, match="may have 10 bytes, and would have 11"):
        kept.write("a", "123456")
    kept.write("a", "1")
    monkeypatch.setattr(notes, "NOTES_MAX", 2)
    with pytest.raises(ToolError, match="There are 2 notes already"):
        kept.write("c", "")
    kept.write("b", "over")
    assert kept.sizes() == {"a": 1, "b": 4}


def test_a_note_is_read_from_an_offset_on(kept: Notes):
    """Behind its end there is nothing, which is said; odd text is kept as it can be."""
    kept.write("a", "one\ud800two")
    assert kept.read("a", 3) == "\ufffdtwo"
    assert kept.read("a", 99) == "(a has 9 bytes, and nothing from byte 99 on)"
    kept.write("empty", "")
    assert kept.read("empty") == "(empty has 0 bytes, and nothing from byte 0 on)"
    with pytest.raises(ToolError, match=r"There is no note b\. Call note_list"):
        kept.read("b")


def test_a_half_written_note_is_none(kept: Notes):
    """What a kill left of a write is not listed, and the next write takes its place."""
    (kept.folder / ".new").write_text("half")
    assert kept.sizes() == {}
    kept.write("a", "whole")
    assert os.listdir(kept.folder) == ["a"]


@needs_landlock
async def test_notes_are_kept_in_a_sandbox(noting: World):
    """The run's directory is closed there, but for its notes."""
    await noting.provide([note("a", "inside"), Call("note_read", {"name": "a"}), DONE])
    noting.change(sandbox=Sandbox(read=()), prices=None)
    async with caged(noting) as here:
        outcome = await here.run()
    assert outcome
    assert outcome.status is Status.COMPLETED
    assert noting.results()[1] == "inside"


def test_an_agent_has_note_tools_by_naming_them(tmp_path):
    """No module and no folder is needed, and an agent that does not name them has none."""
    config = tmp_path / "exeunt.toml"
    config.write_text(
        '[run]\nagent = "a"\ntask = "t"\n[provider]\nkind = "scripted"\nscript = "plan"\n'
        '[agents.a]\ntools = ["note_write", "note_list"]\n'
    )
    spec = load_config(config, environ={}).run_spec().tools
    assert set(spec.names) <= NOTE_TOOLS
    assert Catalogue.load(spec).names == ("note_write", "note_list")
    assert Catalogue.load(ToolsSpec()).names == ()
