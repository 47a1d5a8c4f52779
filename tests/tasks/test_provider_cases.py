"""The collected provider cases as whole runs: what is executed, what is sent back, what is stored.

The bytes come over HTTP, cut as the network cut them, from a server that refuses what a strict one
refuses; the task goes the product's whole way, from its row to its final answer.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from agent.toolbox import Tool, Toolbox, ToolContext, ToolResult
from agent.tools import builtin_tools
from tasks import toolboxes, wiring
from tasks.models import Approval, ModelProfile, Task, TaskEvent
from tests.support import cases
from tests.support.profiles import CANARY, make_profile
from tests.support.runs import House, make_house
from tests.support.stub import Run, StubServer, refused

pytestmark = pytest.mark.django_db(transaction=True)

CASES = cases.names("A")
FAILS = {"A41": "model not found", "A45": "401"}
"""Cases that end the task, and what the person reads."""
RETRIED = {"A20", "A39", "A43"}
LEARNS = {"A54": {"dropped": ["stream_options"]}, "A58": {"empty_content": ""}}
"""Cases whose server refuses something once, and what the profile knows afterwards."""
STRICT = ("system_first", "paired", "unique_ids", "args_json_object")


def weather(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    return ToolResult(ok=True, content=f"{arguments['city']}: 12 degrees")


WEATHER = Tool(
    name="get_weather",
    description="The weather of a city.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
    capability="weather:read",
    run=weather,
)


@dataclass(frozen=True, kw_only=True)
class Played:
    """One case, run to its end."""

    case: str
    task: Task
    events: list[tuple[str, dict[str, Any]]]
    heard: Run
    folder: Path

    @property
    def right(self) -> dict[str, Any]:
        return cases.expected(self.case)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [payload for type_, payload in self.events if type_ == kind]

    def results(self) -> list[dict[str, Any]]:
        """The tool messages of the last request."""
        return [each for each in self.heard.bodies[-1]["messages"] if each["role"] == "tool"]


@pytest.fixture
async def stub() -> AsyncIterator[StubServer]:
    async with StubServer() as server:
        yield server


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    house = make_house(tmp_path / "desk")
    tools = Toolbox([*builtin_tools(), WEATHER])
    # The product has no tool for weather.
    monkeypatch.setattr(toolboxes, "toolbox", lambda workspace: tools)
    return house


async def play(house: House, stub: StubServer, case: str) -> Played:
    await sync_to_async(make_profile)(key=CANARY, base_url=stub.url(case), model="m")
    async with house.runner(models=wiring.Models()) as runner:
        created = await house.ask("Do it")
        runner.wake(str(created.task_id))
        task = await house.until(created.task_id, lambda task: task.status in Task.TERMINAL)
    await house.check(task.pk)
    rows = await house.log(task.pk)
    return Played(
        case=case,
        task=task,
        events=[(row.type, json.loads(row.payload)) for row in rows],
        heard=stub.run(case),
        folder=house.folder,
    )


@pytest.mark.parametrize("case", CASES)
async def test_a_collected_case_as_a_whole_run(house: House, stub: StubServer, case: str) -> None:
    played = await play(house, stub, case)
    check_end(played)
    check_calls(played)
    check_text(played)
    check_what_is_sent(played)
    await check_nothing_leaks()


def check_end(played: Played) -> None:
    task = played.task
    if played.case in FAILS:
        assert task.status == "failed"
        assert task.error is not None
        assert FAILS[played.case] in task.error["message"]
        assert task.error["hint"]
        assert len(played.heard.bodies) == 1
    else:
        assert task.status == "completed", task.error
        assert task.final_answer.strip()
    assert bool(played.of("model_call_retried")) == (played.case in RETRIED | LEARNS.keys())


def check_calls(played: Played) -> None:
    """Each call once, with its arguments; a broken one never runs and the model is told."""
    requested = played.of("tool_call_requested")
    wanted = [] if played.right["outcome"] == "error" else played.right["tool_calls"]
    if played.case == "A55":
        wanted = [*wanted, {"name": "read_file", "arguments": {"path": "b.txt"}}]
    for call, right in zip(requested, wanted, strict=True):
        assert call["name"] == right["name"]
        broken = right["arguments"] == "INVALID"
        assert call["arguments"] == (None if broken else right["arguments"])
        assert bool(call.get("raw_arguments")) == broken
    started = {event["tool_call_id"] for event in played.of("tool_call_started")}
    known = {"read_file", "list_files", "write_file", "get_weather"}
    for call in requested:
        runs = call["arguments"] is not None and call["name"] in known
        assert (call["tool_call_id"] in started) == runs
    ids = [call["tool_call_id"] for call in requested]
    assert len(set(ids)) == len(ids)
    assert sorted(path.name for path in played.folder.iterdir()) == ["a.txt", "b.txt"]


def check_text(played: Played) -> None:
    """The reply's text and reasoning are stored apart, whole and once."""
    if played.right["outcome"] in ("error", "tool_error") or played.case in RETRIED:
        return
    said = [event["text"] for event in played.of("assistant_message")]
    fine = [played.right["text"], *played.right.get("text_any_of", [])]
    if fine[0]:
        assert said[0].strip() in [text.strip() for text in fine]
    thought = "".join(event["text"] for event in played.of("reasoning_message"))
    assert thought.strip() == played.right["reasoning"].strip()
    assert "\x00" not in json.dumps(played.events)
    usage = played.right["usage"]
    if usage:
        stored = played.of("model_call_finished")[0]["usage"]
        assert "estimated" not in stored
        assert stored["input_tokens"] == usage.get("input_tokens", usage.get("prompt_tokens"))


def check_what_is_sent(played: Played) -> None:
    """Every request passes the strictest server; each result stands behind its call."""
    for body in played.heard.bodies:
        assert refused(STRICT, body, played.heard) == ""
    if played.case not in LEARNS:
        assert played.heard.refusals == []
    if played.of("tool_call_requested"):
        results = played.results()
        assert len(results) == len(played.of("tool_call_finished"))
        told = [event["content"] for event in played.of("tool_call_finished")]
        assert all(any(content in result["content"] for result in results) for content in told)
        asked = [call["name"] for call in played.of("tool_call_requested")]
        assert ("get_weather" in asked) == ("Oslo: 12 degrees" in told)


async def check_nothing_leaks() -> None:
    stored = [row.payload async for row in TaskEvent.objects.all()]
    stored += [json.dumps(row, default=str) async for row in Task.objects.values()]
    assert "CANARY" not in "".join(stored)
    assert not await Approval.objects.aexists()


@pytest.mark.parametrize(("case", "quirks"), LEARNS.items())
async def test_what_a_case_teaches_stays_with_the_profile(
    house: House, stub: StubServer, case: str, quirks: dict[str, Any]
) -> None:
    await play(house, stub, case)
    assert (await ModelProfile.objects.aget()).quirks == quirks


async def test_a_refused_tool_name_tells_the_model_what_there_is(
    house: House, stub: StubServer
) -> None:
    played = await play(house, stub, "A52")
    [result] = played.results()
    assert "read_file" in result["content"]


async def test_a_system_message_is_the_first_and_only_one_in_a_follow_up(
    house: House, stub: StubServer
) -> None:
    played = await play(house, stub, "A60")
    async with house.runner(models=wiring.Models()) as runner:
        again = await house.ask("And now?", session_id=played.task.session_id)
        runner.wake(str(again.task_id))
        await house.until(again.task_id, "completed")
    roles = [message["role"] for message in stub.run("A60").bodies[-1]["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    assert stub.run("A60").refusals == []
