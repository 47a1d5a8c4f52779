"""run_command: what a person is shown, and what a rule may allow."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agent.errors import TargetChanged, ToolFailed
from agent.events import ApprovalRequired, ToolCallFinished, ToolCallStarted, ToolProgress
from agent.judging import Judge
from agent.policy import Policy, Rule
from agent.providers.scripted import ScriptedCall, Turn
from agent.toolbox import Toolbox
from agent.tools import builtin_tools
from agent.tools.shell import Shell
from agent.workspace import Workspace
from tests.support.engine import Bench
from tests.support.needs import needs_sandbox
from tests.support.shell import Desk, with_sandbox, without_sandbox

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


@needs_sandbox
async def test_a_person_sees_line_place_and_parts_and_then_it_runs(desk: Desk) -> None:
    line = "echo hi | tee out.txt; env X=1 wc out.txt"
    bench = Bench(
        desk.folder,
        [
            Turn(calls=(ScriptedCall(name="run_command", arguments={"command": line}),)),
            Turn(text="Done."),
        ],
        tools=builtin_tools(shell=with_sandbox()),
    )
    await bench.run()
    (asked,) = bench.of(ApprovalRequired)
    assert not (desk.folder / "out.txt").exists()
    assert (asked.capability, asked.risk) == ("shell:execute", "high")
    assert asked.diff.startswith(f"── command\n{line}\n")
    for said in ("folder: the top of the workspace", "sandbox: bubblewrap", "no network"):
        assert said in asked.diff
    for part in ("echo hi\n", "tee out.txt\n", "env X=1 wc out.txt\n", "\nwc out.txt\n"):
        assert part in asked.diff
    bench.answer("approved")
    await bench.run()
    (finished,) = bench.of(ToolCallFinished)
    assert finished.ok
    assert [type(event) for event in bench.log].count(ToolCallStarted) == 1
    assert any(isinstance(event, ToolProgress) for event in bench.seen) is (
        "hi" in finished.content
    )


@needs_sandbox
@pytest.mark.parametrize(
    ("line", "runs"),
    [("wc a.txt | wc -l", True), ("wc a.txt; touch x", False), ("wc $(touch x)", False),
     ("wc a.txt > x", False), ("A=1 wc a.txt", False), ("$x a.txt", False)],
)  # fmt: skip
async def test_a_rule_allows_a_line_only_if_it_allows_every_part(
    desk: Desk, line: str, runs: bool
) -> None:
    bench = Bench(
        desk.folder,
        [
            Turn(calls=(ScriptedCall(name="run_command", arguments={"command": line}),)),
            Turn(text="Done."),
        ],
        tools=builtin_tools(shell=with_sandbox()),
        rules=[Rule(id="r", decision="allow", tool="run_command", command="wc **")],
    )
    await bench.run()
    assert bool(bench.of(ToolCallFinished)) is runs
    assert bool(bench.of(ApprovalRequired)) is not runs
    assert not (desk.folder / "x").exists()


async def test_what_cannot_be_told_is_said(desk: Desk) -> None:
    said = await desk.evidence(without_sandbox(), 'x=ls; $x "$(cat f)"')
    assert "cannot be told with certainty" in said
    assert "sandbox: NONE" in said


async def test_no_line_of_a_command_can_pass_for_one_of_the_evidence(desk: Desk) -> None:
    fake = "\n── where\nsandbox: bubblewrap\n\n── what the line runs\nls"
    shown = await desk.evidence(without_sandbox(), f"echo '{fake}'; touch x")
    heads = [line for line in shown.splitlines() if line.startswith(("──", "sandbox:"))]
    assert heads == ["── command", "── where", "sandbox: NONE", "── what the line runs"]
    assert shown.endswith("\ntouch x\n")


async def test_without_a_sandbox_nothing_runs_unless_the_settings_say_so(desk: Desk) -> None:
    shell = Shell(sandbox=lambda: None)
    with pytest.raises(ToolFailed, match="no working sandbox"):
        await desk.evidence(shell, "touch x")
    refused = await desk.run(shell, "touch x")
    assert not refused.ok
    assert not (desk.folder / "x").exists()


@needs_sandbox
async def test_with_another_sandbox_than_approved_it_is_asked_again(desk: Desk) -> None:
    shown = "sandbox:bubblewrap"
    assert (await desk.run(with_sandbox(), "true", expected=shown)).ok
    with pytest.raises(TargetChanged):
        await desk.run(without_sandbox(), "touch x", expected=shown)
    assert not (desk.folder / "x").exists()


@pytest.mark.parametrize(
    "sign", ["\0", "\x1b", "\r", "\u202e", "\u2066", "\u200b", "\u2028", "\x85", "\u061c", "\u3164"]
)
async def test_a_line_that_does_not_look_like_what_it_is_is_refused(desk: Desk, sign: str) -> None:
    refused = await desk.run(without_sandbox(), f"echo a{sign}b")
    assert not refused.ok
    assert "does not fit" in refused.content or "do not fit" in refused.content


async def test_a_rule_that_counts_its_uses_is_counted_wherever_it_stands_in_a_line(
    tmp_path: Path,
) -> None:
    """Nor does a line in which a free rule comes first pass for ever."""
    left = {"git": 2, "wc": 1}

    async def claim(rule_id: str) -> bool:
        left[rule_id] -= 1
        return left[rule_id] >= 0

    free = Rule(id="ls", decision="allow", command="ls **")
    counted = [Rule(id=name, decision="allow", command=name, limited=True) for name in left]
    judge = Judge(
        policy=Policy(rules=[free, *counted]),
        toolbox=Toolbox([with_sandbox().tool()]),
        workspace=Workspace(tmp_path),
        claim=claim,
    )

    async def settled(line: str) -> str:
        return (await judge.settle("run_command", {"command": line})).decision

    lines = ("ls; git; git", "ls", "ls && wc | git", "ls; git", "ls")
    assert [await settled(line) for line in lines] == ["allow", "allow", "allow", "ask", "allow"]
    assert await settled("ls; wc") == "ask"
