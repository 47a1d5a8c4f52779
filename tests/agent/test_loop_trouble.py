"""The loop when something goes wrong: broken calls, limits, the model's failures."""

from __future__ import annotations

import asyncio
import itertools
import threading
from pathlib import Path

import pytest

from agent.budget import Limits
from agent.errors import ProviderIncomplete, ProviderRefused, ProviderUnavailable
from agent.events import (
    AgentCompleted,
    ApprovalRequired,
    AssistantMessageAdded,
    BudgetExceeded,
    BudgetWarning,
    ModelCallFinished,
    ModelCallRetried,
    ModelCallStarted,
    TaskFailed,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
)
from agent.loop import Retries, first_call
from agent.messages import Usage
from agent.providers.scripted import ScriptedCall, Turn
from agent.toolbox import RunTool, Tool, ToolContext, ToolResult
from agent.transcript import REPEATED
from tests.support.engine import Bench
from tests.support.turns import DONE, calls, read, write


async def test_broken_calls_become_results_and_never_questions(folder: Path) -> None:
    broken = ScriptedCall(name="write_file", arguments=None, raw='{"path": "a.t')
    unknown = ScriptedCall(name="delete_everything", arguments={})
    missing = ScriptedCall(name="write_file", arguments={"path": "x"})
    extra = ScriptedCall(name="read_file", arguments={"path": "a.txt", "sudo": True})
    bench = Bench(folder, [calls(broken, unknown, missing, extra), DONE])
    await bench.run()
    assert not bench.of(ApprovalRequired)
    assert not bench.of(ToolCallStarted)
    assert [result.ok for result in bench.of(ToolCallFinished)] == [False] * 4
    assert "read_file" in bench.of(ToolCallFinished)[1].content
    assert bench.of(ToolCallRequested)[0].raw_arguments == '{"path": "a.t'


async def test_ids_are_unique_in_the_session_whatever_the_provider_says(folder: Path) -> None:
    turns = [calls(read(id="call_0")), calls(read("b.txt", id="call_0"), read(id="")), DONE]
    bench = Bench(folder, turns)
    await bench.run()
    ids = [event.tool_call_id for event in bench.of(ToolCallRequested)]
    assert ids[0] == "call_0"
    assert len(set(ids)) == 3
    assert all(ids)


async def test_a_tool_that_breaks_is_an_observation(folder: Path) -> None:
    def explode(arguments: dict[str, object], context: ToolContext) -> ToolResult:
        raise ZeroDivisionError("secret detail")

    schema = {"type": "object", "properties": {}}
    tool = Tool(name="explode", description="", parameters=schema, capability="x:read", run=explode)
    bench = Bench(folder, [calls(ScriptedCall(name="explode")), DONE], tools=[tool])
    await bench.run()
    (result,) = bench.of(ToolCallFinished)
    assert not result.ok
    assert "secret detail" not in result.content


async def test_the_step_limit_ends_with_whole_results(folder: Path) -> None:
    turns = [calls(read(f"{n}.txt")) for n in range(3)]
    bench = Bench(folder, turns, limits=Limits(max_steps=3))
    await bench.run()
    end = bench.log[-1]
    assert isinstance(end, BudgetExceeded)
    assert (end.which, end.used, end.limit) == ("steps", 3, 3)
    assert len(bench.of(ToolCallFinished)) == 3


async def test_steps_are_counted_over_all_runs(folder: Path) -> None:
    bench = Bench(folder, [calls(write()), calls(read())], limits=Limits(max_steps=2))
    await bench.run()
    bench.answer("approved")
    await bench.run()
    assert [event.step for event in bench.of(ModelCallFinished)] == [1, 2]
    assert isinstance(bench.log[-1], BudgetExceeded)


async def test_seconds_are_counted_over_all_runs_and_end_a_silent_model(folder: Path) -> None:
    bench = Bench(folder, [Turn(text="Ten words", hang=True)], limits=Limits(max_seconds=0.05))
    await bench.run()
    partial, end = bench.log[-2:]
    assert isinstance(partial, AssistantMessageAdded)
    assert partial.partial is True
    assert isinstance(end, BudgetExceeded)
    assert end.which == "seconds"


