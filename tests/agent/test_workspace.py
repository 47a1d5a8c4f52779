"""The guard: what it lets through, what it refuses and how it says so."""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from agent.beneath import MAX_LINKS, best_opener, by_kernel, by_steps
from agent.directory import beginning, entry_in
from agent.errors import PathRefused
from agent.paths import MAX_DEPTH, normal
from agent.workspace import Workspace
from tests.support.jail import listed, read, sha256

PATHS = json.loads((Path(__file__).parent / "data" / "jail_paths.json").read_text())

REFUSED = (PathRefused, OSError)


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
        "list": lambda: listed(jail, path),
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


def test_a_path_that_leads_out_is_refused_before_anything_is_opened() -> None:
    assert normal("a/../b") == "a/../b"
    assert normal("a/..") == "a/.."
    for path in ("..", "../b", "a/../../b", "a/../../a/b"):
        with pytest.raises(PathRefused, match="leads out"):
            normal(path)


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
        lambda: listed(jail, DEEP),
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
        listed(jail, "a.txt")


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
            listed(jail, path if path != "sub" else "a.txt")
        with pytest.raises(REFUSED):
            jail.write_atomic(path if path != "missing/x" else "sub", b"")
    jail.write_atomic("n/e/w", b"x")
    jail.walk(".", max_depth=9, max_entries=99)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_vanished_root_is_a_sentence(tmp_path):
    workspace = Workspace(tmp_path / "gone")
    with pytest.raises(PathRefused, match="missing") as refusal:
        listed(workspace)
    assert str(tmp_path) not in str(refusal.value)
    with pytest.raises(PathRefused, match="missing"):
        workspace.write_atomic("x", b"")


def test_stat_and_list_name_kinds_and_sizes(jail):
    kinds = {entry.path: (entry.kind, entry.size) for entry in listed(jail)}
    assert kinds["a.txt"] == ("file", 4)
    assert kinds["sub"] == ("directory", 0)
    assert kinds["out_link"] == ("link", 0)
    assert kinds["fifo"] == ("other", 0)
    assert [entry.path for entry in listed(jail, "in_dir/")] == ["in_dir/a.txt"]
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

    def opener(root: int, path: str, flags: int, /, *, links: bool = True) -> int:
        if path == "gone":  # as if it was removed since it was listed
            raise FileNotFoundError(errno.ENOENT, "gone")
        return by_steps(root, path, flags, links=links)

    found = Workspace(tmp_path / "ws", opener).walk(".", max_depth=3, max_entries=10)
    assert [entry.path for entry in found.entries] == ["gone", "stays", "stays/x"]
    assert not found.complete


def test_a_file_deleted_while_it_is_listed_is_left_out(tmp_path):
    (tmp_path / "brief").touch()
    with os.scandir(tmp_path) as entries:
        found = next(entries)
    (tmp_path / "brief").unlink()
    assert entry_in(".", found) is None


# ── reading ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("limit", [1, 3, 4, 5, 100])
def test_the_beginning_of_a_file_is_read(folder: Path, limit: int) -> None:
    (folder / "four.txt").write_bytes(b"four")
    assert Workspace(folder).read_bytes("four.txt", limit) == b"four"[:limit]


@pytest.mark.skipif(sys.platform != "linux", reason="only there are files that hide their size")
def test_a_file_that_is_larger_than_it_says_is_read_to_its_end() -> None:
    path = Path("/proc/version")
    assert path.stat().st_size == 0
    assert beginning(os.open(path, os.O_RDONLY), 10_000) == path.read_bytes()
    assert beginning(os.open(path, os.O_RDONLY), 7) == path.read_bytes()[:7]


@pytest.mark.skipif(best_opener() is not by_kernel, reason="the way is walked step by step")
def test_reading_a_small_file_gives_up_the_interpreter_s_lock_few_times(folder: Path) -> None:
    """Whenever the system is asked: here, and once by the opener."""
    (folder / "four.txt").write_bytes(b"four")
    workspace = Workspace(folder)
    asked: list[str] = []

    def note(frame: FrameType, event: str, function: object) -> None:
        if event == "c_call" and getattr(function, "__module__", "") == "posix":
            asked.append(getattr(function, "__name__", ""))

    workspace.read_bytes("four.txt", 100)
    sys.setprofile(note)
    workspace.read_bytes("four.txt", 100)
    sys.setprofile(None)
    assert [name for name in asked if name != "fspath"] == ["fstat", "read", "close"]


def test_what_is_in_the_folder_itself_is_seen_whatever_it_is(folder: Path) -> None:
    (folder / "deep/skills").mkdir(parents=True)
    workspace = Workspace(folder)
    assert not workspace.has_any("memory", "skills")
    (folder / "skills").symlink_to(folder / "nowhere")
    assert workspace.has_any("memory", "skills")
    assert not workspace.has_any("memory")
    (folder / "memory").write_text("")
    assert workspace.has_any("memory")
    assert not Workspace(folder / "gone").has_any("memory")
