"""A workspace, what is kept of it, and the tools that change its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent import undo
from agent.shelf import Shelf
from agent.toolbox import Toolbox, ToolContext
from agent.tools import builtin_tools
from agent.tools.shell import Shell
from agent.undo import Plan
from agent.workspace import Workspace


class Desk:
    """A workspace, its shelf, and the tools that change files."""

    def __init__(self, home: Path, limit: int = 64 * 1024 * 1024) -> None:
        self.folder, self.kept = home / "ws", home / "kept"
        self.folder.mkdir()
        self.workspace = Workspace(self.folder)
        self.shelf = Shelf(self.kept, limit)
        # Without a sandbox, so that the tests run wherever there is bash.
        shell = Shell(seconds=20, sandbox=lambda: None, unsandboxed=True)
        self.box = Toolbox(builtin_tools(shell=shell))

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """What the details of its result say of undoing."""
        context = ToolContext(workspace=self.workspace, shelf=self.shelf)
        result = await self.box.run(tool, arguments, context)
        assert result.ok, result.content
        undo_details = result.details.get("undo")
        return dict(undo_details or {})

    def plan(self, told: dict[str, Any]) -> Plan:
        record = undo.read(self.shelf, told["record"])
        assert record is not None
        return undo.plan(self.workspace, self.shelf, record)

    def take_back(self, told: dict[str, Any]) -> list[str]:
        return sorted(undo.carry_out(self.workspace, self.plan(told)))

    def standing(self, told: dict[str, Any]) -> dict[str, str]:
        return {fate.piece.path: fate.standing for fate in self.plan(told).fates}

    def files(self) -> dict[str, tuple[bytes, int]]:
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return {
            str(path.relative_to(self.folder)): (path.read_bytes(), path.stat().st_mode & 0o777)
            for path in found
        }

    def put(self, path: str, data: bytes | str = b"", mode: int = 0o644) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data if isinstance(data, bytes) else data.encode())
        file.chmod(mode)
        return file

    def state(self, told: dict[str, Any]) -> dict[str, Any]:
        """Of the one file as it was before."""
        before = self.plan(told).fates[0].piece.before
        assert before is not None
        return {"sha256": before.sha256, "size": before.size, "mode": before.mode}
