"""What policy judged is what is opened: a link that is swapped in between leads past no rule."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.beneath import Opener
from agent.judging import Judge
from agent.policy import Policy, Rule
from agent.toolbox import Toolbox
from agent.tools import builtin_tools
from agent.workspace import Workspace
from tests.support.arena import Arena, swapping

CLOSED = Rule(id="1", decision="deny", path="closed/**")
OPEN = Rule(id="2", decision="allow", path="open/**")
CALLS: tuple[tuple[str, dict[str, object]], ...] = (
    ("read_file", {"path": "race/x"}),
    ("read_file", {"path": "open/sub/x"}),
    ("list_files", {"path": "open"}),
    ("list_files", {"path": "race"}),
    ("search_files", {"query": "SECRET"}),
    ("search_files", {"query": "SECRET", "path": "open"}),
    ("write_file", {"path": "race/y", "content": "agent"}),
    ("write_file", {"path": "open/sub/y", "content": "agent"}),
)


@pytest.fixture
def arena(tmp_path: Path) -> Iterator[Arena]:
    root = tmp_path / "ws"
    (root / "open/sub").mkdir(parents=True)
    (root / "closed").mkdir()
    (root / "open/x").write_text("public")
    (root / "open/sub/x").write_text("public")
    (root / "closed/x").write_text("SECRET")
    (root / "closed/only-here").write_text("SECRET")
    with swapping(root, "open", "closed", plain="open/sub", instead="../closed") as arena:
        yield arena


async def race(arena: Arena, opener: Opener, swaps: int) -> int:
    """Calls until there were so many swaps; how many were run and did something."""
    box = Toolbox(builtin_tools())
    judge = Judge(
        policy=Policy(rules=(CLOSED, OPEN)),
        toolbox=box,
        workspace=Workspace(arena.root, opener),
    )
    worked = seen = 0
    try:
        while seen < swaps:
            seen += arena.swapped()
            for tool, arguments in CALLS:
                decision = await judge.decide(tool, arguments)
                if decision.decision != "allow":
                    continue
                context = judge.context(tool, judged=decision.paths)
                result = await box.run(tool, arguments, context)
                worked += result.ok
                shown = (
                    result.content.replace("SECRET", "", 1) if "search" in tool else result.content
                )
                assert "SECRET" not in shown, (tool, arguments, result)
                assert "only-here" not in result.content, (tool, arguments, result)
    finally:
        box.close()
    left = {file.name: file.read_text() for file in (arena.root / "closed").iterdir()}
    assert left == {"x": "SECRET", "only-here": "SECRET"}
    return worked


async def test_a_swapped_link_leads_past_no_rule(arena: Arena, opener: Opener) -> None:
    assert await race(arena, opener, 2_000)


@pytest.mark.long
async def test_ten_thousand_swaps_lead_past_no_rule(arena: Arena, opener: Opener) -> None:
    assert await race(arena, opener, 10_000)


async def test_what_lies_behind_a_link_is_judged_and_named_by_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "real/closed").mkdir(parents=True)
    (tmp_path / "real/closed/x").write_text("SECRET")
    (tmp_path / "real/y").write_text("public")
    (tmp_path / "link").symlink_to("real")
    box = Toolbox(builtin_tools())
    rules = (Rule(id="1", decision="deny", path="real/closed/**"),)
    judge = Judge(policy=Policy(rules=rules), toolbox=box, workspace=Workspace(tmp_path))
    arguments = {"path": "link"}
    decision = await judge.decide("list_files", arguments)
    context = judge.context("list_files", judged=decision.paths)
    result = await box.run("list_files", arguments, context)
    box.close()
    assert "real/y" in result.content
    assert "closed/x" not in result.content
