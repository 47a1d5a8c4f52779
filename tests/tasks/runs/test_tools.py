"""A run beside its tools: what it shows while one runs, and what ends it then."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from agent.events import AssistantDelta, LiveEvent, ToolProgress
from agent.policy import Policy, Rule
from agent.providers.scripted import ScriptedCall, Turn
from agent.toolbox import RunTool, Tool, Toolbox, ToolContext, ToolResult
from tasks import service, starting
from tasks.models import Task
from tasks.runs import Ending, Run
from tasks.stopping import Stop
from tests.support.runs import House, ScriptedModels
from tests.support.turns import DONE

pytestmark = pytest.mark.django_db(transaction=True)

WORKED = ToolResult(ok=True, content="Worked.")
WORK = ScriptedCall(name="work", arguments={})


async def begin(
    house: House,
    capability: str,
    work: RunTool,
    *calls: ScriptedCall,
    then: Sequence[Turn] = (DONE,),
) -> Run:
    """A run, not driven yet, in which the model calls a tool that nobody is asked about."""
    created = await house.ask()
    models = ScriptedModels([Turn(calls=calls), *then])
    begun = await starting.begin(created.task_id, "test:1", models)
    assert begun is not None
    tool = Tool(
        name="work",
        description="Work.",
        parameters={"type": "object"},
        capability=capability,
        run=work,
    )
    judge = replace(
        begun.kit.judge,
        policy=Policy(rules=[Rule(id="1", decision="allow")]),
        read_rules=None,
        toolbox=Toolbox([tool]),
    )
    return Run(begun=begun, kit=replace(begun.kit, judge=judge))


async def test_what_a_tool_says_is_shown_after_its_beginning(house: House) -> None:
    async def work(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        context.progress("half", None, None)
        return WORKED

    run = await begin(house, "test:read", work, WORK)
    known: list[int] = []

    def observe(newest: int, event: LiveEvent | None) -> None:
        if isinstance(event, ToolProgress):
            known.append(newest)

    run.observe = observe
    assert await run.drive() is Ending.ENDED
    (newest,) = known
    types = await house.types(run.task_id)
    assert types[newest - 1] == "tool_call_started"


@pytest.mark.parametrize("says", [True, False], ids=["that speaks", "that is silent"])
async def test_a_run_that_lost_its_task_stops_its_tool(
    house: House, says: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Before its lease would be renewed, if it stores anything."""
    stopped: list[bool] = []

    async def work(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        await Task.objects.filter(pk=run.task_id).aupdate(run=2)
        if says:
            context.progress("half", None, None)
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)
        return WORKED

    run = await begin(house, "test:read", work, WORK)
    assert await run.drive() is Ending.LOST
    assert stopped
    gc.collect()
    assert "never retrieved" not in caplog.text
    assert "tool_call_started" not in await house.types(run.task_id)


async def test_a_server_that_stops_begins_no_further_tool(house: House) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def work(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        begun.set()
        await go.wait()
        return WORKED

    run = await begin(house, "test:write", work, WORK, WORK)
    driving = asyncio.create_task(run.drive())
    await begun.wait()
    stopping = asyncio.create_task(run.wind_down(60))
    await asyncio.sleep(0)
    go.set()
    await stopping
    assert await driving is Ending.RELEASED
    types = await house.types(run.task_id)
    assert types.count("tool_call_finished") == types.count("tool_call_started") == 1


async def test_a_tool_that_is_cancelled_from_within_ends_its_task(house: House) -> None:
    """At once and in its log, not when the lease runs out."""

    async def work(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        raise asyncio.CancelledError

    run = await begin(house, "test:write", work, WORK)
    assert await run.drive() is Ending.ENDED
    assert (await house.types(run.task_id))[-1] == "task_failed"


async def test_a_message_while_its_files_are_looked_at_gets_another_step(house: House) -> None:
    """Though it was folded in, and none of the files is there any more."""
    go, threads = threading.Event(), ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(threads)

    async def work(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        threads.submit(go.wait)  # whoever looks at files waits
        return replace(WORKED, details={"artifact": "gone.txt"})

    known, answers = [0], asyncio.Event()

    def observe(newest: int, event: LiveEvent | None) -> None:
        known.append(newest)
        if isinstance(event, AssistantDelta):
            answers.set()

    slow = Turn(text="x" * 200, piece=10, delay=0.01)
    run = await begin(house, "test:read", work, WORK, then=[slow, Turn(text="That too.")])
    driving = asyncio.create_task(replace(run, observe=observe).drive())
    try:
        await answers.wait()
        await service.add_message(run.task_id, house.alice.pk, "That too", "steer")
        await house.until(
            run.task_id, lambda task: task.steps == 2 and known[-1] == task.last_sequence
        )
    finally:
        go.set()
    assert await driving is Ending.ENDED
    task = await Task.objects.aget(pk=run.task_id)
    assert task.final_answer == "That too."
    await house.check(task.pk)


async def test_a_run_that_was_told_to_stop_before_it_began_does_nothing(house: House) -> None:
    """The server began to stop while the task was taken."""

    async def work(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        raise AssertionError("nobody is asked")

    run = await begin(house, "test:read", work, WORK)
    before = await house.types(run.task_id)
    run.stop(Stop.SHUTDOWN)
    assert await run.drive() is Ending.RELEASED
    assert await house.types(run.task_id) == before
