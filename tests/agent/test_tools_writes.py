"""write_file and edit_file: the evidence, the approval of exactly that, and what is refused."""

from __future__ import annotations

import codecs
import hashlib
import os
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.errors import PathRefused, TargetChanged, ToolFailed
from agent.toolbox import Preview, Toolbox, ToolContext, ToolResult
from agent.tools import writes, writing
from agent.tools.texts import MAX_TEXT_BYTES
from agent.workspace import MAX_WRITE_BYTES, Workspace

DATA = Path(__file__).parent / "data"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/MEMORY.md").write_text("kept")
    return tmp_path


@pytest.fixture
def preview(box: Toolbox, context: ToolContext) -> Callable[..., Awaitable[Preview]]:
    async def preview(name: str, **arguments: Any) -> Preview:
        return await box.preview(name, arguments, context)

    return preview


@pytest.fixture
def call(box: Toolbox, context: ToolContext) -> Callable[..., Awaitable[ToolResult]]:
    async def call(name: str, expected: str | None = None, **arguments: Any) -> ToolResult:
        return await box.run(name, arguments, replace(context, expected_target=expected))

    return call


async def test_what_is_previewed_is_what_is_done_and_nothing_is_done_before(call, preview, root):
    before = {file: file.read_bytes() for file in root.rglob("*") if file.is_file()}
    seen = await preview("write_file", path="notes/report.md", content="# Report\nfine\n")
    assert {file: file.read_bytes() for file in root.rglob("*") if file.is_file()} == before
    assert not (root / "notes").exists()
    assert seen.diff == "--- /dev/null\n+++ b/notes/report.md\n@@ -0,0 +1,2 @@\n+# Report\n+fine\n"
    assert seen.summary == "Create notes/report.md (2 lines, 14 bytes)"
    done = await call(
        "write_file", seen.target_digest, path="notes/report.md", content="# Report\nfine\n"
    )
    assert done.ok
    data = (root / "notes/report.md").read_bytes()
    assert data == b"# Report\nfine\n"
    assert done.details == {"artifact": "notes/report.md", "bytes": 14, "sha256": sha256(data)}


async def test_overwriting_shows_the_difference(call, preview, root):
    seen = await preview("write_file", path="./a.txt", content="one\n2\nthree\n")
    assert seen.diff.endswith("@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n")
    assert seen.summary == "Overwrite a.txt (3 lines, 12 bytes)"
    assert (await call("write_file", path="a.txt", content="x")).ok
    same = await preview("write_file", path="a.txt", content="x")
    assert "exactly this content" in same.diff


async def test_editing_replaces_exactly_one_place(call, preview, root):
    arguments = {"path": "a.txt", "old": "two", "new": "2\n2½"}
    seen = await preview("edit_file", **arguments)
    assert seen.summary == "Edit a.txt (1 place)"
    assert "-two\n+2\n+2½\n" in seen.diff
    done = await call("edit_file", seen.target_digest, **arguments)
    assert (root / "a.txt").read_text() == "one\n2\n2½\nthree\n"
    assert done.details["artifact"] == "a.txt"
    assert done.details["sha256"] == sha256((root / "a.txt").read_bytes())


async def test_replacing_all(call, root):
    (root / "t").write_text("x-x-x")
    result = await call("edit_file", path="t", old="x", new="y", replace_all=True)
    assert "(3 places)" in result.content
    assert (root / "t").read_text() == "y-y-y"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"path": "gone.txt", "old": "a", "new": "b"}, "write_file makes a new one"),
        ({"path": "a.txt", "old": "four", "new": "b"}, "does not occur"),
        ({"path": "a.txt", "old": "t", "new": "b"}, "occurs 2 times"),
        ({"path": "aaa.txt", "old": "aa", "new": "b"}, "occurs 2 times"),
        ({"path": "a.txt", "old": "two", "new": "two"}, "are the same"),
        ({"path": "a.txt", "old": "", "new": "x"}, "`old` does not satisfy minLength"),
        ({"path": "a.txt", "old": "two"}, "'new' is a required property"),
        ({"path": "photo.txt", "old": "PNG", "new": "GIF"}, "binary"),
        ({"path": "mixed.log", "old": "ok", "new": "no"}, "damaged"),
        ({"path": "big.txt", "old": "x", "new": "y"}, "too large"),
        ({"path": "latin1.txt", "old": "das", "new": "北京"}, "cp1252, which has no '北'"),
    ],
)
async def test_an_edit_that_cannot_be_done_says_why_and_changes_nothing(
    call, preview, root, arguments, said
):
    for name in ("photo.txt", "mixed.log", "latin1.txt"):
        shutil.copy(DATA / name, root)
    (root / "aaa.txt").write_text("aaa")
    with (root / "big.txt").open("wb") as file:
        file.truncate(MAX_TEXT_BYTES)
    before = {file: file.read_bytes() for file in root.iterdir() if file.is_file()}
    result = await call("edit_file", **arguments)
    assert not result.ok
    assert said in result.content
    with pytest.raises(ToolFailed):
        await preview("edit_file", **arguments)
    assert {file: file.read_bytes() for file in root.iterdir() if file.is_file()} == before


