"""Somebody swaps a directory for a link as fast as he can: nothing outside is read or written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agent.beneath import Opener
from agent.errors import PathRefused, ToolFailed
from agent.toolbox import ToolContext, ToolResult
from agent.tools.files import LIST_FILES, READ_FILE
from agent.tools.search import SEARCH_FILES
from agent.tools.writes import WRITE_FILE
from agent.workspace import Workspace
from tests.support.arena import Arena, swapping


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    return tmp_path / "ws.outside"


@pytest.fixture
def arena(tmp_path: Path, outside: Path) -> Iterator[Arena]:
    root = tmp_path / "ws"
    for directory in (root / "real", root / "plain", outside):
        directory.mkdir(parents=True)
    (root / "real/x").write_text("IN")
    (root / "plain/x").write_text("IN")
    (outside / "x").write_text("OUT")
    (outside / "secret").write_text("OUT")
    targets = ("real", str(outside), "../ws.outside")
    with swapping(root, *targets, plain="plain", instead=str(outside)) as arena:
        yield arena


def read(context: ToolContext, path: str, turn: int) -> bool:
    result = READ_FILE.run({"path": path}, context)
    assert isinstance(result, ToolResult)
    assert result.content.startswith("IN"), result
    return True


def look_around(context: ToolContext, path: str, turn: int) -> bool:
    for tool, arguments in (
        (LIST_FILES, {"path": path.removesuffix("/x")}),
        (SEARCH_FILES, {"query": "OUT", "path": path.removesuffix("/x")}),
    ):
        result = tool.run(arguments, context)
        assert isinstance(result, ToolResult)
        assert "secret" not in result.content
    return False


def write(context: ToolContext, path: str, turn: int) -> bool:
    result = WRITE_FILE.run({"path": path, "content": f"IN {turn}"}, context)
    assert isinstance(result, ToolResult)
    return result.ok


def race(arena: Arena, opener: Opener, swaps: int) -> int:
    """Tools at work until there were so many swaps; how often one reached the file inside."""
    context = ToolContext(workspace=Workspace(arena.root, opener))
    inside = turn = seen = 0
    while seen < swaps:
        turn += 1
        seen += arena.swapped()
        for act in (read, look_around, write):
            for path in ("race/x", "plain/x"):
                try:
                    inside += act(context, path, turn)
                except (PathRefused, ToolFailed, OSError):
                    continue
    left = {file.name: file.read_text() for file in arena.root.with_name("ws.outside").iterdir()}
    assert left == {"x": "OUT", "secret": "OUT"}
    return inside


def test_swapping_a_directory_for_a_link_gains_nothing(arena, opener):
    assert race(arena, opener, 2_000)


@pytest.mark.long
def test_ten_thousand_swaps_gain_nothing(arena, opener):
    assert race(arena, opener, 10_000)


def test_the_race_is_lost_by_who_only_opens(arena):
    def naive(root: int, path: str, flags: int, /, *, links: bool = True) -> int:
        return os.open(path, flags, dir_fd=root)

    workspace, read, seen = Workspace(arena.root, naive), b"", 0
    while seen < 100_000 and read != b"OUT":
        seen += arena.swapped()
        with suppress(OSError):
            read = workspace.read_bytes("race/x", 100)
    assert read == b"OUT"
