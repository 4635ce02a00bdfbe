"""The shipped file tools, called as a run calls them."""

from pathlib import Path

import pytest
import trio

from actors import file_tools
from actors.catalogue import Catalogue
from actors.messages import Nature
from actors.spec import ToolsSpec
from actors.tool_context import ToolContext
from actors.tool_errors import PermanentError, ToolError
from actors.workspace import Workspace

EXAMPLES = Path(__file__).parent.parent / "examples" / "workspace"
NAMES = ("list_files", "read_file", "delete_file", "scan_archive")
CATALOGUE = Catalogue.load(ToolsSpec(names=NAMES, workspace="/"))


@pytest.fixture
def place(tmp_path):
    (tmp_path / "a.txt").write_text("inside")
    with Workspace(tmp_path) as made:
        yield made


async def call(workspace: Workspace | None, name: str, arguments: str = "", report=print) -> object:
    tool = CATALOGUE.get(name)
    assert tool is not None
    context = ToolContext(run_id="r", call="1.0", key="k", report=report, workspace=workspace)
    return await tool.call(context, tool.parse(arguments))


def test_flags_say_what_each_tool_does():
    """Only deleting changes something, and only with a person's approval."""
    for tool in CATALOGUE:
        deletes = tool.name == "delete_file"
        assert tool.needs_approval is deletes
        assert tool.nature is (Nature.WRITE if deletes else Nature.READ_ONLY)
        assert tool.description


async def test_the_examples_hold_what_the_scripts_look_for():
    """The largest file names the timeout; the notes say to rotate the logs."""
    with Workspace(EXAMPLES) as workspace:
        listed = await call(workspace, "list_files")
        assert isinstance(listed, str)
        sizes = {line.split()[0]: int(line.split()[1]) for line in listed.splitlines()}
        assert list(sizes) == ["access.log", "errors.log", "notes.txt"]
        assert max(sizes, key=sizes.__getitem__) == "errors.log"
        errors = await call(workspace, "read_file", '{"path": "errors.log"}')
        assert "worker 7 timed out after 30000 ms" in str(errors)
        notes = await call(workspace, "read_file", '{"path": "notes.txt"}')
        assert notes == "Remember to rotate your logs.\n"


async def test_a_listing_has_one_line_a_name(place):
    """Folders end in a slash, links say that they are links."""
    (place.root / "sub").mkdir()
    (place.root / "sub" / "odd\nname").write_text("x")
    (place.root / "way").symlink_to("/etc")
    listed = await call(place, "list_files")
    assert listed == "a.txt 6\nsub/\nsub/odd\ufffdname 1\nway (a link)"


async def test_a_long_listing_says_that_it_is_cut(place, monkeypatch):
    """A folder of a million files is one bounded result."""
    for index in range(file_tools.MAX_ENTRIES):
        (place.root / f"{index:04}").touch()
    listed = str(await call(place, "list_files")).splitlines()
    assert len(listed) == file_tools.MAX_ENTRIES + 1
    assert "only the first 1000" in listed[-1]


async def test_an_empty_workspace_is_said_to_be_empty(place):
    """An empty result would tell the model nothing."""
    place.unlink("a.txt")
    assert "empty" in str(await call(place, "list_files"))


async def test_a_missing_file_points_to_the_listing(place):
    """The words that let a model recover from a guess."""
    with pytest.raises(ToolError, match=r"There is no timeout\.log\. Call list_files"):
        await call(place, "read_file", '{"path": "timeout.log"}')


async def test_a_long_file_is_read_in_parts(place):
    """The parts put together are the file, and no character is cut in two."""
    whole = "añ€😀" * 50
    (place.root / "long").write_text(whole)
    parts, offset = [], 0
    while True:
        part = str(
            await call(place, "read_file", f'{{"path":"long","offset":{offset},"limit":37}}')
        )
        text, cut, note = part.partition("\n[bytes ")
        parts.append(text)
        if not cut:
            break
        offset = int(note.split("offset=")[1].split()[0])
    assert "".join(parts) == whole


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_a_part_smaller_than_a_character_still_moves_on(place, limit):
    """Reading by the given offset always comes to the end."""
    (place.root / "long").write_text("😀x")
    result = str(await call(place, "read_file", f'{{"path":"long","limit":{limit}}}'))
    assert f"offset={limit} " in result


