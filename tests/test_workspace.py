"""A workspace: nothing outside its folder can be read, listed or deleted by any path."""

import errno
import os
import threading

import pytest

from actors import workspace as module
from actors.tool_errors import PermanentError, ToolError
from actors.workspace import Workspace, kernel_resolves

RACE_TRIES = 3000


@pytest.fixture(params=["kernel", "walk"])
def place(request, tmp_path, monkeypatch):
    """A folder ``w`` beside a secret, resolved by the kernel or by our own walk."""
    if request.param == "walk":
        monkeypatch.setattr(module, "kernel_resolves", lambda _fd: False)
    (tmp_path / "secret.txt").write_text("outside")
    (tmp_path / "w-evil").mkdir()
    (tmp_path / "w-evil" / "x").write_text("outside")
    root = tmp_path / "w"
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_text("inside")
    (root / "sub" / "b.txt").write_text("below")
    if request.param == "kernel":
        fd = os.open(root, os.O_RDONLY)
        there = kernel_resolves(fd)
        os.close(fd)
        if not there:
            pytest.skip("this kernel has no openat2")
    with Workspace(root) as made:
        yield made


def read(workspace: Workspace, path: str) -> bytes:
    with workspace.open_read(path) as file:
        return file.read()


@pytest.mark.parametrize("path", ["a.txt", "./a.txt", "sub//b.txt", "sub/./b.txt"])
def test_a_path_inside_is_read(place, path):
    """Ordinary spellings of a path all work."""
    assert read(place, path) in (b"inside", b"below")


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "../../etc/passwd",
        "/etc/passwd",
        "~/x",
        "~root",
        "a/../../x",
        "sub/../../secret.txt",
        "sub/..",
        "",
        ".",
        "a\0b",
        "a" * 5000,
        "a" * 300,
        "/".join(["sub"] * 2000),
        "sub",
        "A.TXT",
        "a.txt.",
        "a.txt ",
        "a.txt/x",
        "missing.txt",
        "\ud800",
        "..\\secret.txt",
    ],
)
def test_a_path_that_leads_nowhere_good_is_refused_in_words(place, path):
    """The model is told what is wrong and where to look; nothing is read or deleted."""
    for refused in (place.open_read, place.unlink):
        if path == "sub" and refused == place.unlink:
            continue
        with pytest.raises(ToolError, match="Call list_files to see what is there") as caught:
            refused(path)
        assert not isinstance(caught.value, PermanentError)
        assert len(str(caught.value)) < 400


def test_a_neighbour_with_the_same_prefix_is_outside(place):
    """The root is an open folder, not the beginning of a string."""
    for path in (f"{place.root}-evil/x", "../w-evil/x", f"{place.root}/a.txt"):
        with pytest.raises(ToolError):
            place.open_read(path)


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret.txt", "/proc/self/root/etc/passwd"])
def test_a_link_that_leads_out_is_refused(place, target):
    """Neither a linked file nor a linked parent folder is a way out."""
    (place.root / "file").symlink_to(target)
    (place.root / "folder").symlink_to("..")
    (place.root / "sub" / "etc").symlink_to("/etc")
    for path in ("file", "folder/secret.txt", "sub/etc/passwd"):
        with pytest.raises(ToolError):
            place.open_read(path)
    with pytest.raises(ToolError):
        place.unlink("folder/secret.txt")
    with pytest.raises(ToolError):
        place.entries("folder")
    assert (place.root.parent / "secret.txt").exists()


def test_a_loop_of_links_is_refused(place):
    """It ends, and in words."""
    (place.root / "loop").symlink_to("loop")
    with pytest.raises(ToolError, match="link"):
        place.open_read("loop")


def test_deleting_a_link_leaves_what_it_leads_to(place):
    """Of a symbolic link the link itself goes, inside and outside alike."""
    (place.root / "out").symlink_to("../secret.txt")
    (place.root / "in").symlink_to("a.txt")
    place.unlink("out")
    place.unlink("in")
    assert (place.root.parent / "secret.txt").read_text() == "outside"
    assert read(place, "a.txt") == b"inside"
    assert not os.path.lexists(place.root / "out")