@pytest.mark.parametrize("plain", [True, False])
async def test_seconds_end_a_running_tool_with_a_result(folder: Path, plain: bool) -> None:
    over = threading.Event()

    def wait(arguments: dict[str, object], context: ToolContext) -> ToolResult:
        over.wait(10)
        raise AssertionError

    async def sleep(arguments: dict[str, object], context: ToolContext) -> ToolResult:
        await asyncio.Event().wait()
        raise AssertionError

    schema = {"type": "object", "properties": {}}
    run: RunTool = wait if plain else sleep
    tool = Tool(name="sleep", description="", parameters=schema, capability="x:read", run=run)
    turns = [calls(ScriptedCall(name="sleep"))]
    bench = Bench(folder, turns, tools=[tool], limits=Limits(max_seconds=0.05))
    await bench.run()
    over.set()
    result, end = bench.log[-2:]
    assert isinstance(result, ToolCallFinished)
    assert isinstance(end, BudgetExceeded)


async def test_the_same_call_with_another_result_each_time_is_no_repetition(folder: Path) -> None:
    ticks = itertools.count()

    async def tick(arguments: dict[str, object], context: ToolContext) -> ToolResult:
        return ToolResult(ok=True, content=str(next(ticks)))

    schema = {"type": "object", "properties": {}}
    tool = Tool(name="tick", description="", parameters=schema, capability="x:read", run=tick)
    turns = [*[calls(ScriptedCall(name="tick"))] * 6, DONE]
    bench = Bench(folder, turns, tools=[tool], repeat_limit=3)
    await bench.run()
    assert [event.content for event in bench.of(ToolCallFinished)] == list("012345")


async def test_an_approved_effect_is_not_begun_when_the_time_is_used_up(folder: Path) -> None:
    bench = Bench(folder, [calls(write())])
    await bench.run()
    bench.answer("approved")
    bench.limits = Limits(max_seconds=0)
    await bench.run()
    assert not bench.of(ToolCallStarted)
    assert not (folder / "out.txt").exists()
    assert "Not run" in bench.of(ToolCallFinished)[-1].content
    assert isinstance(bench.log[-1], BudgetExceeded)


async def test_an_effect_that_was_begun_comes_to_its_end_whatever_the_limit(folder: Path) -> None:
    limits = Limits(max_seconds=0.1)

    async def slow(arguments: dict[str, object], context: ToolContext) -> ToolResult:
        over = asyncio.Event()  # the limit's own timer was set earlier and comes first
        asyncio.get_running_loop().call_later(limits.max_seconds, over.set)
        await over.wait()
        return ToolResult(ok=True, content="written")

    schema = {"type": "object", "properties": {}}
    tool = Tool(name="slow", description="", parameters=schema, capability="x:write", run=slow)
    turns = [calls(ScriptedCall(name="slow"))]
    bench = Bench(folder, turns, tools=[tool], limits=limits)
    await bench.run()
    bench.answer("approved")
    await bench.run()
    assert bench.of(ToolCallFinished)[-1].content == "written"
    assert isinstance(bench.log[-1], BudgetExceeded)


async def test_a_flood_that_never_waits_ends_at_the_time_limit(folder: Path) -> None:
    bench = Bench(folder, [Turn(text="x" * 2_000_000, piece=1)], limits=Limits(max_seconds=0.05))
    await bench.run()
    end = bench.log[-1]
    assert isinstance(end, BudgetExceeded)
    assert len(bench.seen) < 1_000_000


async def test_tokens_are_limited_and_warned_of_once(folder: Path) -> None:
    usage = Usage(input_tokens=45, output_tokens=0)
    turns = [Turn(calls=(read(),), usage=usage) for _ in range(3)]
    bench = Bench(folder, turns, limits=Limits(max_tokens=100))
    await bench.run()
    assert [event.which for event in bench.of(BudgetWarning)] == ["tokens"]
    assert bench.log[-1].which == "tokens"  # type: ignore[union-attr]


