"""Effects happen at most once: the process dies between "started" and "finished" of every tool.

Nobody but a person can say whether it happened. Done: it is not run again. Retry: it runs once.
Abandon: it does not run. A tool with an effect that has no sample here fails the test.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.events import (
    AgentCompleted,
    ApprovalRequired,
    ApprovalResolved,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
)
from agent.policy import ASKED_ACTIONS, Mode
from agent.providers.scripted import ScriptedCall, Turn
from agent.toolbox import Tool, ToolContext, ToolResult
from agent.tools import builtin_tools
from agent.tools.shell import Shell
from agent.workspace import Workspace
from tests.support.engine import Bench

SAMPLES: dict[str, dict[str, Any]] = {
    "write_file": {"path": "log.txt", "content": "one\n"},
    "edit_file": {"path": "a.txt", "old": "AAA", "new": "AAA, once more"},
    "memory_write": {"content": "- One."},
    "run_command": {"command": "echo ran >> log.txt"},
}
READ = ScriptedCall(name="read_file", arguments={"path": "b.txt"})
DONE = Turn(text="Done.")


def everything() -> list[Tool]:
    return builtin_tools(shell=Shell(unsandboxed=True, sandbox=lambda: None))


def effects() -> list[Tool]:
    return [tool for tool in everything() if tool.capability.rpartition(":")[2] in ASKED_ACTIONS]


class Counted:
    """The product's tools, counting how often each was really run."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.tools: Sequence[Tool] = [self._counting(tool) for tool in everything()]

    def _counting(self, tool: Tool) -> Tool:
        async def run(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
            self.runs.append(tool.name)
            result = tool.run(arguments, context)
            return await result if inspect.isawaitable(result) else result

        return replace(tool, run=run)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("AAA\n")
    (tmp_path / "b.txt").write_text("BBB\n")
    return tmp_path


async def killed_at_its_beginning(folder: Path, name: str) -> tuple[Bench, Counted]:
    """A run whose one call was approved, journaled as started, and not run."""
    counted = Counted()
    call = ScriptedCall(name=name, arguments=SAMPLES[name])
    bench = Bench(folder, [Turn(calls=(call,)), DONE], tools=counted.tools)
    await bench.run()
    bench.answer("approved")
    await bench.run(stop_at=ToolCallStarted)
    assert counted.runs == []
    return bench, counted


def test_every_tool_with_an_effect_has_a_sample() -> None:
    assert {tool.name for tool in effects()} == SAMPLES.keys()


@pytest.mark.parametrize("answer", ["done", "retry", "abandon"])
@pytest.mark.parametrize("happened", [False, True], ids=["before it", "after it"])
@pytest.mark.parametrize("name", SAMPLES)
async def test_killed_between_started_and_finished(
    folder: Path, name: str, happened: bool, answer: str
) -> None:
    bench, counted = await killed_at_its_beginning(folder, name)
    if happened:
        tool = next(tool for tool in counted.tools if tool.name == name)
        outcome = tool.run(SAMPLES[name], ToolContext(workspace=Workspace(folder)))
        assert inspect.isawaitable(outcome)
        await outcome
    before, runs = disk(folder), len(counted.runs)

    await bench.run()
    question = bench.of(ApprovalRequired)[-1]
    assert (question.kind, question.options) == ("unknown_effect", ["done", "retry"])
    await bench.run()  # whoever comes back without an answer changes nothing
    assert (disk(folder), len(counted.runs)) == (before, runs), "not repeated blindly"

    if answer == "abandon":
        bench.answer("rejected")
    else:
        bench.answer("approved", answer=answer)
    await bench.run()
    assert len(counted.runs) - runs == (answer == "retry")
    finished = bench.of(ToolCallFinished)
    assert len(finished) == 1, "one call, one result"
    if answer != "retry":
        assert disk(folder) == before
        assert finished[0].ok is (answer == "done")
    await bench.run()
    assert len(counted.runs) - runs == (answer == "retry")


@pytest.mark.parametrize("mode", ["deny", "read_only"])
@pytest.mark.parametrize("name", SAMPLES)
async def test_where_nobody_may_be_asked_an_unknown_effect_is_told_and_not_repeated(
    folder: Path, name: str, mode: Mode
) -> None:
    bench, counted = await killed_at_its_beginning(folder, name)
    before = disk(folder)

    bench.mode = mode  # the server's became stricter meanwhile
    await bench.run()

    assert (disk(folder), counted.runs) == (before, [])
    (finished,) = bench.of(ToolCallFinished)
    assert not finished.ok
    assert "Nobody is there to decide" in finished.content
    assert len(bench.of(ApprovalRequired)) == 1, "the first one, before it"


@pytest.mark.parametrize("which", [1, 2], ids=["while it asks", "once it was approved"])
async def test_of_a_batch_each_call_runs_once_wherever_it_is_killed(
    folder: Path, which: int
) -> None:
    """Case C05: read, write, read; one of its runs is killed after each stored event."""
    write = ScriptedCall(name="write_file", arguments=SAMPLES["write_file"])
    for die_after in range(1, 30):
        counted = Counted()
        bench = Bench(folder, [Turn(calls=(READ, write, READ)), DONE], tools=counted.tools)
        if which == 2:
            await bench.run()
            bench.answer("approved")
        before = len(bench.log)
        await bench.run(die_after=die_after)
        whole = len(bench.log) - before < die_after
        while not bench.of(AgentCompleted):
            if len(bench.of(ApprovalRequired)) > len(bench.of(ApprovalResolved)):
                unknown = bench.of(ApprovalRequired)[-1].kind == "unknown_effect"
                bench.answer("approved", **({"answer": "retry"} if unknown else {}))
            await bench.run()
        assert counted.runs.count("write_file") == 1, die_after
        requested = [each.tool_call_id for each in bench.of(ToolCallRequested)]
        finished = [each.tool_call_id for each in bench.of(ToolCallFinished)]
        assert sorted(finished) == sorted(requested)
        (folder / "log.txt").unlink()
        if whole:
            return
    raise AssertionError("no run came to its end")


def disk(folder: Path) -> dict[str, str]:
    return {str(file): file.read_text() for file in folder.rglob("*") if file.is_file()}