def test_deleting_a_hard_link_leaves_the_other_name(place):
    """The file that has another name outside keeps it, unchanged."""
    os.link(place.root.parent / "secret.txt", place.root / "twin")
    place.unlink("twin")
    assert (place.root.parent / "secret.txt").read_text() == "outside"


@pytest.mark.parametrize("path", [".", "./", "sub", "sub/"])
def test_a_folder_is_not_deleted(place, path):
    """Neither the workspace itself nor a folder in it."""
    with pytest.raises(ToolError, match="deleted"):
        place.unlink(path)
    assert (place.root / "sub" / "b.txt").exists()


def test_what_is_no_file_is_not_read(place):
    """A pipe without a writer does not hold the call, and a device is refused."""
    os.mkfifo(place.root / "pipe")
    with pytest.raises(ToolError, match="no regular file"):
        place.open_read("pipe")


def test_a_denied_permission_is_permanent(place):
    """No other words of the model would open it."""

    def denied(*_args: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    place._open = denied
    for refused in (place.open_read, place.unlink, place.entries):
        with pytest.raises(PermanentError, match=r"^permission denied: a\.txt$"):
            refused("a.txt")


def test_a_folder_swapped_for_a_link_is_never_followed_out(place):
    """However the swap falls, a read gives the inner file or an error."""
    outside = place.root.parent / "w-evil"
    (place.root / "d").mkdir()
    (place.root / "d" / "x").write_text("inside")
    over = threading.Event()

    def swap() -> None:
        os.symlink(outside, place.root / "link")
        while not over.is_set():
            os.rename(place.root / "d", place.root / "real")
            os.rename(place.root / "link", place.root / "d")
            os.rename(place.root / "d", place.root / "link")
            os.rename(place.root / "real", place.root / "d")

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(RACE_TRIES):
            try:
                assert read(place, "d/x") == b"inside"
            except ToolError:
                continue
    finally:
        over.set()
        swapper.join()


def test_entries_are_sorted_and_deep_without_following_links(place):
    """A listing names what is there, links as links, and nothing behind them."""
    (place.root / "z").symlink_to("..")
    entries, more = place.entries()
    assert [entry.path for entry in entries] == ["a.txt", "sub", "sub/b.txt", "z"]
    assert [entry.is_link for entry in entries] == [False, False, False, True]
    assert [entry.size for entry in entries if not entry.is_folder][:2] == [6, 5]
    assert not more
    assert [entry.path for entry in place.entries("sub")[0]] == ["sub/b.txt"]


def test_entries_stop_at_the_limit(place):
    """A folder with too many files costs a bounded amount, and says that there is more."""
    entries, more = place.entries(limit=2)
    assert len(entries) == 2
    assert more


def test_odd_names_are_shown_on_one_line(place):
    """A name that is no text, or holds a newline, cannot break a listing or its encoding."""
    os.close(os.open(os.fsencode(place.root) + b"/b\xff\n\x1b[1m", os.O_CREAT | os.O_WRONLY))
    assert place.entries()[0][1].path == "b\ufffd\ufffd\ufffd[1m"


def test_a_closed_or_missing_workspace_cannot_be_used(tmp_path):
    """A missing root is the operator's to mend, so it is no tool error."""
    with pytest.raises(FileNotFoundError):
        Workspace(tmp_path / "gone")
    workspace = Workspace(tmp_path)
    workspace.close()
    workspace.close()
    with pytest.raises(ToolError):
        workspace.entries()


def test_no_descriptor_is_left_behind(place):
    """Refusals and listings close what they opened."""
    before = len(os.listdir("/proc/self/fd"))
    os.mkfifo(place.root / "pipe")
    for path in ("pipe", "sub", "missing", "sub/b.txt/x", "sub/missing"):
        with pytest.raises(ToolError):
            place.open_read(path)
    place.entries()
    place.unlink("sub/b.txt")
    assert len(os.listdir("/proc/self/fd")) == before
