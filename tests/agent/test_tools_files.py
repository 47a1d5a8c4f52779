"""list_files, read_file and search_files on real folders."""

from __future__ import annotations

import codecs
import json
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agent.fitting import MAX_CONTENT
from agent.policy import Policy, Subject
from agent.toolbox import Toolbox, ToolContext, ToolResult
from agent.tools import builtin_tools
from agent.tools import search as search_module
from agent.tools.files import PAGE
from agent.tools.texts import MAX_TEXT_BYTES, decode

DATA = Path(__file__).parent / "data"
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    (root / "quotes/2026").mkdir(parents=True)
    (root / "brief.md").write_text("# Brief\nCompare the quotes.\n")
    (root / "quotes/a.csv").write_text("item,price\nbolt,3\n")
    (root / "quotes/2026/b.csv").write_text("item,price\nBolt,4\n")
    (root / "out").symlink_to(tmp_path)
    return root


@pytest.fixture
def call(box: Toolbox, context: ToolContext) -> Callable[..., Awaitable[ToolResult]]:
    async def call(name: str, **arguments: Any) -> ToolResult:
        return await box.run(name, arguments, context)

    return call


async def test_it_lists_reads_and_searches(call):
    listed = await call("list_files")
    assert listed.content.split("\n") == [
        "brief.md  28 bytes",
        "out  (link)",
        "quotes/",
        "quotes/2026/",
        "quotes/2026/b.csv  18 bytes",
        "quotes/a.csv  18 bytes",
    ]
    assert (await call("read_file", path="brief.md")).content == "# Brief\nCompare the quotes."
    found = await call("search_files", query="bolt")
    assert found.content == "quotes/a.csv:2: bolt,3\nquotes/2026/b.csv:2: Bolt,4"
    assert found.details == {"matches": 2, "files": 3, "left_out": []}


def test_the_list_of_tools_is_closed_and_every_effect_has_a_preview():
    tools = builtin_tools()
    assert [tool.name for tool in tools] == [
        "list_files",
        "read_file",
        "search_files",
        "write_file",
        "edit_file",
        "memory_write",
        "ask_user",
    ]
    for tool in tools:
        asked = (
            Policy().decide(Subject(tool=tool.name, capability=tool.capability)).decision == "ask"
        )
        assert asked == (tool.preview is not None) == (tool.risk != "low")
        assert tool.parameters["additionalProperties"] is False


# ── list_files ────────────────────────────────────────────────────────────────────────────────


async def test_a_list_is_bounded_and_says_so(call, root):
    assert "[Not everything is shown" in (await call("list_files", depth=1)).content
    (root / "many").mkdir()
    for number in range(1100):
        (root / f"many/{number:04}").touch()
    many = await call("list_files", path="many")
    assert many.details == {"path": "many", "entries": 1000, "complete": False}
    assert "[Not everything is shown" in many.content


async def test_a_list_names_odd_things_and_does_not_enter_what_machines_wrote(call, root):
    (root / ".git").mkdir()
    (root / ".git/config").touch()
    os.mkfifo(root / "pipe")
    (root / "empty").mkdir()
    (root / os.fsdecode(b"bad\xff")).touch()
    listed = (await call("list_files")).content
    assert ".git/\n" in listed
    assert "config" not in listed
    assert "pipe  (not a regular file)" in listed
    assert "bad\ufffd" in listed
    assert "config" in (await call("list_files", path=".git")).content
    assert (await call("list_files", path="empty/")).content == "(nothing in it)"


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("list_files", {"path": "brief.md"}, "a file and not a directory"),
        ("list_files", {"path": "nowhere"}, "nothing with this name"),
        ("list_files", {"path": "out"}, "policy"),
        ("list_files", {"path": "/"}, "policy"),
        ("list_files", {"depth": 99}, "`depth` does not satisfy maximum"),
        ("read_file", {"path": "quotes"}, "this is a directory"),
        ("read_file", {"path": "brief.md/x"}, "not a directory"),
        ("read_file", {"path": "nowhere.md"}, "list_files shows"),
        ("read_file", {"path": "out/ws/brief.md"}, "policy"),
        ("read_file", {"path": "brief.md", "start_line": 9}, "has only 2 lines"),
        ("read_file", {"path": "brief.md", "start_line": 2, "end_line": 1}, "comes before"),
        ("search_files", {"query": "x", "path": "nowhere"}, "nothing with this name"),
        ("search_files", {"query": "x", "path": "../"}, "policy"),
        ("search_files", {"query": "a\nb"}, "within one line"),
    ],
)  # fmt: skip
async def test_what_cannot_be_had_is_said_in_one_line(call, root, name, arguments, said):
    result = await call(name, **arguments)
    assert not result.ok
    assert said in result.content
    assert "\n" not in result.content
    assert str(root) not in result.content


# ── read_file ─────────────────────────────────────────────────────────────────────────────────


