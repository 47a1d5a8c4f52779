"""Taking back what commands did, also of those that were cut off."""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agent import manifest, undo
from agent.shelf import MAX_FILE_BYTES, SCRATCH, Shelf
from agent.spool import Spool
from agent.tools import unfinished
from tests.support.notified import watched
from tests.support.undoing import Desk

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")

SCRIPTS = {
    "changed": "echo more >> a.txt; printf '\\0\\1' > data.bin",
    "deleted": "rm a.txt sub/run.sh; rmdir sub",
    "created": "mkdir -p x/y; echo 1 > x/y/z; echo 2 > b.txt",
    "moved": "mv a.txt c.txt; mv sub other",
    "permissions": "chmod 600 a.txt; chmod 644 sub/run.sh",
    "a file became a folder": "rm a.txt; mkdir a.txt; echo 1 > a.txt/one",
    "a folder became a file": "rm -r sub; echo 1 > sub",
    "everything": "rm -r sub; mkdir sub; echo 1 > sub/run.sh; mv a.txt sub; echo 2 > d; : > data.bin",
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
async def test_what_a_command_did_is_taken_back_with_permissions(desk: Desk, script: str) -> None:
    desk.put("a.txt", "one\n", 0o644)
    desk.put("sub/run.sh", "#!/bin/sh\n", 0o755)
    desk.put("data.bin", os.urandom(5000), 0o600)
    before, folders = desk.files(), {path for path in desk.folder.rglob("*") if path.is_dir()}
    told = await desk.call("run_command", command=script)
    assert desk.files() != before
    assert told["lost"] == 0
    desk.take_back(told)
    assert desk.files() == before
    assert {path for path in desk.folder.rglob("*") if path.is_dir()} == folders


async def test_a_command_keeps_only_what_it_changed(desk: Desk) -> None:
    for number in range(20):
        desk.put(f"{number}.txt", f"{number}")
    told = await desk.call("run_command", command="echo more >> 7.txt")
    assert sorted(path.name for path in desk.kept.iterdir()) == sorted(
        [told["record"], undo.State(**desk.state(told)).sha256, unfinished.TOLD]
    )
    assert await desk.call("run_command", command="true") == {}
    assert len(list(desk.kept.iterdir())) == 2


async def test_a_command_in_a_large_workspace_makes_files_for_what_it_changed_only(
    desk: Desk,
) -> None:
    for number in range(500):
        desk.put(f"{number}.txt", f"{number}")
    await desk.call("run_command", command="echo more >> 6.txt")
    with watched(desk.kept) as seen:
        told = await desk.call("run_command", command="echo more >> 7.txt")
    assert seen.renamed == 4  # the content and the record, and a note before and behind it
    assert seen.created == 5  # with the spool
    assert desk.take_back(told) == ["7.txt"]
    assert (desk.folder / "7.txt").read_text() == "7"


async def test_a_command_that_changed_nothing_leaves_nothing(desk: Desk) -> None:
    desk.put("a.txt", "one")
    assert await desk.call("run_command", command="true") == {}
    assert not desk.kept.exists()


async def cancelled(desk: Desk, command: str) -> dict[str, Any]:
    """What is known of a command that was stopped behind `touch runs`."""
    line = f"{command}; touch runs; sleep 60"
    running = asyncio.create_task(desk.call("run_command", command=line))
    while not (desk.folder / "runs").exists():  # noqa: ASYNC110  a file rings no event
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not opened_in(desk.kept)
    told = unfinished.told(desk.shelf, "")
    return {} if told is None else told.details


async def test_what_a_cancelled_command_did_is_told_and_taken_back(desk: Desk) -> None:
    desk.put("a.txt", "one\n", 0o640)
    desk.put("b.txt", "two\n")
    before = desk.files()
    details = await cancelled(desk, "echo new > a.txt; chmod 600 a.txt; rm b.txt; mkdir d; : > d/c")
    named = [(each["path"], each["change"]) for each in details["changes"]]
    assert named == [
        ("a.txt", "changed"),
        ("b.txt", "deleted"),
        ("d/c", "created"),
        ("runs", "created"),
    ]
    assert "-one\n+new\n" in details["diff"]
    assert unfinished.told(desk.shelf, "another call") is None
    desk.take_back(details["undo"])
    assert desk.files() == before
    kept = {path.name for path in desk.kept.iterdir()}
    assert not kept & {unfinished.BEGUN, SCRATCH}, "what is not needed any more"


async def test_a_cancelled_command_that_changed_nothing_leaves_nothing(desk: Desk) -> None:
    desk.put("runs")
    assert await cancelled(desk, "true") == {} or not desk.kept.exists()


DIES = """
import asyncio, os, sys
from pathlib import Path
from agent.shelf import Shelf
from agent.toolbox import Toolbox, ToolContext
from agent.tools.shell import Shell
from agent.workspace import Workspace
folder, kept, line = sys.argv[1:]
shell = Shell(sandbox=lambda: None, unsandboxed=True)
shelf = Shelf(Path(kept), 2 ** 26)
context = ToolContext(workspace=Workspace(Path(folder)), shelf=shelf, call_id="c1")
asyncio.run(Toolbox([shell.tool()]).run("run_command", {"command": line}, context))
"""


async def test_what_a_command_did_whose_process_died_is_told_and_taken_back(desk: Desk) -> None:
    desk.put("a.txt", "one\n")
    before = desk.files()
    line = "echo new > a.txt; kill -9 $PPID; sleep 60"
    dying = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", DIES, str(desk.folder), str(desk.kept), line)
    )
    assert await dying.wait() == -9
    assert unfinished.told(desk.shelf, "c1") is None
    unfinished.settle(desk.workspace, desk.shelf)
    told = unfinished.told(desk.shelf, "c1")
    assert told is not None
    assert told.lines[1] == "  changed a.txt, 4 bytes"
    assert [each["path"] for each in told.details["changes"]] == ["a.txt"]
    desk.put("b.txt", "a person's")
    unfinished.settle(desk.workspace, desk.shelf)
    assert unfinished.told(desk.shelf, "c1") == told, "once: what comes later is not the command's"
    (desk.folder / "b.txt").unlink()
    assert desk.take_back(told.details["undo"]) == ["a.txt"]
    assert desk.files() == before


