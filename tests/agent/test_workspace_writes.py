"""The guard when it writes: whole files or nothing, in both ways of opening, and after a crash."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
from pathlib import Path

import pytest

from agent import beneath
from agent.beneath import by_kernel, by_steps
from agent.directory import left_behind
from agent.errors import PathRefused, TargetChanged
from agent.paths import always_asks, folded
from agent.workspace import ABSENT, MAX_WRITE_BYTES, Workspace
from tests.support.jail import listed, read, sha256


def test_a_write_keeps_the_mode_and_leaves_no_temporary_file(jail):
    (jail.root / "a.txt").chmod(0o750)
    jail.write_atomic("a.txt", b"new")
    assert (jail.root / "a.txt").stat().st_mode & 0o7777 == 0o750
    jail.write_atomic("fresh", b"")
    umask = os.umask(0)
    os.umask(umask)
    assert (jail.root / "fresh").stat().st_mode & 0o777 == 0o666 & ~umask
    assert not list(jail.root.rglob(".pilothouse-*"))


def test_only_the_approved_content_is_replaced(jail):
    approved = jail.target("a.txt")
    assert approved.digest == sha256(b"AAA\n") == jail.digest("a.txt")
    assert approved.size == 4
    (jail.root / "a.txt").write_text("edited by a person")
    with pytest.raises(TargetChanged):
        jail.write_atomic("a.txt", b"x", expected=approved.digest)
    assert read(jail, "a.txt") == b"edited by a person"
    jail.write_atomic("a.txt", b"x", expected=jail.digest("a.txt"))
    assert read(jail, "a.txt") == b"x"


def test_a_new_file_is_only_made_where_still_nothing_is(jail):
    target = jail.target("new/deep/file")
    assert (target.path, target.digest, target.size) == ("new/deep/file", ABSENT, 0)
    assert jail.digest("new/deep/file") == ABSENT
    assert jail.target("sub/new").digest == ABSENT
    with pytest.raises(TargetChanged):
        jail.write_atomic("a.txt", b"x", expected=ABSENT)
    with pytest.raises(TargetChanged):
        jail.write_atomic("new/deep/file", b"x", expected=sha256(b"was there"))
    assert not (jail.root / "new").exists()
    jail.write_atomic("new/deep/file", b"x", expected=ABSENT)
    assert read(jail, "new/deep/file") == b"x"


def test_the_last_look_is_just_before_the_rename(jail, monkeypatch):
    """The person saves while we sync our temporary file: the last moment that we can see."""
    sync = os.fsync

    def save_then_sync(fd: int) -> None:
        (jail.root / "a.txt").write_text("saved meanwhile")
        sync(fd)

    monkeypatch.setattr(os, "fsync", save_then_sync)  # the only way to be in that moment surely
    with pytest.raises(TargetChanged):
        jail.write_atomic("a.txt", b"x", expected=sha256(b"AAA\n"))
    assert read(jail, "a.txt") == b"saved meanwhile"
    assert not list(jail.root.rglob(".pilothouse-*"))


def test_a_way_back_out_of_nothing_is_refused(jail):
    with pytest.raises(PathRefused, match="does not exist"):
        jail.write_atomic("new/../file", b"x")
    assert not (jail.root / "new").exists()


@pytest.mark.parametrize("path", ["memory/x.md", "Memory/x", "sub/../MEMORY/deep/x", "note_link", "memory", "memory/note.md"])  # fmt: skip
def test_a_forbidden_directory_is_not_written_under_any_spelling(jail, path):
    (jail.root / "memory").mkdir()
    (jail.root / "memory/note.md").write_text("kept")
    (jail.root / "note_link").symlink_to("memory/note.md")
    with pytest.raises(PathRefused, match="not written by this tool"):
        jail.target(path, forbidden={"memory"})
    with pytest.raises(PathRefused, match="not written by this tool"):
        jail.write_atomic(path, b"x", forbidden={"memory"})
    assert [file.name for file in (jail.root / "memory").iterdir()] == ["note.md"]
    jail.write_atomic("memory/x.md", b"allowed without the rule")


def test_sizes_have_a_hard_limit(jail, monkeypatch):
    with pytest.raises(PathRefused, match="bytes"):
        jail.write_atomic("big", b"x" * (MAX_WRITE_BYTES + 1))
    with (jail.root / "sparse").open("wb") as file:
        file.truncate(2 * 1024**3)
    with pytest.raises(PathRefused, match="larger"):
        jail.digest("sparse")
    assert read(jail, "a.txt")[:2] == jail.read_bytes("a.txt", 2)


def test_listing_hides_our_own_temporary_files(jail):
    (jail.root / f".pilothouse-{'0' * 16}.tmp").write_text("left by a crash")
    assert not [entry for entry in listed(jail) if ".pilothouse" in entry.path]


def test_the_kernel_is_asked_where_it_answers():
    def unknown(root: int, path: str, flags: int, /, *, links: bool = True) -> int:
        raise OSError(errno.ENOSYS, "no such system call")

    assert not beneath.works(unknown)
    assert beneath.works(by_steps)
    assert beneath.best_opener() is (by_kernel if beneath.works(by_kernel) else by_steps)


def test_a_kernel_that_is_never_ready_is_an_error(tmp_path):
    """A write lease makes every non-blocking open fail with EAGAIN, the errno of a lost race."""
    (tmp_path / "leased").write_text("x")
    old = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        with (tmp_path / "leased").open("r+b") as file:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            with pytest.raises(BlockingIOError):
                Workspace(tmp_path, by_kernel).read_bytes("leased", 1)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    finally:
        signal.signal(signal.SIGIO, old)


def test_a_directory_made_by_somebody_else_first_is_used(tmp_path, monkeypatch):
    mkdir = os.mkdir

    def twice(name: str, *, dir_fd: int) -> None:
        mkdir(name, dir_fd=dir_fd)
        mkdir(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", twice)  # the race, at the moment where it would happen
    Workspace(tmp_path, by_steps).write_atomic("d/x", b"x")
    assert (tmp_path / "d/x").read_bytes() == b"x"


@pytest.mark.parametrize("which", ["the root itself", "a folder above it"])
def test_a_root_that_became_a_link_is_not_the_workspace_any_more(
    tmp_path: Path, which: str
) -> None:
    root = tmp_path / "home" / "desk"
    root.mkdir(parents=True)
    (root / "a.txt").write_text("AAA")
    workspace = Workspace(root)
    assert workspace.read_bytes("a.txt", 10) == b"AAA"
    swapped = root if which == "the root itself" else root.parent
    swapped.rename(tmp_path / "moved")
    evil = tmp_path / "evil"
    (evil / "desk").mkdir(parents=True)
    for place in (evil, evil / "desk"):
        (place / "a.txt").write_text("SECRET")
    swapped.symlink_to(evil)
    with pytest.raises(PathRefused, match="workspace folder"):
        workspace.read_bytes("a.txt", 10)
    with pytest.raises(PathRefused, match="workspace folder"):
        workspace.write_atomic("o.txt", b"x")
    assert not list(evil.rglob("o.txt"))


@pytest.mark.parametrize(
    "name",
    [
        "mem\u200bory/MEMORY.md",
        "re\u00adport.txt",
        "a.txt\ufeff",
        "a\u061c.txt",
        "a\u206a",
        "a\U000e0061",
    ],
)
def test_a_name_with_unseen_characters_is_not_written(tmp_path: Path, name: str) -> None:
    """On a card it would look like another one."""
    with pytest.raises(PathRefused, match="cannot be seen"):
        Workspace(tmp_path).write_atomic(name, b"x")


@pytest.mark.parametrize(
    "name",
    [
        "memory",
        "Memory",
        "MEMORY",
        "\uff4demory",
        "memory.",
        "memory . ",
        "me\u200bmory",
        "mem\u206fory",
        "memory\U000e0061",
        "\ufb01x",
    ],
)
def test_spellings_of_one_folder_are_one(name: str) -> None:
    assert folded(name) == ("fix" if name == "\ufb01x" else "memory")


@pytest.mark.parametrize("path", ["memory./x", "\uff4d\uff45mory/x", "memory\u3000/x", "MEM\u00d6RY/../memory/x"])  # fmt: skip
def test_a_forbidden_directory_has_no_other_spelling(tmp_path: Path, path: str) -> None:
    with pytest.raises(PathRefused):
        Workspace(tmp_path).write_atomic(path, b"x", forbidden={"memory"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "asks"),
    [
        ("skills/x/SKILL.md", True),
        ("skills", True),
        ("Skills/x", True),
        ("./skills//x", True),
        ("notes/../skills/x", True),
        ("\u017fkills/a/b/c/d", True),
        ("s\u200bkills/x", True),
        ("sk\u206aills/x", True),
        ("skills\U000e0041/x", True),
        ("skills./x", True),
        ("\uff53kills/x", True),
        ("memory/MEMORY.md", True),
        ("notes/skills/x", False),
        ("skillset/x", False),
        ("skills.md", False),
        ("", False),
        ("..", False),
    ],
)
def test_what_later_runs_read_as_instructions_is_always_asked_about(path: str, asks: bool) -> None:
    assert always_asks(path) is asks


def test_what_is_another_users_is_not_swept(jail: Workspace) -> None:
    found = (jail.root / "a.txt").stat()
    assert left_behind(found, before=found.st_mtime + 1)
    theirs = list(found)
    theirs[stat.ST_UID] += 1
    assert not left_behind(os.stat_result(theirs), before=found.st_mtime + 1)


def test_a_sweep_removes_old_half_written_files_of_ours_and_nothing_else(jail: Workspace) -> None:
    ours = [jail.root / place / f".pilothouse-{'a' * 16}.tmp" for place in (".", "sub/dir")]
    ours.append(jail.root / f".pilothouse-{'d' * 16}.tmp")  # it had been given its name already
    kept = {
        "young": jail.root / f".pilothouse-{'b' * 16}.tmp",
        "a person's": jail.root / ".pilothouse-notes.tmp",
        "longer": jail.root / f".pilothouse-{'c' * 17}.tmp",
        "outside": jail.root.parent / "ws.outside" / f".pilothouse-{'e' * 16}.tmp",
    }
    for file in (*ours, *kept.values()):
        file.write_text("half")
        os.utime(file, (100, 100))
    os.utime(kept["young"], (5000, 5000))
    os.link(ours[-1], jail.root / "its name")
    (jail.root / f".pilothouse-{'f' * 16}.tmp").symlink_to("a.txt")
    (jail.root / f".pilothouse-{'0' * 16}.tmp").mkdir()
    assert jail.sweep(before=1000) == len(ours)
    assert not any(file.exists() for file in ours)
    assert all(file.exists() for file in kept.values())
    assert read(jail, "a.txt") == b"AAA\n"
    assert read(jail, "its name") == b"half"
    assert jail.sweep(before=1000) == 0


def test_no_tool_writes_a_file_that_nobody_would_see(jail: Workspace) -> None:
    with pytest.raises(PathRefused, match="temporary files"):
        jail.write_atomic(f"sub/.pilothouse-{'0' * 16}.tmp", b"hidden")