async def test_a_long_file_is_read_page_by_page_to_its_end(call, root):
    lines = [f"line {number} {'x' * 90}" for number in range(1, 20_001)]
    (root / "big.txt").write_text("\n".join(lines) + "\n")  # 2 MB
    seen: list[str] = []
    start = 1
    while start <= 20_000:
        page = await call("read_file", path="big.txt", start_line=start)
        assert len(page.content) <= MAX_CONTENT
        *shown, note = page.content.split("\n")
        seen += shown
        assert f"[Lines {start}-{page.details['to']} of 20,000" in note
        start = page.details["to"] + 1
        assert (f"start_line={start}" in note) == (start <= 20_000)
    assert seen == lines


async def test_a_range_of_lines(call):
    part = await call("read_file", path="brief.md", start_line=2, end_line=2)
    assert part.content.startswith("Compare the quotes.\n[Lines 2-2 of 2; the file has 28 bytes.]")
    first = await call("read_file", path="brief.md", end_line=1)
    assert first.content.startswith("# Brief\n[Lines 1-1 of 2")
    assert "start_line=2" in first.content
    beyond = await call("read_file", path="brief.md", start_line=2, end_line=10_000)
    assert beyond.details["to"] == 2


async def test_one_endless_line_is_cut_with_its_size(call, root):
    (root / "oneline.json").write_text('{"k":"' + "x" * 400_000 + '"}')
    (root / "second.txt").write_text("short\n" + "y" * 100_000 + "\nend\n")
    result = await call("read_file", path="oneline.json")
    assert "Line 1 has 400,008 characters" in result.content
    assert len(result.content) < MAX_CONTENT
    first = await call("read_file", path="second.txt")
    assert first.content.startswith("short\n[Lines 1-1 of 3")
    second = await call("read_file", path="second.txt", start_line=2)
    assert second.content.startswith("y" * PAGE)
    assert "start_line=3" in second.content


async def test_more_than_can_be_read_is_said(call, root):
    (root / "huge.log").write_text("0123456789abcde\n" * (MAX_TEXT_BYTES // 16 + 1000))
    result = await call("read_file", path="huge.log")
    assert "of the first 524,288 (only 8,388,608 bytes can be read)" in result.content
    assert "the file has 8,404,608 bytes" in result.content
    last = await call("read_file", path="huge.log", start_line=524_288)
    assert "start_line" not in last.content


async def test_an_empty_file_and_crlf(call, root):
    (root / "empty").touch()
    assert (await call("read_file", path="empty")).content == "(the file is empty)"
    (root / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
    assert (await call("read_file", path="dos.txt")).content == "one\ntwo"


async def test_a_gb18030_table_whose_first_pages_are_ascii(call, root):
    shutil.copy(DATA / "orders_gb18030.csv", root)
    result = await call("read_file", path="orders_gb18030.csv", start_line=400)
    assert "\n400,北京,5.50\n401,上海,6.50\n402,𠮷野家,7.00\n" in result.content
    assert "\ufffd" not in result.content
    assert result.details["encoding"] == "gb18030"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("photo.txt", "binary file of 10,248 bytes"),
        ("nul.txt", "binary"),
        ("utf16_nobom.txt", "hello wide"),
        ("latin1.txt", "café naïve \N{EN DASH} das"),
        ("mixed.log", "ok line\n"),
        ("mixed.log", "\nend Ω"),
        ("mixed.log", "U+FFFD stands for"),
    ],
)
async def test_odd_bytes_are_recognised(call, root, name, said):
    shutil.copy(DATA / name, root)
    result = await call("read_file", path=name)
    assert said in result.content
    assert "\x00" not in result.content
    assert len(result.content) < 400


@pytest.mark.parametrize(
    ("data", "text", "encoding"),
    [
        (b"", "", "utf-8"),
        (codecs.BOM_UTF8 + "grün".encode(), "grün", "utf-8"),
        (codecs.BOM_UTF8 + b"broken \xff", "broken \ufffd", "utf-8"),
        (codecs.BOM_UTF16_LE + "北京".encode("utf-16-le"), "北京", "utf-16-le"),
        (codecs.BOM_UTF16_BE + "北京".encode("utf-16-be"), "北京", "utf-16-be"),
        (codecs.BOM_UTF32_LE + "北京".encode("utf-32-le"), "北京", "utf-32-le"),
        ("plain text\n".encode("utf-16-be"), "plain text\n", "utf-16-be"),
        ("漢字 und Kanji".encode(), "漢字 und Kanji", "utf-8"),
        ("訂單總額北京".encode("gb18030"), "訂單總額北京", "gb18030"),
        ("Müller, Jörg, Größe".encode("latin-1"), "Müller, Jörg, Größe", "cp1252"),
        ("ÄÖÜ und äöü".encode("cp1252"), "ÄÖÜ und äöü", "cp1252"),
        *(
            (text.encode(encoding), text, encoding)
            for encoding, text in (
                ("cp932", "商品名,価格\r\nりんご,100\r\n"),
                ("euc_jp", "商品名,価格\nりんご,100\n"),
                ("cp949", "상품명,가격\n사과,100\n대한민국 만세\n"),
                ("big5", "商品名稱,價格\n蘋果,100\n香蕉,200\n"),
                ("cp1251", "Отчёт за май: итого 100\n"),
                ("koi8_r", "Отчёт за май: итого 100\n"),
                ("cp866", "Отчёт за май: итого 100\n"),
                ("cp1253", "Καλημέρα κόσμε, αναφορά\n"),
                ("gb18030", "产品,价格\n苹果,100\n"),
                ("gb18030", "八百标本"),
            )
        ),
        (b"caf\xe9 \x81", "caf\xe9 \x81", "latin-1"),
        ("中文日志\n".encode() * 20 + b"\xff\n", "中文日志\n" * 20 + "\ufffd\n", "utf-8"),
    ],
)
def test_encodings(data, text, encoding):
    decoded = decode(data)
    assert decoded is not None
    assert (decoded.text, decoded.encoding) == (text, encoding)


@pytest.mark.parametrize(
    "data",
    [
        codecs.BOM_UTF16_LE + b"\x00\xd8",
        b"%PDF-1.7 text",
        b"\x01\x02\x03text",
        b"h\x00\x00\xd8" * 9,
    ],
)
def test_binary_is_not_text(data):
    assert decode(data) is None


def test_chinese_is_not_taken_for_another_language():
    """Two letters alone may be good UTF-8 as well."""
    words = [*json.loads((ROOT / "locale/zh_Hans.json").read_text("utf-8")).values()]
    for text in words:
        found = decode(text.encode("gb18030"))
        assert found is not None
        assert found.encoding in ("gb18030", "utf-8"), text
    whole = decode("".join(words).encode("gb18030"))
    assert whole is not None
    assert whole.text == "".join(words)


async def test_a_guessed_encoding_is_told(call, root):
    (root / "latin").write_bytes(b"caf\xe9")
    assert (
        "[Read as cp1252: the file does not say what it is.]"
        in (await call("read_file", path="latin")).content
    )
    assert "Read as" not in (await call("read_file", path="brief.md")).content


def test_a_part_of_a_file_loses_only_its_cut_character():
    whole = "你好".encode()
    part = decode(whole[:-1], whole=False)
    assert part is not None
    assert part.text == "你"


# ── search_files ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "matches"),
    [
        ({"query": "BOLT"}, 2),
        ({"query": "bolt", "case_sensitive": True}, 1),
        ({"query": "bolt", "path": "quotes/2026"}, 1),
        ({"query": "bolt", "path": "quotes/a.csv"}, 1),
        ({"query": "e", "glob": "*.md"}, 2),
        ({"query": "price", "glob": "**/*.csv"}, 2),
        ({"query": "brief", "glob": "**/*.md"}, 1),
        ({"query": "price", "glob": "quotes/*/b.csv"}, 1),
        ({"query": "price", "glob": "a.csv"}, 1),
        ({"query": "(a+)+$"}, 0),
    ],
)
async def test_a_search_finds_lines(call, arguments, matches):
    found = await call("search_files", **arguments)
    assert found.ok
    assert found.details["matches"] == matches
    assert (matches == 0) == ("No line in" in found.content)