async def test_a_damaged_note_says_nothing_and_stops_nobody(desk: Desk) -> None:
    for name in (unfinished.BEGUN, unfinished.TOLD):
        for note in (b"", b"{}", b"\xff"):
            desk.shelf.leave(name, note)
            unfinished.settle(desk.workspace, desk.shelf)
            assert unfinished.told(desk.shelf, "c1") is None
    desk.shelf.tidy()
    assert not desk.kept.exists()


async def test_without_its_workspace_nothing_is_told_and_nothing_is_left(desk: Desk) -> None:
    desk.put("a.txt", "one\n")
    spool = Spool(desk.shelf)
    unfinished.begin("c1", manifest.take(desk.workspace, spool=spool), spool)
    spool.leave()
    shutil.rmtree(desk.folder)
    unfinished.settle(desk.workspace, desk.shelf)
    assert unfinished.told(desk.shelf, "c1") is None
    assert not desk.kept.exists()


def opened_in(folder: Path) -> list[Path]:
    """Files in it that this process has open, also those that have no name."""
    found = []
    for fd in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # of this very listing
            found.append(fd.readlink())
    return [path for path in found if path.is_relative_to(folder)]


def test_a_spool_holds_no_more_than_fits_and_nothing_once_it_is_closed(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "kept", 1000)
    spool = Spool(shelf, limit=12)
    texts = (b"123456", b"1234", b"12345", b"12")
    contents = {hashlib.sha256(data).hexdigest(): data for data in texts}
    for sha256, data in contents.items():
        spool.keep(sha256, data)
        spool.keep(sha256, data)
        assert spool.shelve(next(iter(contents)))
    assert [spool.shelve(sha256) for sha256 in contents] == [True, True, False, True]
    assert [shelf.get(sha256) for sha256 in contents] == [b"123456", b"1234", None, b"12"]
    spool.close()
    assert not any(map(spool.shelve, contents))
    spool.keep(*next(iter(contents.items())))
    assert not opened_in(tmp_path)


def test_a_spool_that_cannot_be_written_fails_nobody(tmp_path: Path) -> None:
    spool = Spool(Shelf(tmp_path / "kept", 1_000_000))
    contents = {hashlib.sha256(data).hexdigest(): data for data in (b"1" * 100_000, b"12")}
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, most[1]))  # as a disk that is full
    try:
        for sha256, data in contents.items():
            spool.keep(sha256, data)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert not any(map(spool.shelve, contents))
    spool.close()
    assert not opened_in(tmp_path)
    assert not (tmp_path / "kept").exists()


async def test_of_a_workspace_that_is_too_large_the_smaller_files_can_be_undone(desk: Desk) -> None:
    for name in "abcde":
        with (desk.folder / name).open("wb") as large:
            large.truncate(MAX_FILE_BYTES - ord(name))
    desk.put("z.txt", "one")
    told = await desk.call("run_command", command="echo 2 > a; echo 2 > b; echo 2 > z.txt")
    assert told["lost"] == 1
    fates = {fate.piece.path: fate for fate in desk.plan(told).fates}
    assert fates["a"].why == (
        "its 16,777,119 bytes were not read: of a workspace no more than 67,108,864 are, "
        "smaller files first"
    )
    assert desk.take_back(told) == ["b", "z.txt"]


async def test_names_that_are_no_text_are_in_nobodys_way(desk: Desk) -> None:
    odd = os.fsdecode(b"\xff.txt")
    desk.put(odd, "before")
    desk.put("a.txt", "mine")
    told = await desk.call("run_command", command="echo theirs > a.txt; mkdir $'\\xfe'")
    assert desk.take_back(told) == ["a.txt"]
    assert (desk.folder / "a.txt").read_text() == "mine"
    told = await desk.call("run_command", command="echo more > $'\\xff.txt'; echo theirs > a.txt")
    assert desk.standing(told) == {"\ufffd.txt": "lost", "a.txt": "ready"}


async def test_names_that_are_no_text_are_noted_of_a_command_that_dies(desk: Desk) -> None:
    odd = desk.put(os.fsdecode(b"\xff.txt"), "before")
    desk.put(os.fsdecode(b"\xfe/a.txt"), "kept")
    spool = Spool(desk.shelf)
    unfinished.begin("c1", manifest.take(desk.workspace, spool=spool), spool)
    spool.leave()
    odd.write_text("after that")
    unfinished.settle(desk.workspace, desk.shelf)
    told = unfinished.told(desk.shelf, "c1")
    assert told is not None
    assert [each["path"] for each in told.details["changes"]] == ["\ufffd.txt"]