async def test_reading_past_the_end_or_nothing_says_so(place):
    """The model is told the size instead of an empty text."""
    (place.root / "none").touch()
    assert "6 bytes" in str(await call(place, "read_file", '{"path":"a.txt","offset":6}'))
    assert "0 bytes" in str(await call(place, "read_file", '{"path":"none"}'))


async def test_a_large_file_is_cut_at_the_cap(place):
    """One call never brings in more than its cap, whatever the file's size."""
    with (place.root / "huge").open("wb") as file:
        file.truncate(10 * 1024**3)
    result = str(await call(place, "read_file", '{"path":"huge"}'))
    assert len(result) < file_tools.MAX_READ_BYTES + 200
    assert f"offset={file_tools.MAX_READ_BYTES} " in result


async def test_bytes_that_are_no_text_are_mended(place):
    """A binary file is readable as far as it is text."""
    (place.root / "raw").write_bytes(b"a\xff\xfeb\xe2\x82")
    assert await call(place, "read_file", '{"path":"raw"}') == "a\ufffd\ufffdb\ufffd"


async def test_deleting_says_what_was_deleted(place):
    """The file is gone and the words say so."""
    assert await call(place, "delete_file", '{"path":"a.txt"}') == "a.txt was deleted."
    assert not (place.root / "a.txt").exists()


@pytest.mark.parametrize("name", ["read_file", "delete_file", "scan_archive"])
@pytest.mark.parametrize("path", ["../x", "/etc", "~", "", "a\\u0000b", "out/passwd", "out"])
async def test_no_tool_takes_a_path_out_of_the_workspace(place, name, path):
    """Every tool with a path goes through the workspace."""
    (place.root / "out").symlink_to("/etc")
    if (name, path) == ("delete_file", "out"):
        pytest.skip("deleting a link is allowed: the link goes, its target stays")
    with pytest.raises(ToolError):
        await call(place, name, f'{{"path":"{path}"}}')


@pytest.mark.parametrize("name", ["list_files", "scan_archive"])
async def test_a_run_without_a_workspace_cannot_use_the_tools(name):
    """No words of the model can give it one."""
    with pytest.raises(PermanentError, match="no workspace"):
        await call(None, name)


async def test_a_scan_tells_how_far_it_is(place, autojump_clock):
    """Six steps of half a second, each with its label, then a summary."""
    seen: list[tuple[float, str]] = []
    start = trio.current_time()
    result = await call(
        place, "scan_archive", report=lambda label: seen.append((trio.current_time(), label))
    )
    assert [label for _, label in seen] == [
        f"scanned {count} of 1200 files" for count in (200, 400, 600, 800, 1000, 1200)
    ]
    assert [round(at - start, 3) for at, _ in seen] == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    assert result == "Scanned 1200 files below .: nothing is damaged."


async def test_a_scan_can_be_made_short_and_is_cancelled_at_once(place, monkeypatch):
    """Its duration is a matter of the environment; a cancel does not wait for the next step."""
    monkeypatch.setenv("EXEUNT_SCAN_SECONDS", "0.01")
    assert "1200" in str(await call(place, "scan_archive"))
    monkeypatch.setenv("EXEUNT_SCAN_SECONDS", "60")
    with trio.fail_after(1), trio.move_on_after(0.01) as scope:
        await call(place, "scan_archive")
    assert scope.cancelled_caught


@pytest.mark.parametrize("name", ["list_files", "read_file", "delete_file"])
async def test_a_cancelled_call_has_not_happened(place, name):
    """A cancel comes before the work or not at all, so that nothing is done untold."""
    with trio.CancelScope() as scope:
        scope.cancel()
        await call(place, name, "" if name == "list_files" else '{"path":"a.txt"}')
    assert scope.cancelled_caught
    assert (place.root / "a.txt").exists()
