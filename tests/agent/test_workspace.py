"""The guard: what it lets through, what it refuses and how it says so."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from agent import beneath
from agent.beneath import MAX_LINKS, by_kernel, by_steps
from agent.errors import PathRefused, TargetChanged
from agent.paths import MAX_DEPTH, always_asks, folded
from agent.workspace import ABSENT, MAX_WRITE_BYTES, Workspace, _seen

PATHS = json.loads((Path(__file__).parent / "data" / "jail_paths.json").read_text())
REFUSED = (PathRefused, OSError)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(params=[by_kernel, by_steps], ids=["kernel", "steps"])
def jail(request: pytest.FixtureRequest, tmp_path: Path) -> Workspace:
    """The traps of a hostile workspace, opened in both ways."""
    if not beneath.works(request.param):
        pytest.skip("this kernel has no openat2")
    root = tmp_path / "ws"
    outside = tmp_path / "ws.outside"
    for directory in (root / "sub/dir", outside, tmp_path / "ws-evil"):
        directory.mkdir(parents=True)
    (root / "a.txt").write_text("AAA\n")
    (root / "sub/dir/a.txt").write_text("BBB\n")
    (tmp_path / "ws-evil/x").write_text("EVIL\n")
    (outside / "x").write_text("OUT\n")
    (outside / "hard").write_text("HARD\n")
    links = {
        "in_link.txt": "a.txt",
        "in_dir": "sub/dir",
        "out_link": str(outside),
        "out_file_link": str(outside / "x"),
        "out_relative": "../ws.outside/x",
        "dangling_link": str(outside / "not_yet"),
        "dangling_inside": "not_yet",
        "dangling_dir": "not_yet/deep",
        "sub/parent_link": "..",
        "sub/up2": "../..",
        "sub/back": "../a.txt",
        "loop_link": "loop_link",
        "zero_link": "/dev/zero",
        "long_link": "y" * 300,
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    os.link(outside / "hard", root / "hard_link")
    os.mkfifo(root / "fifo")
    return Workspace(root, request.param)


def read(jail: Workspace, path: str) -> bytes:
    return jail.read_bytes(path, 1_000_000)


def snapshot(jail: Workspace) -> dict[str, bytes]:
    top = jail.root.parent
    places = (top / "ws.outside", top / "ws-evil")
    return {str(file): file.read_bytes() for place in places for file in place.rglob("*")}


def test_it_reads_and_writes_a_file(jail):
    jail.write_atomic("notes/new/report.md", b"hello")
    assert read(jail, "notes/new/report.md") == b"hello"
    assert (jail.root / "notes/new/report.md").read_bytes() == b"hello"
    assert jail.digest("notes/new/report.md") == sha256(b"hello")


@pytest.mark.parametrize(("path", "verdict"), PATHS)
def test_every_path_of_the_jail_case_stays_inside(jail: Workspace, path: str, verdict: str) -> None:
    path = path.replace("{WSNAME}", "ws").replace("{WS}", str(jail.root))
    before = snapshot(jail)
    outcomes: dict[str, object] = {}
    acts: dict[str, Callable[[], object]] = {
        "read": lambda: read(jail, path),
        "list": lambda: jail.list_dir(path),
        "digest": lambda: jail.digest(path),
        "stat": lambda: jail.stat(path),
        "write": lambda: jail.write_atomic(path, b"MINE"),
    }
    for name, act in acts.items():
        try:
            outcomes[name] = act()
        except REFUSED as error:
            outcomes[name] = error
    assert snapshot(jail) == before
    for refusal in (str(error) for error in outcomes.values() if isinstance(error, Exception)):
        assert str(jail.root) not in refusal
        assert "\n" not in refusal
    seen = outcomes["read"]
    if isinstance(seen, bytes):
        assert seen in (b"AAA\n", b"BBB\n", b"HARD\n")
    written = not isinstance(outcomes["write"], Exception)
    if verdict == "ok":
        assert written
        assert isinstance(seen, bytes)
    if verdict in ("no", "no_and_no_hang", "no_clean_error", "no_for_write"):
        assert not written
    if verdict in ("no", "no_and_no_hang", "no_clean_error"):
        assert isinstance(seen, Exception)


@pytest.mark.parametrize(
    "path",
    [
        "", "/etc/passwd", "~/x", "C:x", "file:///etc/passwd", "a\\b", "a\x00b", "a\nb", "a\x85b",
        "a\u202eb", "\udc80", "..", "sub/../../x", "x" * 256, "d/" * (MAX_DEPTH + 1) + "x",
        "/".join(["y" * 200] * 6),
    ],
)  # fmt: skip
def test_a_refusal_is_one_line_that_teaches(jail, path):
    with pytest.raises(PathRefused) as refusal:
        jail.read_bytes(path, 10)
    text = str(refusal.value)
    assert "policy" in text
    assert "relative paths inside the workspace" in text
    assert "Do not try another way" in text
    assert "\n" not in text
    assert len(text) < 300


@pytest.mark.parametrize("path", ["in_link.txt", "sub/back", "sub/../a.txt", "./a.txt", "sub//../a.txt"])  # fmt: skip
def test_links_and_dots_inside_are_followed_for_reading_and_writing(jail, path):
    assert read(jail, path) == b"AAA\n"
    assert jail.target(path).path == "a.txt"
    jail.write_atomic(path, b"new")
    assert (jail.root / "a.txt").read_bytes() == b"new"
    assert (jail.root / "in_link.txt").is_symlink()


@pytest.mark.parametrize("path", ["out_link/x", "out_file_link", "out_relative", "sub/up2/ws-evil/x", "loop_link", "loop_link/x", "zero_link", "dangling_link", "long_link"])  # fmt: skip
def test_links_that_leave_or_loop_are_refused(jail, path):
    with pytest.raises(PathRefused):
        read(jail, path)
    with pytest.raises(PathRefused):
        jail.target(path)
    with pytest.raises(PathRefused):
        jail.write_atomic(path, b"x")


DEEP = "one/two/three/x"
ELSEWHERE = {
    "absolute": "{outside}",
    "relative": "{up}/ws.outside",
    "neighbour": "{up}/ws-evil",
    "the top": "/",
    "this process": "/proc/self/root{outside}",
    "an open file": "/proc/self/fd",
    "nowhere": "{outside}/not_yet",
    "nowhere inside": "not_yet",
    "itself": "{name}",
    "a device": "/dev/zero",
}


@pytest.mark.parametrize("position", range(4))
@pytest.mark.parametrize("target", ELSEWHERE)
def test_a_link_at_any_position_leads_nowhere(jail: Workspace, target: str, position: int) -> None:
    names = DEEP.split("/")
    place = jail.root.joinpath(*names[:position])
    place.mkdir(parents=True, exist_ok=True)
    up = "../" * (position + 1)
    outside = jail.root.parent / "ws.outside"
    (outside / "/".join(names[position + 1 :])).parent.mkdir(parents=True, exist_ok=True)
    to = ELSEWHERE[target].format(outside=outside, up=up.rstrip("/"), name=names[position])
    (place / names[position]).symlink_to(to)
    before = snapshot_of(outside)
    for act in (
        lambda: read(jail, DEEP),
        lambda: jail.write_atomic(DEEP, b"MINE"),
        lambda: jail.target(DEEP),
        lambda: jail.list_dir(DEEP),
    ):
        with pytest.raises(REFUSED) as refusal:
            act()
        assert str(jail.root.parent) not in str(refusal.value)
    found = jail.walk(".", max_depth=9, max_entries=999)
    assert not [entry for entry in found.entries if entry.path.startswith("/".join([*names[: position + 1], ""]))]  # fmt: skip
    assert snapshot_of(outside) == before


def snapshot_of(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


@pytest.mark.parametrize("path", ["dangling_inside", "dangling_dir/file", "dangling_inside/file"])
def test_nothing_is_made_where_a_link_dangles(jail, path):
    with pytest.raises(PathRefused):
        jail.write_atomic(path, b"x")
    with pytest.raises(REFUSED):
        read(jail, path)
    assert not (jail.root / "not_yet").exists()


def test_a_write_goes_through_real_directories_only(jail):
    assert read(jail, "in_dir/a.txt") == b"BBB\n"
    for act in (jail.target, lambda path: jail.write_atomic(path, b"x")):
        with pytest.raises(PathRefused, match="linked directory"):
            act("in_dir/a.txt")
    assert read(jail, "sub/dir/a.txt") == b"BBB\n"


def test_a_long_chain_of_links_ends(jail):
    for number in range(MAX_LINKS + 1):
        (jail.root / f"chain{number}").symlink_to(f"chain{number + 1}")
    (jail.root / f"chain{MAX_LINKS + 1}").write_text("end")
    assert read(jail, "chain5") == b"end"
    with pytest.raises(PathRefused):
        read(jail, "chain0")


@pytest.mark.parametrize("act", ["read", "write", "target", "digest"])
def test_special_files_are_refused_without_hanging(jail, act):
    path = jail.root / "s"
    here = Path.cwd()
    os.chdir(jail.root)  # a socket's address is short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("s")
    finally:
        os.chdir(here)
    assert path.is_socket()
    acts = {
        "read": lambda name: read(jail, name),
        "write": lambda name: jail.write_atomic(name, b"x"),
        "target": jail.target,
        "digest": jail.digest,
    }
    for name in ("fifo", "s"):
        with pytest.raises(PathRefused, match="not a regular file"):
            acts[act](name)


def test_a_second_hard_link_allows_reading_only(jail):
    assert read(jail, "hard_link") == b"HARD\n"
    with pytest.raises(PathRefused, match="hard link"):
        jail.write_atomic("hard_link", b"x")
    with pytest.raises(PathRefused, match="hard link"):
        jail.target("hard_link")


def test_directories_are_not_files(jail):
    with pytest.raises(IsADirectoryError):
        read(jail, "sub")
    for path in (".", "sub", "sub/", "a.txt/", "sub/..", "sub/parent_link"):
        with pytest.raises(PathRefused):
            jail.write_atomic(path, b"x")
    with pytest.raises(PathRefused):
        read(jail, "a.txt/")
    with pytest.raises(NotADirectoryError):
        read(jail, "a.txt/b")
    with pytest.raises(NotADirectoryError):
        jail.write_atomic("a.txt/b", b"x")
    with pytest.raises(NotADirectoryError):
        jail.list_dir("a.txt")


def test_a_name_that_can_pass_for_another_is_read_but_not_written(jail):
    lookalike = "cafe\u0301.txt"
    (jail.root / lookalike).write_text("decomposed")
    assert read(jail, lookalike) == b"decomposed"
    with pytest.raises(PathRefused, match="NFC"):
        jail.write_atomic(lookalike, b"x")
    jail.write_atomic("caf\u00e9.txt", b"composed")
    assert read(jail, lookalike) == b"decomposed"


def test_unreadable_directories_say_so_and_leak_nothing(jail):
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in ("missing/x", "out_link/x", "fifo", "sub", "a.txt/x", "loop_link"):
        with pytest.raises(REFUSED):
            read(jail, path)
        with pytest.raises(REFUSED):
            jail.list_dir(path if path != "sub" else "a.txt")
        with pytest.raises(REFUSED):
            jail.write_atomic(path if path != "missing/x" else "sub", b"")
    jail.write_atomic("n/e/w", b"x")
    jail.walk(".", max_depth=9, max_entries=99)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_vanished_root_is_a_sentence(tmp_path):
    workspace = Workspace(tmp_path / "gone")
    with pytest.raises(PathRefused, match="missing") as refusal:
        workspace.list_dir()
    assert str(tmp_path) not in str(refusal.value)
    with pytest.raises(PathRefused, match="missing"):
        workspace.write_atomic("x", b"")


# ── looking around ────────────────────────────────────────────────────────────────────────────


def test_stat_and_list_name_kinds_and_sizes(jail):
    kinds = {entry.path: (entry.kind, entry.size) for entry in jail.list_dir()}
    assert kinds["a.txt"] == ("file", 4)
    assert kinds["sub"] == ("directory", 0)
    assert kinds["out_link"] == ("link", 0)
    assert kinds["fifo"] == ("other", 0)
    assert [entry.path for entry in jail.list_dir("in_dir/")] == ["in_dir/a.txt"]
    assert jail.stat("in_link.txt").path == "a.txt"
    assert jail.stat("fifo").kind == "other"
    assert jail.stat(".").kind == "directory"
    assert jail.stat("sub/dir/../parent_link").path == "."
    (jail.root / "sub/dir/here").symlink_to("../dir/..")
    assert jail.stat("sub/dir/here").path == "sub"
    with pytest.raises(FileNotFoundError):
        jail.stat("missing")
    with pytest.raises(PathRefused):
        jail.stat("out_link/x")


def test_a_walk_is_level_by_level_and_says_when_it_left_something_out(jail):
    whole = jail.walk(".", max_depth=5, max_entries=100)
    paths = [entry.path for entry in whole.entries]
    assert whole.complete
    assert paths.index("zero_link") < paths.index("sub/dir") < paths.index("sub/dir/a.txt")
    assert not any(path.startswith("out_link/") for path in paths)
    assert not jail.walk(".", max_depth=1, max_entries=100).complete
    few = jail.walk(".", max_depth=5, max_entries=3)
    assert len(few.entries) == 3
    assert not few.complete
    skipping = jail.walk(".", max_depth=5, max_entries=100, skip={"sub"})
    assert "sub" in [entry.path for entry in skipping.entries]
    assert "sub/dir" not in [entry.path for entry in skipping.entries]
    with pytest.raises(FileNotFoundError):
        jail.walk("missing", max_depth=2, max_entries=10)


def test_a_walk_survives_a_directory_that_it_may_not_enter(tmp_path):
    (tmp_path / "ws/gone").mkdir(parents=True)
    (tmp_path / "ws/stays").mkdir()
    (tmp_path / "ws/stays/x").write_text("x")

    def opener(root: int, path: str, flags: int) -> int:
        if path == "gone":  # as if it was removed since it was listed
            raise FileNotFoundError(errno.ENOENT, "gone")
        return by_steps(root, path, flags)

    found = Workspace(tmp_path / "ws", opener).walk(".", max_depth=3, max_entries=10)
    assert [entry.path for entry in found.entries] == ["gone", "stays", "stays/x"]
    assert not found.complete


def test_a_file_deleted_while_it_is_listed_is_left_out(tmp_path):
    (tmp_path / "brief").touch()
    with os.scandir(tmp_path) as entries:
        found = next(entries)
    (tmp_path / "brief").unlink()
    assert _seen(".", found) is None


# ── writing ───────────────────────────────────────────────────────────────────────────────────


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
    assert not [entry for entry in jail.list_dir() if ".pilothouse" in entry.path]


# ── the two ways ──────────────────────────────────────────────────────────────────────────────


def test_the_kernel_is_asked_where_it_answers():
    def unknown(root: int, path: str, flags: int) -> int:
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


@pytest.mark.parametrize("name", ["mem\u200bory/MEMORY.md", "re\u00adport.txt", "a.txt\ufeff"])
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


# ── what a crash leaves ───────────────────────────────────────────────────────────────────────


def test_a_sweep_removes_old_half_written_files_of_ours_and_nothing_else(jail: Workspace) -> None:
    ours = [jail.root / place / f".pilothouse-{'a' * 16}.tmp" for place in (".", "sub/dir")]
    kept = {
        "young": jail.root / f".pilothouse-{'b' * 16}.tmp",
        "a person's": jail.root / ".pilothouse-notes.tmp",
        "longer": jail.root / f".pilothouse-{'c' * 17}.tmp",
        "linked": jail.root / f".pilothouse-{'d' * 16}.tmp",
        "outside": jail.root.parent / "ws.outside" / f".pilothouse-{'e' * 16}.tmp",
    }
    for file in (*ours, *kept.values()):
        file.write_text("half")
        os.utime(file, (100, 100))
    os.utime(kept["young"], (5000, 5000))
    os.link(kept["linked"], jail.root / "second name")
    (jail.root / f".pilothouse-{'f' * 16}.tmp").symlink_to("a.txt")
    (jail.root / f".pilothouse-{'0' * 16}.tmp").mkdir()
    assert jail.sweep(before=1000) == len(ours)
    assert not any(file.exists() for file in ours)
    assert all(file.exists() for file in kept.values())
    assert read(jail, "a.txt") == b"AAA\n"
    assert jail.sweep(before=1000) == 0


def test_no_tool_writes_a_file_that_nobody_would_see(jail: Workspace) -> None:
    with pytest.raises(PathRefused, match="temporary files"):
        jail.write_atomic(f"sub/.pilothouse-{'0' * 16}.tmp", b"hidden")
