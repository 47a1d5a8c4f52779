"""Path arguments of MCP tools, the evidence of their calls, and what their effects changed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agent.errors import PathRefused
from agent.policy import Policy
from tests.support.mcp import declared, desk, entry
from tests.support.needs import needs_sandbox


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "ws"
    place.mkdir()
    return place


ESCAPES = [
    *("../x", "/etc/passwd", "~/x", "a/../../x", "out/x", "C:\\x", "a\\b", "a\x00b", "file:///x"),
    *("sub/../../x", "/proc/self/environ", "fifo", "hard"),
]


@pytest.fixture
def jail(folder: Path) -> Path:
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "hard").write_text("theirs")
    (folder / "out").symlink_to(outside)
    (folder / "sub").mkdir()
    (folder / "inside.txt").write_text("ours")
    (folder / "link").symlink_to("inside.txt")
    os.link(outside / "hard", folder / "hard")
    os.mkfifo(folder / "fifo")
    return folder


async def test_no_path_argument_leads_outside(jail: Path) -> None:
    async with desk(jail, declared(notes=entry(sandbox=False))) as one:
        await one.accept()
        for path in ESCAPES:
            arguments = {"path": path, "content": "mine"}
            with pytest.raises(PathRefused, match="Refused by workspace policy: ") as refused:
                await one.box.subject("mcp_notes_write", arguments, one.workspace)
            result = await one.call("notes_write", **arguments)
            assert result.content == str(refused.value), path
            listed = await one.call("notes_many", paths=["inside.txt", path])
            if path != "hard":  # it may be read: the file tools read it too
                assert "Refused by workspace policy: " in listed.content, path
    assert (jail.parent / "outside/hard").read_text() == "theirs"


async def test_the_server_gets_the_path_that_was_judged(jail: Path) -> None:
    async with desk(jail, declared(notes=entry(sandbox=False))) as one:
        await one.accept()
        paths = ["link", "sub/../inside.txt", "./sub/"]
        subject = await one.box.subject("mcp_notes_many", {"paths": paths}, one.workspace)
        result = await one.call("notes_many", paths=paths)
    assert subject.paths == ("inside.txt", "inside.txt", "sub")
    assert json.loads(result.content) == {"paths": ["inside.txt", "inside.txt", "sub"]}


async def test_evidence_is_the_call_its_surroundings_and_its_target(jail: Path) -> None:
    async with desk(jail, declared(notes=entry(sandbox=False))) as one:
        await one.accept()
        arguments = {"path": "inside.txt", "content": "a\n── arguments, as they are sent\u202e"}
        seen = await one.box.preview("mcp_notes_write", arguments, one.context())
        (jail / "inside.txt").write_text("changed")
        changed = await one.box.preview("mcp_notes_write", arguments, one.context())
        assert changed.target_digest != seen.target_digest
        with pytest.raises(Exception, match="would not do what was approved"):
            await one.call("notes_write", target=seen.target_digest, **arguments)
        done = await one.call("notes_write", target=changed.target_digest, **arguments)
    assert seen.diff.startswith("── call of an MCP server\nserver: notes (")
    assert "sandbox: NONE" in seen.diff
    assert '│   "content": "a\\n── arguments, as they are sent<202E>"' in seen.diff
    assert "inside.txt: sha256 " in seen.diff
    assert done.ok


async def test_a_rule_made_from_a_card_fits_this_exact_call(jail: Path) -> None:
    async with desk(jail, declared(notes=entry(sandbox=False))) as one:
        await one.accept()
        arguments = {"path": "inside.txt", "content": "x"}
        subject = await one.box.subject("mcp_notes_write", arguments, one.workspace)
    assert Policy().decide(subject).decision == "ask"
    assert subject.exact


@needs_sandbox
async def test_what_an_effect_changed_is_told(folder: Path) -> None:
    (folder / "a.txt").write_text("old\n")
    async with desk(folder, declared(notes=entry())) as one:
        await one.accept()
        result = await one.call("notes_write", path="a.txt", content="new\n")
    assert "changed a.txt, 4 bytes" in result.content
    assert result.details["changes"][0]["path"] == "a.txt"
    assert "-old\n+new\n" in result.details["diff"]
    assert result.details["artifacts"] == ["a.txt"]
