"""Where the state directory is: a file system on which locks and syncs may not hold is told."""

from pathlib import Path

import pytest

from supervisor import file_system
from supervisor.commands import doctor
from supervisor.file_system import doubts_of, kind_in

TABLE = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:1 / / rw,relatime - ext4 /dev/root rw
30 27 0:31 / /home rw,relatime shared:5 master:1 - nfs4 server:/home rw,vers=4.2
31 30 0:32 / /home/me/local rw - xfs /dev/sdb rw
32 27 0:33 / /mnt/my\\040share rw - cifs //nas/share rw
33 27 0:34 / /mnt/c rw - 9p C: rw
34 27 0:35 / /mnt/remote rw - fuse.sshfs me@there: rw
35 27 0:36 / /twice rw - nfs old:/ rw
36 27 0:37 / /twice rw - tmpfs tmpfs rw
garbage
"""
KINDS = {
    "/": "ext4",
    "/srv/state": "ext4",
    "/home/you/state": "nfs4",
    "/homes": "ext4",
    "/home/me/local/state": "xfs",
    "/mnt/my share/state": "cifs",
    "/mnt/c/state": "9p",
    "/mnt/remote": "fuse.sshfs",
    "/twice/state": "tmpfs",
}


@pytest.mark.parametrize("path", KINDS)
def test_the_kind_is_that_of_the_nearest_mount(path: str) -> None:
    """Of two on the same place the later one counts."""
    assert kind_in(TABLE, Path(path)) == KINDS[path]


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "fuseblk"])
def test_doctor_warns_of_a_file_system_where_locks_may_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """With what may come of it, and what to do; it is no problem that keeps a run from starting."""
    table = tmp_path / "mountinfo"
    table.write_text(f"27 1 254:1 / / rw,relatime - {kind} there rw\n")
    monkeypatch.setattr(file_system, "MOUNTS", table)
    found = doctor._check("state directory", lambda: doctor._state_dir(str(tmp_path / "state")))
    assert found.ok
    assert f"Warning: it is on {kind}, where locks and fsync may not hold" in found.detail
    assert "--state-dir" in found.detail


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs"])
def test_a_local_file_system_is_nothing_to_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Nor is one whose kind nobody knows, where there is no table."""
    table = tmp_path / "mountinfo"
    table.write_text(f"27 1 254:1 / / rw,relatime - {kind} there rw\n")
    monkeypatch.setattr(file_system, "MOUNTS", table)
    assert doubts_of(tmp_path) == ""
    table.unlink()
    assert doubts_of(tmp_path) == ""