async def test_a_search_decodes_skips_binary_and_shows_the_place_in_a_long_line(call, root):
    for name in ("orders_gb18030.csv", "photo.txt"):
        shutil.copy(DATA / name, root)
    assert (
        "orders_gb18030.csv:401: 400,北京,5.50"
        in (await call("search_files", query="北京")).content
    )
    (root / "long.txt").write_text("a" * 5000 + "needle" + "b" * 5000)
    found = (await call("search_files", query="NEEDLE")).content
    assert "needle" in found
    assert found.startswith("long.txt:1: …a")
    assert found.endswith("b…")
    assert len(found) < 300


async def test_a_search_stops_at_its_limits_and_says_so(call, root, monkeypatch):
    (root / "many.txt").write_text("hit\n" * 1000)
    found = await call("search_files", query="hit")
    assert found.details["matches"] == 200
    assert "what comes after 200 matches" in found.content
    for limit, value, said in (
        ("MAX_FILES", 1, "after 1 files"),
        ("MAX_BYTES", 5, "after 5 bytes"),
        ("MAX_SECONDS", -1.0, "after -1 seconds"),
        ("_MAX_ENTRIES", 2, "further entries"),
        ("MAX_FILE_BYTES", 10, "what files have after 10 bytes"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(search_module, limit, value)  # smaller limits instead of huge folders
            assert said in (await call("search_files", query="zzz")).content


async def test_a_file_that_cannot_be_opened_is_left_out_of_a_search(call, root, context):
    seen: list[str] = []

    def vanish(text: str, done: float | None, total: float | None) -> None:
        seen.append(text)
        (root / "brief.md").unlink(missing_ok=True)

    watching = ToolContext(workspace=context.workspace, progress=vanish)
    box = Toolbox(builtin_tools())
    found = await box.run("search_files", {"query": "bolt"}, watching)
    box.close()
    assert found.details["matches"] == 2
    assert found.details["left_out"] == ["files that could not be opened"]
    assert seen[0] == "searching brief.md"
