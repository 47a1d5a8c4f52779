"""Taking effects back: files are again what they were, or nothing is touched."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from agent import undo
from agent.errors import TargetChanged
from agent.shelf import MAX_FILE_BYTES, Shelf, size_of
from agent.tools.changes import back
from tests.support.undoing import Desk

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


async def test_an_overwritten_file_is_again_what_it_was(desk: Desk) -> None:
    desk.put("notes/a.txt", "mine\r\n", 0o640)
    before = desk.files()
    told = await desk.call("write_file", path="notes/a.txt", content="theirs")
    assert told["files"] == 1
    assert "-theirs" in back(desk.plan(told).fates[0], desk.workspace)
    assert desk.take_back(told) == ["notes/a.txt"]
    assert desk.files() == before
    assert desk.standing(told) == {"notes/a.txt": "done"}


async def test_a_created_file_goes_and_so_do_the_folders_made_for_it(desk: Desk) -> None:
    desk.put("in/kept.txt", "kept")
    told = await desk.call("write_file", path="in/new/deep/a.txt", content="x")
    desk.take_back(told)
    assert not (desk.folder / "in/new").exists()
    assert list(desk.files()) == ["in/kept.txt"]


async def test_a_folder_stays_when_somebody_put_something_into_it(desk: Desk) -> None:
    told = await desk.call("write_file", path="new/a.txt", content="x")
    desk.put("new/b.txt", "a person's")
    desk.take_back(told)
    assert list(desk.files()) == ["new/b.txt"]


async def test_an_edit_is_taken_back_byte_for_byte(desk: Desk) -> None:
    desk.put("a.txt", "Grüße\r\n".encode("cp1252"))
    before = desk.files()
    told = await desk.call("edit_file", path="a.txt", old="Gr", new="G")
    assert desk.files() != before
    desk.take_back(told)
    assert desk.files() == before


async def test_a_file_that_was_changed_since_is_seen(desk: Desk) -> None:
    desk.put("a.txt", "one")
    told = await desk.call("run_command", command="echo two > a.txt; echo x > b.txt")
    (desk.folder / "a.txt").write_text("a person's")
    assert desk.standing(told) == {"a.txt": "changed", "b.txt": "ready"}


async def test_what_appears_in_the_last_moment_is_not_overwritten(desk: Desk) -> None:
    desk.put("a.txt", "one")
    told = await desk.call("run_command", command="rm a.txt; echo x > b.txt")
    plan = desk.plan(told)
    desk.put("a.txt", "a person's")
    with pytest.raises(TargetChanged):
        list(undo.carry_out(desk.workspace, plan))
    assert (desk.folder / "a.txt").read_text() == "a person's"


async def test_one_that_was_cut_off_does_the_rest_later(desk: Desk) -> None:
    desk.put("a.txt", "one")
    desk.put("b.txt", "one")
    before = desk.files()
    told = await desk.call("run_command", command="echo 2 > a.txt; echo 2 > b.txt; echo 2 > c.txt")
    next(undo.carry_out(desk.workspace, desk.plan(told)))
    assert sorted(desk.standing(told).values()) == ["done", "ready", "ready"]
    desk.take_back(told)
    assert desk.files() == before


async def test_what_is_too_large_is_said_plainly_and_the_rest_is_taken_back(desk: Desk) -> None:
    desk.put("a.txt", "one")
    with (desk.folder / "big.bin").open("wb") as big:
        big.truncate(MAX_FILE_BYTES + 1)
    told = await desk.call("run_command", command="echo 2 > a.txt; echo 2 > big.bin")
    assert told["lost"] == 1
    fates = {fate.piece.path: fate for fate in desk.plan(told).fates}
    assert fates["big.bin"].standing == "lost"
    assert "it had 16,777,217 bytes" in fates["big.bin"].why
    assert desk.take_back(told) == ["a.txt"]


async def test_a_written_file_that_was_too_large_is_said_so(desk: Desk) -> None:
    with (desk.folder / "big.bin").open("wb") as big:
        big.truncate(MAX_FILE_BYTES + 1)
    told = await desk.call("write_file", path="big.bin", content="small")
    assert told["lost"] == 1
    assert desk.standing(told) == {"big.bin": "lost"}


async def test_without_room_the_call_runs_and_cannot_be_undone(tmp_path: Path) -> None:
    desk = Desk(tmp_path, limit=100)
    desk.put("a.txt", b"x" * 200)
    told = await desk.call("write_file", path="a.txt", content="small")
    assert told == {"files": 1, "lost": 1}
    desk.box.close()


async def test_where_the_record_finds_no_room_no_content_stays(tmp_path: Path) -> None:
    """Nothing would name them: they would lie there until the whole shelf goes."""
    desk = Desk(tmp_path)
    desk.put("a.txt", "x" * 4000)
    first = await desk.call("write_file", path="b.txt", content="b")
    kept = contents_of(desk.kept)
    desk.shelf = Shelf(desk.kept, size_of(desk.kept, contents=True) + 4050)
    for tool, arguments in (
        ("write_file", {"path": "a.txt", "content": "new"}),
        ("run_command", {"command": "echo 1 > a.txt"}),
    ):
        told = await desk.call(tool, **arguments)
        assert "record" not in told
        assert told["lost"] == told["files"] == 1
        assert contents_of(desk.kept) == kept
        desk.put("a.txt", "x" * 4000)
    assert desk.standing(first) == {"b.txt": "ready"}


def contents_of(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if len(path.name) == 64}


async def test_a_content_that_was_tampered_with_does_not_come_back(desk: Desk) -> None:
    desk.put("a.txt", "one")
    told = await desk.call("write_file", path="a.txt", content="two")
    state = undo.State(**desk.state(told))
    (desk.kept / state.sha256).write_text("evil")
    assert desk.standing(told) == {"a.txt": "lost"}
    (desk.kept / told["record"]).write_text("{}")
    assert undo.read(desk.shelf, told["record"]) is None


@pytest.mark.parametrize("before", ["one", None], ids=["overwritten", "created"])
async def test_a_link_in_the_place_of_a_file_leads_to_no_other_file(
    desk: Desk, before: str | None
) -> None:
    """Not even to one in the workspace that holds the same by chance."""
    if before is not None:
        desk.put("a.txt", before)
    other = desk.put("other.txt", "two")
    told = await desk.call("write_file", path="a.txt", content="two")
    (desk.folder / "a.txt").unlink()
    (desk.folder / "a.txt").symlink_to("other.txt")
    assert desk.standing(told) == {"a.txt": "lost"}
    assert desk.take_back(told) == []
    assert other.read_text() == "two"


@pytest.mark.parametrize("swap", ["link", "folder link", "hard link", "fifo"])
async def test_the_guard_holds_while_it_is_undone(desk: Desk, tmp_path: Path, swap: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("two")
    file = desk.put("in/a.txt", "one")
    told = await desk.call("write_file", path="in/a.txt", content="two")
    file.unlink()
    match swap:
        case "link":
            file.symlink_to(outside / "a.txt")
        case "folder link":
            file.parent.rmdir()
            file.parent.symlink_to(outside)
        case "hard link":
            file.hardlink_to(outside / "a.txt")
        case "fifo":
            os.mkfifo(file)
    assert set(desk.standing(told).values()) <= {"lost", "changed"}
    assert desk.take_back(told) == []
    assert (outside / "a.txt").read_text() == "two"


async def test_what_is_kept_is_readable_by_the_server_alone(desk: Desk) -> None:
    desk.put("a.txt", "secret")
    await desk.call("write_file", path="a.txt", content="two")
    assert desk.kept.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in desk.kept.iterdir()} == {0o600}


async def test_a_person_s_file_where_a_folder_would_come_back_stops_it(desk: Desk) -> None:
    desk.put("d/x", "old")
    desk.put("z", "old")
    told = await desk.call("run_command", command="rm -r d z; echo made > made")
    desk.put("d", "a person's")
    assert desk.standing(told) == {"d/x": "changed", "made": "ready", "z": "ready"}
    (desk.folder / "d").unlink()
    assert desk.take_back(told) == ["d/x", "made", "z"]


async def test_a_person_s_file_in_a_folder_that_would_go_stops_it(desk: Desk) -> None:
    desk.put("f", "old")
    told = await desk.call("run_command", command="rm f; mkdir -p f/g; echo made > f/g/x")
    mine = desk.put("f/mine", "a person's")
    assert desk.standing(told) == {"f": "changed", "f/g/x": "ready"}
    mine.unlink()
    assert desk.take_back(told) == ["f", "f/g/x"]
    assert desk.files() == {"f": (b"old", 0o644)}


async def test_a_folder_that_a_file_took_the_place_of_comes_back(desk: Desk) -> None:
    desk.put("d/x", "old")
    told = await desk.call("run_command", command="rm -r d; echo made > d")
    assert desk.take_back(told) == ["d", "d/x"]
    assert desk.files() == {"d/x": (b"old", 0o644)}
