"""What running tools say of themselves: when it is told, and who hears that it could not be."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from agent.budget import Limits
from agent.events import (
    AgentEvent,
    BudgetExceeded,
    ToolCallFinished,
    ToolCallStarted,
    ToolProgress,
)
from agent.providers.scripted import ScriptedCall, Turn
from agent.toolbox import RunTool, Tool, ToolContext, ToolResult
from tests.support.engine import Bench
from tests.support.turns import DONE, calls

SAYS = {"type": "object", "properties": {"says": {"type": "string"}}}


def tool(run: RunTool, timeout: float = 30.0) -> Tool:
    return Tool(
        name="work",
        description="Work",
        parameters=SAYS,
        capability="file:read",
        run=run,
        timeout=timeout,
    )


def in_a_thread(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    context.progress(arguments["says"], 1, 2)
    context.progress(arguments["says"], 2, 2)
    return ToolResult(ok=True, content=arguments["says"])


async def on_the_loop(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    return in_a_thread(arguments, context)


def asked(*says: str) -> Turn:
    return calls(*(ScriptedCall(name="work", arguments={"says": each}) for each in says))


def about(events: list[AgentEvent]) -> dict[str, list[type]]:
    """Of each call, the kinds of its events in their order."""
    found: dict[str, list[type]] = {}
    for event in events:
        if isinstance(event, ToolCallStarted | ToolProgress | ToolCallFinished):
            found.setdefault(event.tool_call_id, []).append(type(event))
    return found


@pytest.mark.parametrize("run", [in_a_thread, on_the_loop])
@pytest.mark.parametrize("says", [("a",), ("a", "b")], ids=["alone", "side by side"])
async def test_it_is_told_between_the_beginning_and_the_result(
    folder: Path, run: RunTool, says: tuple[str, ...]
) -> None:
    bench = Bench(folder, [asked(*says), DONE], tools=[tool(run)])
    seen = about(await bench.run())
    assert len(seen) == len(says)
    for kinds in seen.values():
        assert kinds == [ToolCallStarted, ToolProgress, ToolProgress, ToolCallFinished]


@pytest.mark.parametrize("run", [in_a_thread, on_the_loop])
async def test_a_run_whose_progress_cannot_be_told_ends_before_the_result(
    folder: Path, run: RunTool
) -> None:
    bench = Bench(folder, [asked("a")], tools=[tool(run)])
    await bench.run(stop_at=ToolProgress)
    assert bench.of(ToolCallStarted)
    assert not bench.of(ToolCallFinished)


async def test_what_a_thread_says_that_was_given_up_is_not_told(folder: Path) -> None:
    gate, said = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def late(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        gate.wait(10)
        context.progress("late", None, None)
        loop.call_soon_threadsafe(said.set)
        return ToolResult(ok=True, content="")

    bench = Bench(folder, [asked("a"), DONE], tools=[tool(late, timeout=0.01)])
    produced = await bench.run()
    gate.set()
    await said.wait()
    await asyncio.sleep(0)
    assert list(about(produced).values()) == [[ToolCallStarted, ToolCallFinished]]


async def test_what_is_being_told_when_time_is_up_is_told_to_its_end(folder: Path) -> None:
    """Whoever stores meanwhile must hear that it is stored."""
    over, said = asyncio.Event(), list[str]()

    async def endless(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        context.progress("half", None, None)
        try:
            await asyncio.Event().wait()
        finally:
            over.set()
        raise AssertionError

    async def slowly(event: AgentEvent) -> None:
        if isinstance(event, ToolProgress):
            await over.wait()
            for _ in range(20):  # so that the run has nothing else to wait for any more
                await asyncio.sleep(0)
            said.append(event.text)

    limits = Limits(max_seconds=0.05)
    bench = Bench(folder, [asked("a")], tools=[tool(endless)], limits=limits, tell=slowly)
    await bench.run()
    assert said == ["half"]
    assert isinstance(bench.log[-1], BudgetExceeded)


async def test_a_tool_that_swallows_its_cancellation_does_not_keep_the_run(folder: Path) -> None:
    begun = asyncio.Event()

    async def stubborn(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
        return ToolResult(ok=True, content="")

    bench = Bench(folder, [asked("a"), DONE], tools=[tool(stubborn)])
    run = asyncio.create_task(bench.run())
    await begun.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert len(bench.provider.requests) == 1
