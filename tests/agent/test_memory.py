"""Memory: written with a person's yes only, bounded, and data in the prompt."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.errors import PathRefused, TargetChanged, ToolFailed
from agent.events import ApprovalRequired, ToolCallFinished
from agent.judging import Judge
from agent.memory import MAX_FILE_BYTES, MAX_PROMPT_BYTES, remembered
from agent.messages import ToolMessage
from agent.policy import Policy, Rule
from agent.providers.scripted import ScriptedCall, Turn
from agent.shelf import Shelf
from agent.text import unmark
from agent.toolbox import Preview, Toolbox, ToolContext, ToolResult
from agent.undo import carry_out, plan, read
from agent.workspace import Workspace
from tests.support.engine import Bench

Call = Callable[..., Awaitable[ToolResult]]
See = Callable[..., Awaitable[Preview]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "ws").mkdir()
    return tmp_path / "ws"


@pytest.fixture
def call(box: Toolbox, context: ToolContext) -> Call:
    async def call(expected: str | None = None, **arguments: Any) -> ToolResult:
        return await box.run("memory_write", arguments, replace(context, expected_target=expected))

    return call


@pytest.fixture
def see(box: Toolbox, context: ToolContext) -> See:
    async def see(**arguments: Any) -> Preview:
        return await box.preview("memory_write", arguments, context)

    return see


def note(root: Path, path: str, text: str | bytes) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode() if isinstance(text, str) else text)


def files_in(root: Path) -> list[Path]:
    return list(root.rglob("*"))


# ── writing ───────────────────────────────────────────────────────────────────────────────────


async def test_what_is_shown_is_what_is_noted(root: Path, call: Call, see: See) -> None:
    seen = await see(content="- Invoices are in euros.")
    assert not (root / "memory").exists()
    assert "+- Invoices are in euros." in seen.diff
    assert seen.summary.startswith("Add to memory/MEMORY.md")
    done = await call(seen.target_digest, content="- Invoices are in euros.")
    assert done.ok
    assert (root / "memory/MEMORY.md").read_text() == "- Invoices are in euros.\n"
    assert "artifact" not in done.details, "it is no file made for the person"


@pytest.mark.parametrize(
    ("before", "added", "after"),
    [
        ("one\n", "two", "one\ntwo\n"),
        ("one", "two\n\n", "one\ntwo\n"),
        ("one\r\ntwo\r\n", "three\nfour", "one\r\ntwo\r\nthree\r\nfour\r\n"),
        ("\ufeffone\n", "zwei ü", "\ufeffone\nzwei ü\n"),
        ("", "one", "one\n"),
    ],
)
async def test_adding_keeps_what_is_there(
    root: Path, call: Call, before: str, added: str, after: str
) -> None:
    note(root, "memory/2026-05-31.md", before)
    assert (await call(content=added, path="memory/2026-05-31.md")).ok
    assert (root / "memory/2026-05-31.md").read_bytes() == after.encode()


async def test_replacing_shows_what_goes(root: Path, call: Call, see: See) -> None:
    note(root, "memory/MEMORY.md", "old\nkept\n")
    seen = await see(content="kept\nnew\n", mode="replace")
    assert "-old" in seen.diff
    assert "+new" in seen.diff
    assert (await call(seen.target_digest, content="kept\nnew\n", mode="replace")).ok
    assert (root / "memory/MEMORY.md").read_text() == "kept\nnew\n"


async def test_over_budget_is_refused_and_not_cut(root: Path, call: Call, see: See) -> None:
    note(root, "memory/MEMORY.md", "x" * (MAX_FILE_BYTES - 10))
    with pytest.raises(ToolFailed, match="8,192"):
        await see(content="more than ten bytes")
    refused = await call(content="more than ten bytes")
    assert not refused.ok
    assert "mode replace" in refused.content
    assert (root / "memory/MEMORY.md").stat().st_size == MAX_FILE_BYTES - 10
    assert not (await call(content="é" * (MAX_FILE_BYTES // 2 + 1), mode="replace")).ok
    assert (await call(content="é" * (MAX_FILE_BYTES // 2), mode="replace")).ok


@pytest.mark.parametrize(
    "path",
    [
        "notes.md", "memory/other.md", "memory/../a.md", "Memory/MEMORY.md", "memory/MEMORY.md/x",
        "skills/x/SKILL.md", "../memory/MEMORY.md", "memory/2026-05-31.md\n", "memory//MEMORY.md",
    ],
)  # fmt: skip
async def test_it_writes_nowhere_else(root: Path, call: Call, path: str) -> None:
    assert not (await call(content="x", path=path)).ok
    assert files_in(root) == []


async def test_links_lead_nowhere(root: Path, call: Call, see: See, tmp_path: Path) -> None:
    note(root, "notes/a.md", "mine")
    (root / "memory").mkdir()
    (root / "memory/MEMORY.md").symlink_to("../notes/a.md")
    with pytest.raises(ToolFailed, match="no memory"):
        await see(content="x")
    assert not (await call(content="x")).ok
    (root / "memory/MEMORY.md").unlink()
    (root / "memory").rmdir()
    (root / "memory").symlink_to("notes")
    with pytest.raises((ToolFailed, PathRefused)):
        await see(content="x")
    assert not (await call(content="x")).ok
    assert [file.name for file in (root / "notes").iterdir()] == ["a.md"]
    assert (root / "notes/a.md").read_text() == "mine"


async def test_what_changed_since_the_yes_is_asked_again(root: Path, call: Call, see: See) -> None:
    note(root, "memory/MEMORY.md", "one\n")
    seen = await see(content="two")
    note(root, "memory/MEMORY.md", "another one\n")
    with pytest.raises(TargetChanged):
        await call(seen.target_digest, content="two")
    note(root, "memory/MEMORY.md", "x" * MAX_FILE_BYTES)
    with pytest.raises(TargetChanged):
        await call(seen.target_digest, content="two")


@pytest.mark.parametrize("data", [b"\xff\xfe\x00a", "Größe".encode("latin-1"), b"a\x00b", b"\xef\xbb\xbf\xff"])  # fmt: skip
async def test_what_is_no_text_is_left_alone(root: Path, call: Call, data: bytes) -> None:
    note(root, "memory/MEMORY.md", data)
    assert not (await call(content="x")).ok
    assert (root / "memory/MEMORY.md").read_bytes() == data


async def test_nothing_is_not_noted(root: Path, call: Call) -> None:
    assert not (await call(content=" \n")).ok
    assert not (root / "memory").exists()


async def test_a_note_can_be_undone(
    root: Path, tmp_path: Path, box: Toolbox, context: ToolContext
) -> None:
    note(root, "memory/MEMORY.md", "one\n")
    shelf = Shelf(tmp_path / "shelf", 1_000_000)
    done = await box.run("memory_write", {"content": "two"}, replace(context, shelf=shelf))
    record = read(shelf, done.details["undo"]["record"])
    assert record is not None
    assert list(carry_out(context.workspace, plan(context.workspace, shelf, record)))
    assert (root / "memory/MEMORY.md").read_text() == "one\n"


# ── permission ────────────────────────────────────────────────────────────────────────────────


async def test_no_rule_lets_a_note_pass_and_no_card_leaves_one(root: Path, box: Toolbox) -> None:
    everything = Rule(id="1", decision="allow", priority=1000, final=True)
    exactly = Rule(id="2", decision="allow", tool="memory_write", path="memory/**", priority=2000)
    for path in ("memory/MEMORY.md", "memory/2026-05-31.md"):
        judge = Judge(
            policy=Policy(rules=(everything, exactly)), toolbox=box, workspace=Workspace(root)
        )
        arguments = {"content": "never ask again", "path": path}
        decision = await judge.decide("memory_write", arguments)
        assert decision.decision == "ask"
        assert decision.rule.startswith("always asked")
        assert await judge.standing("memory_write", arguments, decision) is None
    denied = Judge(
        policy=Policy(rules=(Rule(id="3", decision="deny", path="memory/**"),)),
        toolbox=box,
        workspace=Workspace(root),
    )
    assert (await denied.decide("memory_write", {"content": "x"})).decision == "deny"


async def test_an_approved_note_is_there_for_the_next_run(root: Path) -> None:
    write = ScriptedCall(name="memory_write", arguments={"content": "- Prices are net."})
    bench = Bench(root, [Turn(calls=(write,)), Turn(text="Noted.")])
    await bench.run()
    (asked,) = bench.of(ApprovalRequired)
    assert asked.risk == "high"
    assert not (root / "memory").exists()
    bench.answer("approved")
    await bench.run()
    (done,) = bench.of(ToolCallFinished)
    assert done.ok
    assert "- Prices are net." in remembered(Workspace(root))
    assert isinstance(bench.provider.requests[-1].messages[-1], ToolMessage)


# ── what the prompt shows ─────────────────────────────────────────────────────────────────────


def shown(root: Path) -> str:
    text = remembered(Workspace(root))
    assert not text or text.startswith('<untrusted source="memory" id="')
    return unmark(text)


def test_without_memory_there_is_nothing(root: Path) -> None:
    assert shown(root) == ""
    note(root, "memory/other.md", "not memory")
    note(root, "memory/MEMORY.md", "\n")
    assert shown(root) == ""


def test_the_main_file_comes_first_then_notes_in_their_order(root: Path) -> None:
    note(root, "memory/2026-05-31.md", "later\n")
    note(root, "memory/2026-05-01.md", "earlier\n")
    note(root, "memory/MEMORY.md", "always\n")
    assert shown(root) == (
        "memory/MEMORY.md:\nalways\n\nmemory/2026-05-01.md:\nearlier\n\nmemory/2026-05-31.md:\nlater"
    )


def test_of_too_much_the_newest_is_kept(root: Path) -> None:
    note(root, "memory/MEMORY.md", "".join(f"fact {number}\n" for number in range(100_000)))
    for day in range(1, 29):
        note(root, f"memory/2026-05-{day:02}.md", f"day {day}: {'x' * 500}\n")
    text = shown(root)
    assert len(text.encode()) <= MAX_PROMPT_BYTES + 200
    lines = text.splitlines()
    assert lines[0] == "memory/MEMORY.md:"
    assert lines[2].startswith("fact "), "no line begins in its middle"
    assert "fact 99999" in lines
    assert "fact 5" not in lines
    assert "day 28:" in text
    assert "day 27:" in text
    assert "day 1:" not in text
    assert "left out" in text


def test_what_is_no_file_of_the_workspace_is_no_memory(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("SECRET")
    note(root, "a.md", "elsewhere")
    (root / "memory").mkdir()
    (root / "memory/MEMORY.md").symlink_to("../a.md")
    (root / "memory/2026-05-31.md").symlink_to(tmp_path / "secret")
    (root / "memory/2026-05-30.md").mkdir()
    os.mkfifo(root / "memory/2026-05-29.md")
    assert shown(root) == ""
    assert remembered(Workspace(tmp_path / "nowhere")) == ""


def test_bytes_that_are_no_text_do_no_harm(root: Path) -> None:
    note(root, "memory/MEMORY.md", b"\xff\x00 fine\n")
    assert shown(root) == "memory/MEMORY.md:\n\ufffd\ufffd fine"
