"""run_command: what is told of its output and of the files that it changed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.fitting import MAX_DETAILS
from agent.manifest import Manifest, changes, take
from agent.tools.output import Output, readable
from agent.tools.shell import Shell
from agent.workspace import Workspace
from tests.support.shell import BOTH, Desk, without_sandbox

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


@pytest.mark.parametrize("shell", BOTH)
async def test_it_works(desk: Desk, shell: Callable[..., Shell]) -> None:
    done = await desk.run(shell(), "wc -l < a.txt; echo two >> a.txt; echo new > b.txt; echo e >&2")
    assert done.ok
    assert done.content == (
        "[Exit status 0.]\n1\ne\n\n[Changed files:\n"
        "  changed a.txt, 8 bytes\n  created b.txt, 4 bytes\n]"
    )
    assert (desk.folder / "b.txt").read_text() == "new\n"
    assert done.details["exit_status"] == 0
    assert done.details["artifacts"] == ["a.txt", "b.txt"]
    assert "+two\n" in done.details["diff"]
    changed, created = done.details["changes"]
    assert changed["change"] == "changed"
    assert changed["before"]["size"], changed["after"]["size"] == (4, 8)
    assert re.fullmatch("[0-9a-f]{64}", created["after"]["sha256"])
    assert "before" not in created


@pytest.mark.parametrize("shell", BOTH)
async def test_a_failure_is_an_observation(desk: Desk, shell: Callable[..., Shell]) -> None:
    failed = await desk.run(shell(), "rm a.txt; exit 3")
    assert not failed.ok
    assert failed.details["exit_status"] == 3
    assert "  deleted a.txt" in failed.content
    assert "[Exit status 127.]" in (await desk.run(shell(), "no-such-program")).content


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain\n", "plain\n"),
        (b"\x1b[31mred\x1b[0m \x1b]0;title\x07x\x1b(B", "red x"),
        (b"10%\r20%\r100%\r\nnext\r\n", "100%\nnext\n"),
        (b"a\0b\x07\x08\xff\xfe", "a\ufffdb" + "\ufffd" * 4),
        ("语言 ü".encode(), "语言 ü"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1b", "\ufffd"),
        (b"\x1b[" + b"9" * 50_000, "9" * 50_000),
    ],
)
def test_output_is_what_a_terminal_would_show(data: bytes, text: str) -> None:
    assert readable(data).removeprefix("\ufffd[") == text.removeprefix("\ufffd[")


def test_output_keeps_both_ends_however_it_comes() -> None:
    whole = "".join(f"line {number}\n" for number in range(20_000)).encode()
    texts = set()
    for size in (1, 4096, len(whole)):
        output = Output()
        for start in range(0, len(whole), size):
            output.add(whole[start : start + size])
        texts.add(output.text())
        assert output.last_line() == "line 19999"
    (text,) = texts
    assert text.startswith("line 0\n")
    assert text.endswith("line 19999")
    assert f"{len(whole):,} bytes in all" in text


async def test_names_of_every_kind_are_reported_and_cannot_lie(desk: Desk) -> None:
    line = (
        "printf x > $'new\\n  deleted a.txt'; printf x > $'\\xff'; printf x > $'\\u202egnp'; "
        "ln -s /etc/passwd link; mkfifo pipe; printf '\\0\\1' > bin; printf y > '日本 語'"
    )
    done = await desk.run(without_sandbox(), line)
    assert done.ok, done.content
    assert "\n  deleted a.txt" not in done.content
    for said in ("created '\\u202egnp'", "created link", "created pipe", "created bin", "日本 語"):
        assert said in done.content
    assert sorted(done.details["artifacts"]) == ["bin", "日本 語"]


async def test_many_changes_fit(desk: Desk) -> None:
    done = await desk.run(without_sandbox(), f"touch {'x' * 200}{{1..300}}; seq 1 90000 > a.txt")
    assert done.details["changed"] == 301
    assert "and 201 more\n" in done.content
    assert len(str(done.details)) < MAX_DETAILS
    assert done.details["changes"]
    assert done.details["diff"]


def test_an_incomplete_look_makes_no_changes_up(desk: Desk) -> None:
    workspace = Workspace(desk.folder)
    for number in range(30):
        (desk.folder / f"f{number}").touch()
    newest = max(file.stat().st_ctime_ns for file in desk.folder.iterdir())

    def look(max_files: int = 100) -> Manifest:
        """As if all of them had been there for long."""
        return replace(take(workspace, max_files=max_files), taken=newest + 1)

    for limits in ((10, 20), (20, 10), (40, 10), (10, 40)):
        before, after = map(look, limits)
        assert changes(before, after) == [], limits
    before, new = look(10), desk.folder / "new"
    new.touch()
    while new.stat().st_ctime_ns <= newest:  # file systems count in steps
        new.write_text("x")
    (seen,) = changes(before, look())
    assert (seen.path, seen.kind) == ("new", "created")


def test_what_is_made_right_behind_an_incomplete_look_is_a_change(desk: Desk) -> None:
    """Although a file system's clock may be behind ours."""
    for turn in range(20):
        for number in range(10):
            (desk.folder / f"{turn}-{number}").touch()
        before = take(Workspace(desk.folder), max_files=10)
        (desk.folder / f"new{turn}").touch()
        found = changes(before, take(Workspace(desk.folder)))
        assert f"new{turn}" in [change.path for change in found]


async def test_a_file_written_anew_with_the_same_content_did_not_change(desk: Desk) -> None:
    done = await desk.run(without_sandbox(), "cp a.txt b; mv b a.txt")
    assert done.details["changes"] == []
    back = await desk.run(
        without_sandbox(), "touch -r a.txt stamp; echo two > a.txt; touch -r stamp a.txt; rm stamp"
    )
    assert [each["path"] for each in back.details["changes"]] == ["a.txt"]