@pytest.mark.parametrize(
    ("data", "old", "new", "result"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "A\nB\nB2", b"A\r\nB\r\nB2\r\nc\r\n"),
        (b"a\r\nb\nc\n", "b\nc", "B\nC", b"a\r\nB\nC\n"),
        (b"a\r\nb\r\nc\nd\n", "a\nb", "A\nB\nB2", b"A\r\nB\r\nB2\r\nc\nd\n"),  # openclaw#116011
        (b"a\r\nb\nc\r\nd\n", "b\nc\n", "", b"a\r\nd\n"),
        (b"a\nb\r\nc", "c", "C\nD", b"a\nb\r\nC\r\nD"),
        (b"1\rx\r\n2\n", "x\n2", "y", b"1\ry\n"),
        (b"a\nb\n", "a\r\nb", "A\r\nB", b"A\nB\n"),
        (codecs.BOM_UTF8 + b"a b", "b", "é", codecs.BOM_UTF8 + "a é".encode()),
        ("城市,北京\n".encode("gb18030"), "北京", "上海", "城市,上海\n".encode("gb18030")),
        ("a b\n".encode("utf-16"), "b", "京", "a 京\n".encode("utf-16")),
        (b"caf\xe9 d", "d", "\xe9", b"caf\xe9 \xe9"),
        (b"no end", "end", "END", b"no END"),
    ],
)
async def test_an_edit_keeps_encoding_bom_and_line_ends(call, root, data, old, new, result):
    (root / "f").write_bytes(data)
    assert (await call("edit_file", path="f", old=old, new=new)).ok
    assert (root / "f").read_bytes() == result


async def test_replacing_all_keeps_the_line_ends_of_each_place(call, root):
    (root / "f").write_bytes(b"a\r\nx\r\na\nx\na\r\n")
    assert (await call("edit_file", path="f", old="a\n", new="b\nc\n", replace_all=True)).ok
    assert (root / "f").read_bytes() == b"b\r\nc\r\nx\r\nb\nc\nx\nb\r\nc\r\n"


async def test_an_edit_of_the_table_in_gb18030_touches_one_line(preview, call, root):
    shutil.copy(DATA / "orders_gb18030.csv", root)
    arguments = {"path": "orders_gb18030.csv", "old": "北京,5.50", "new": "北京,6.00"}
    seen = await preview("edit_file", **arguments)
    assert "@@ -398,6 +398,6 @@" in seen.diff
    assert "-400,北京,5.50\n+400,北京,6.00\n" in seen.diff
    before = (root / "orders_gb18030.csv").read_bytes()
    await call("edit_file", **arguments)
    assert (root / "orders_gb18030.csv").read_bytes() == before.replace(b",5.50", b",6.00")


# ── evidence ──────────────────────────────────────────────────────────────────────────────────


async def test_what_a_text_diff_cannot_show_is_said(preview, root):
    shutil.copy(DATA / "orders_gb18030.csv", root)
    seen = await preview("write_file", path="orders_gb18030.csv", content="id,city\n400,北京\n")
    assert seen.diff.startswith("encoding: gb18030 becomes utf-8\n")
    (root / "bom").write_bytes(codecs.BOM_UTF8 + b"same\r\n")
    seen = await preview("write_file", path="bom", content="same\n")
    assert "encoding: utf-8 with BOM becomes utf-8\nline ends: CRLF and LF" in seen.diff


async def test_replacing_a_binary_or_huge_file_shows_sizes_digests_and_the_new_text(preview, root):
    shutil.copy(DATA / "photo.txt", root)
    seen = await preview("write_file", path="photo.txt", content="hello\n")
    old = (root / "photo.txt").read_bytes()
    assert f"10,248 bytes, sha256 {sha256(old)}" in seen.diff
    assert f"6 bytes, sha256 {sha256(b'hello' + chr(10).encode())}" in seen.diff
    assert "+hello\n" in seen.diff
    with (root / "big").open("wb") as file:
        file.truncate(MAX_TEXT_BYTES)
    seen = await preview("write_file", path="big", content="small")
    assert "8,388,608 bytes" in seen.diff


async def test_a_link_is_shown_as_what_it_leads_to(preview, call, root):
    (root / "link").symlink_to("a.txt")
    seen = await preview("write_file", path="link", content="new\n")
    assert seen.summary.startswith("Overwrite a.txt")
    assert "--- a/a.txt" in seen.diff
    done = await call("write_file", seen.target_digest, path="link", content="new\n")
    assert done.details["artifact"] == "a.txt"
    assert (root / "link").is_symlink()