async def test_the_third_identical_result_says_so_and_the_sixth_asks_a_person(folder: Path) -> None:
    bench = Bench(folder, [calls(read()) for _ in range(7)] + [DONE], limits=Limits(max_steps=20))
    await bench.run()
    marked = [event.content.endswith(REPEATED) for event in bench.of(ToolCallFinished)]
    assert marked == [False, False, True, True, True, True]
    question = bench.log[-1]
    assert isinstance(question, ApprovalRequired)
    assert question.kind == "limit"
    bench.answer("approved")
    await bench.run()
    assert isinstance(bench.log[-1], AgentCompleted)


async def test_a_broken_off_reply_is_asked_again_and_nothing_of_it_stays(folder: Path) -> None:
    cut = Turn(text="Writing", calls=(write(),), error=ProviderIncomplete("cut"))
    bench = Bench(folder, [cut, DONE])
    await bench.run()
    assert [event.attempt for event in bench.of(ModelCallStarted)] == [1, 2]
    assert [event.text for event in bench.of(AssistantMessageAdded)] == ["Done."]
    assert not bench.of(ToolCallRequested)


async def test_a_refusal_fails_at_once(folder: Path) -> None:
    refused = ProviderRefused("401: no", code="provider_auth", hint="Check the key.")
    bench = Bench(folder, [Turn(error=refused)])
    await bench.run()
    end = bench.log[-1]
    assert isinstance(end, TaskFailed)
    assert (end.error.code, end.error.hint) == ("provider_auth", "Check the key.")
    assert len(bench.provider.requests) == 1


async def test_the_last_failure_keeps_the_unfinished_text_as_partial(folder: Path) -> None:
    cut = Turn(text="Half an ans", error=ProviderIncomplete("cut"))
    bench = Bench(folder, [cut] * 3, retries=Retries(attempts=3, first_delay=0.001))
    await bench.run()
    (message,) = bench.of(AssistantMessageAdded)
    assert (message.text, message.partial) == ("Half an ans", True)
    assert isinstance(bench.log[-1], TaskFailed)


async def test_a_wait_that_the_server_asks_for_is_kept_within_the_time_limit(folder: Path) -> None:
    busy = Turn(error=ProviderUnavailable("429", code="provider_rate_limited", retry_after=0.02))
    bench = Bench(folder, [busy, DONE])
    await bench.run()
    (retried,) = bench.of(ModelCallRetried)
    assert retried.delay_seconds >= 0.02
    late = Turn(error=ProviderUnavailable("429", retry_after=1000))
    bench = Bench(folder, [late], limits=Limits(max_seconds=5))
    await bench.run()
    assert isinstance(bench.log[-1], TaskFailed)


async def test_an_empty_answer_is_asked_again_once_then_said(folder: Path) -> None:
    bench = Bench(folder, [Turn(), DONE])
    await bench.run()
    assert isinstance(bench.log[-1], AgentCompleted)
    bench = Bench(folder, [Turn(reasoning="Hm."), Turn()])
    await bench.run()
    end = bench.log[-1]
    assert isinstance(end, TaskFailed)
    assert end.error.code == "empty_answer"


async def test_an_overflowing_context_gets_one_try_with_less(folder: Path) -> None:
    overflow = Turn(error=ProviderRefused("too long", code="context_overflow"))
    bench = Bench(folder, [overflow, DONE])
    await bench.run()
    assert isinstance(bench.log[-1], AgentCompleted)
    bench = Bench(folder, [overflow, overflow])
    await bench.run()
    assert isinstance(bench.log[-1], TaskFailed)


@pytest.mark.parametrize(
    ("limits", "is_certain"),
    [(Limits(), True), (Limits(max_steps=1, max_cost=0), True), (Limits(max_tokens=0), False)],
    ids=["usual", "narrow", "nothing"],
)
async def test_what_a_task_without_a_history_tells_first_is_known_before(
    folder: Path, limits: Limits, is_certain: bool
) -> None:
    bench = Bench(folder, [DONE], limits=limits, context_tokens=10)
    told = await bench.run()
    known = first_call(bench.provider.model, limits)
    assert (known == told[0]) is is_certain
    assert (known is None) is not is_certain