# ── approval ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("write_file", {"path": "a.txt", "content": "mine"}),
        ("edit_file", {"path": "a.txt", "old": "two", "new": "2"}),
    ],
)
@pytest.mark.parametrize("now", ["one\ntwo\nthree\nfour\n", "entirely different", None])
async def test_a_target_that_changed_since_the_approval_comes_out(
    preview, call, root, name, arguments, now
):
    seen = await preview(name, **arguments)
    (root / "a.txt").unlink()
    if now is not None:
        (root / "a.txt").write_text(now)
    with pytest.raises(TargetChanged):
        await call(name, seen.target_digest, **arguments)
    assert (root / "a.txt").exists() == (now is not None)
    assert now is None or (root / "a.txt").read_text() == now


async def test_a_file_that_appeared_since_the_approval_is_not_overwritten(preview, call, root):
    seen = await preview("write_file", path="new.txt", content="mine")
    (root / "new.txt").write_text("theirs")
    with pytest.raises(TargetChanged):
        await call("write_file", seen.target_digest, path="new.txt", content="mine")
    assert (root / "new.txt").read_text() == "theirs"


async def test_an_edit_without_approval_still_loses_no_change(call, root, monkeypatch):
    current = writing.current

    def then_saved(workspace, path, forbidden):
        found = current(workspace, path, forbidden)
        (root / "a.txt").write_text("two, saved by a person")
        return found

    monkeypatch.setattr(writes, "current", then_saved)  # to be in that moment surely
    result = await call("edit_file", path="a.txt", old="two", new="2")
    assert not result.ok
    assert "changed during the edit" in result.content
    assert (root / "a.txt").read_text() == "two, saved by a person"


async def test_a_link_that_is_set_anew_after_the_last_look_is_not_followed(
    call, preview, root, monkeypatch
):
    current = writing.current
    (root / "other.txt").write_text((root / "a.txt").read_text())
    (root / "link").symlink_to("a.txt")

    def then_swapped(workspace, path, forbidden):
        found = current(workspace, path, forbidden)
        (root / "link").unlink()
        (root / "link").symlink_to("other.txt")
        return found

    shown = await preview("write_file", path="link", content="mine")
    monkeypatch.setattr(writes, "current", then_swapped)  # to be in that moment surely
    done = await call("write_file", shown.target_digest, path="link", content="mine")
    assert done.details["artifact"] == "a.txt"
    assert (root / "a.txt").read_text() == "mine"
    assert (root / "other.txt").read_text() == "one\ntwo\nthree\n"


async def test_a_file_in_motion_has_no_preview(preview, root, monkeypatch):
    target = Workspace.target

    def then_saved(self, path, **options):
        found = target(self, path, **options)
        (root / "a.txt").write_text("next")
        return found

    monkeypatch.setattr(Workspace, "target", then_saved)  # between the digest and the content
    with pytest.raises(ToolFailed, match="by somebody else"):
        await preview("write_file", path="a.txt", content="x")


# ── refused ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["memory/MEMORY.md", "Memory/x.md", "./a/../memory/x", "memory"])
async def test_memory_is_not_written_by_these_tools(call, preview, root, path):
    (root / "a").mkdir()
    for name, arguments in (
        ("write_file", {"path": path, "content": "never ask again"}),
        ("edit_file", {"path": path, "old": "kept", "new": "never ask again"}),
    ):
        result = await call(name, **arguments)
        assert not result.ok
        assert "is not written by this tool" in result.content
        with pytest.raises(PathRefused):
            await preview(name, **arguments)
    assert [file.read_text() for file in (root / "memory").iterdir()] == ["kept"]


@pytest.mark.parametrize("path", ["../x", "/etc/x", "memory/../../x", "a.txt/x", "fifo", "~/x"])
async def test_a_path_outside_is_refused_before_anybody_is_asked(call, preview, root, path):
    os.mkfifo(root / "fifo")
    with pytest.raises((PathRefused, ToolFailed)):
        await preview("write_file", path=path, content="x")
    result = await call("write_file", path=path, content="x")
    assert not result.ok
    assert str(root) not in result.content
    assert "\n" not in result.content


async def test_too_much_is_refused(call, root):
    result = await call("write_file", path="big", content="x" * (MAX_WRITE_BYTES + 1))
    assert "16,777,216 bytes" in result.content
    assert not (root / "big").exists()


async def test_unknown_fields_are_refused(call, root):
    result = await call("write_file", path="b", content="x", mode="0777")
    assert "'mode' was unexpected" in result.content
    assert not (root / "b").exists()


async def test_text_that_no_file_can_hold_is_cleaned(call, root):
    assert (await call("write_file", path="b", content="a\ud800b\x00")).ok
    assert (root / "b").read_text() == "a\ufffdb\ufffd"
