"""Odd servers as whole runs: what is asked, executed, stored and said to the person."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from tasks import wiring
from tasks.models import ModelProfile, ModelUsage, Task
from tests.support.cases import Turn
from tests.support.profiles import make_profile
from tests.support.provider_server import JSON, SSE
from tests.support.runs import House, make_house
from tests.support.stub import StubServer

pytestmark = pytest.mark.django_db(transaction=True)
STRICT = ("system_first", "paired", "unique_ids", "args_json_object")


@pytest.fixture
async def stub() -> AsyncIterator[StubServer]:
    async with StubServer() as server:
        yield server


@pytest.fixture
def house(tmp_path: Path, settings: Any) -> House:
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, llm_attempts=3)
    return make_house(tmp_path / "desk")


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def read_file(path: str = "a.txt", arguments: Any = None, **head: Any) -> dict[str, Any]:
    function = {"name": "read_file", "arguments": arguments or json.dumps({"path": path})}
    return chunk(
        tool_calls=[{"index": 0, "id": "c", "type": "function", "function": function} | head]
    )


def stream(
    *values: Any, end: str = "close", guards: tuple[str, ...] = (), delay: float = 0.0
) -> Turn:
    """Each value an event; text as it is."""
    texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
    chunks = tuple(f"data: {text}\n\n".encode() for text in texts)
    return Turn(
        status=200, headers=SSE, end=end, guards=(*STRICT, *guards), delay=delay, chunks=chunks
    )


def document(value: Any, status: int = 200, headers: dict[str, str] = JSON) -> Turn:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Turn(status=status, headers=headers, end="close", guards=(), delay=0, chunks=(body,))


def saying(text: str, **more: Any) -> Turn:
    return stream(chunk(content=text), chunk("stop"), "[DONE]", **more)


class Told:
    """One run that came to its end."""

    def __init__(self, task: Task, events: list[tuple[str, dict[str, Any]]], requests: int) -> None:
        self.task = task
        self._events = events
        self.requests = requests

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [payload for type_, payload in self._events if type_ == kind]

    @property
    def answers(self) -> list[str]:
        return [event["text"] for event in self.of("assistant_message")]

    @property
    def results(self) -> list[tuple[bool, str]]:
        return [(event["ok"], event["content"]) for event in self.of("tool_call_finished")]


async def play(house: House, stub: StubServer, *turns: Turn, **profile: Any) -> Told:
    stub.scripts["odd"] = list(turns)
    if not await ModelProfile.objects.aexists():
        await sync_to_async(make_profile)(base_url=stub.url("odd"), model="m", **profile)
    async with house.runner(models=wiring.Models()) as runner:
        created = await house.ask("Do it")
        runner.wake(str(created.task_id))
        task = await house.until(created.task_id, lambda task: task.status in Task.TERMINAL)
    await house.check(task.pk)
    events = [(row.type, json.loads(row.payload)) for row in await house.log(task.pk)]
    return Told(task, events, len(stub.run("odd").bodies))


async def test_reasoning_goes_back_over_two_rounds_of_calls(house: House, stub: StubServer) -> None:
    thinks = chunk(reasoning_content="hm")
    back = ("reasoning_back:hm",)
    told = await play(
        house,
        stub,
        stream(thinks, read_file("a.txt"), chunk("tool_calls"), "[DONE]"),
        stream(thinks, read_file("b.txt"), chunk("tool_calls"), "[DONE]", guards=back),
        saying("Done.", guards=back),
    )
    assert (told.task.final_answer, told.requests) == ("Done.", 4)
    assert told.results == [(True, "AAA"), (True, "BBB")]
    assert (await ModelProfile.objects.aget()).quirks == {"reasoning_field": "reasoning_content"}


async def test_a_server_that_takes_neither_null_nor_nothing(house: House, stub: StubServer) -> None:
    told = await play(
        house,
        stub,
        stream(read_file(), chunk("tool_calls"), "[DONE]"),
        saying("Done.", guards=("content_not_null", "content_not_empty")),
    )
    assert (told.task.final_answer, told.requests) == ("Done.", 4)
    assert (await ModelProfile.objects.aget()).quirks == {"empty_content": "…"}


async def test_a_server_that_differs_in_everything_is_understood_in_one_run(
    house: House, stub: StubServer
) -> None:
    """Lessons are no failures: more of them than a model has tries."""
    back = ("reasoning_back:hm", "content_not_null", "content_not_empty", "no_field:top_p")
    optional = ("no_field:stream_options", "no_field:temperature", "no_field:seed")
    told = await play(
        house,
        stub,
        stream(chunk(reasoning="hm"), read_file(), chunk("stop"), "[DONE]", guards=optional),
        saying("Done.", guards=back),
        options={"temperature": 1, "seed": 2, "top_p": 1},
    )
    assert (told.task.final_answer, told.requests) == ("Done.", 9)
    assert (await ModelProfile.objects.aget()).quirks == {
        "empty_content": "…",
        "reasoning_field": "reasoning_content",
        "dropped": ["stream_options", "temperature", "seed", "top_p"],
    }


@pytest.mark.parametrize(
    "broken",
    [
        stream(chunk(content="Half"), {"error": {"message": "GPU lost", "type": "server_error"}}),
        stream(chunk(content="Half"), "error: GPU lost", "[DONE]"),
        stream(chunk(content="Half")),
        stream(chunk(content="Half"), end="abort"),
        stream(chunk(content="Half"), read_file()),
        stream(chunk(content="Half"), '{"choices":[{"del'),
        document(
            b"<html><title>502 Bad Gateway</title></html>", 502, {"content-type": "text/html"}
        ),
        document({"error": {"message": "Slow down. Try again in 20ms."}}, 429),
        document(
            {"error": {"message": "Failed to call a function.", "code": "tool_use_failed"}}, 400
        ),
        document({"base_resp": {"status_code": 1000, "status_msg": "unknown error"}}),
        stream(chunk("tool_calls"), "[DONE]"),
        stream(chunk(reasoning="hm"), chunk("length"), "[DONE]"),
        stream("[DONE]"),
    ],
)
async def test_what_broke_off_is_asked_again_and_leaves_nothing(
    house: House, stub: StubServer, broken: Turn
) -> None:
    told = await play(house, stub, broken, saying("Done."))
    assert (told.task.final_answer, told.requests) == ("Done.", 2)
    assert told.answers == ["Done."]
    assert told.results == []
    assert len(told.of("model_call_retried")) == 1


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (stream(chunk("content_filter"), "[DONE]"), "provider_filtered", "say it differently"),
        (
            document({"error": {"message": "m does not support tools"}}, 400),
            "provider_tools",
            "choose a model",
        ),
        (
            document({"error": {"message": "exceeded", "code": "insufficient_quota"}}, 429),
            "provider_quota",
            "out of credit",
        ),
        (
            document(b"<html><title>Sign in</title></html>", 200, {"content-type": "text/html"}),
            "provider_bad_reply",
            "base URL",
        ),
        (
            document({"error": {"message": "API key not valid."}}, 400),
            "provider_auth",
            "Check the API key",
        ),
    ],
)
async def test_what_asking_again_cannot_mend_is_said_at_once(
    house: House, stub: StubServer, answer: Turn, code: str, words: str
) -> None:
    told = await play(house, stub, answer, saying("Never."))
    assert (told.task.status, told.requests) == ("failed", 1)
    assert told.task.error is not None
    assert told.task.error["code"] == code
    assert words in told.task.error["hint"]


async def test_a_reply_that_keeps_breaking_off_is_said_with_what_to_do(
    house: House, stub: StubServer
) -> None:
    half = stream(chunk(content="Half"))
    told = await play(house, stub, half, half, half, saying("Never."))
    assert (told.task.status, told.requests) == ("failed", 3)
    assert told.task.error is not None
    assert "what stands in between" in told.task.error["hint"]
    assert told.answers == ["Half"]
    assert told.of("assistant_message")[0]["partial"] is True


async def test_output_used_up_by_thinking_is_said_after_a_second_try(
    house: House, stub: StubServer
) -> None:
    thinking = stream(chunk(reasoning="hm"), chunk("length"), "[DONE]")
    told = await play(house, stub, thinking, thinking, saying("Never."))
    assert (told.task.status, told.requests) == ("failed", 2)
    assert told.task.error is not None
    assert "max_tokens" in told.task.error["hint"]


async def test_a_reply_that_says_nothing_is_paid_for(house: House, stub: StubServer) -> None:
    used = {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 1000}}
    nothing = stream(chunk(reasoning="hm"), chunk("length"), used, "[DONE]")
    told = await play(house, stub, nothing, saying("Done."), price_input=1, price_output=1000)
    assert told.task.final_answer == "Done."
    assert told.task.cost is not None
    assert told.task.cost >= 1
    assert told.task.steps == 1
    assert [each["finish_reason"] for each in told.of("model_call_finished")] == ["length", "stop"]
    assert told.of("reasoning_message") == []
    row = await ModelUsage.objects.aget()
    assert (row.calls, row.output_tokens >= 1000, row.cost >= 1) == (2, True, True)


async def test_usage_that_cannot_be_true_is_estimated(house: House, stub: StubServer) -> None:
    used = {"choices": [], "usage": {"prompt_tokens": 2**52, "completion_tokens": 10**10}}
    absurd = stream(chunk(content="Done."), chunk("stop"), used, "[DONE]")
    told = await play(house, stub, absurd, price_input=1, price_output=1000)
    assert told.task.status == "completed"
    assert told.of("model_call_finished")[0]["usage"]["estimated"] is True


async def test_arguments_in_odd_forms_run_once_and_go_back_as_objects(
    house: House, stub: StubServer
) -> None:
    twice = json.dumps(json.dumps({"path": "a.txt"}))
    told = await play(
        house,
        stub,
        stream(read_file(arguments=twice), chunk("stop"), "[DONE]"),
        saying("Done."),
    )
    assert told.results == [(True, "AAA")]
    (call,) = stub.run("odd").bodies[-1]["messages"][2]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"path": "a.txt"}


async def test_reasoning_that_only_ends_is_stored_apart_and_expected_from_then_on(
    house: House, stub: StubServer
) -> None:
    unopened = stream(chunk(content="I add.\n"), chunk(content="</think>\n\n4"), chunk("stop"))
    told = await play(house, stub, unopened, unopened)
    assert told.answers == [told.task.final_answer] == ["4"]
    assert [event["text"] for event in told.of("reasoning_message")] == ["I add."]
    assert (await ModelProfile.objects.aget()).quirks == {"think_open": True}
    again = await play(house, stub, unopened, unopened)
    assert (again.task.final_answer, len(again.of("reasoning_message"))) == ("4", 1)


async def test_a_full_context_gets_one_more_try(house: House, stub: StubServer) -> None:
    full = document({"error": {"message": "prompt token count of 9 exceeds the limit of 8"}}, 400)
    told = await play(house, stub, full, saying("Done."))
    assert (told.task.final_answer, told.requests) == ("Done.", 2)


async def test_text_that_looks_like_a_call_is_an_answer(house: House, stub: StubServer) -> None:
    text = '<tool_call>{"name": "read_file", "arguments": {"path": "a.txt"}}</tool_call>'
    told = await play(house, stub, saying(text))
    assert told.task.final_answer == text
    assert told.of("tool_call_requested") == []


async def test_a_session_can_change_to_a_model_of_another_provider(
    house: House, stub: StubServer
) -> None:
    """What the first left for its provider stays there, and its ids fit the second."""
    signed = read_file(
        id="functions.read_file:0", extra_content={"google": {"thought_signature": "s"}}
    )
    told = await play(
        house,
        stub,
        stream(signed, chunk("tool_calls"), "[DONE]"),
        saying("Done."),
    )
    first = stub.run("odd").bodies[-1]["messages"][2]["tool_calls"][0]
    assert (first["id"], "extra_content" in first) == ("functions.read_file:0", True)
    stub.scripts["other"] = [saying("So.")]
    await sync_to_async(make_profile)("other", base_url=stub.url("other"), model="n")
    profile = await ModelProfile.objects.aget(name="other")
    async with house.runner(models=wiring.Models()) as runner:
        created = await house.ask(
            "And?", session_id=told.task.session_id, model_profile_id=profile.pk
        )
        runner.wake(str(created.task_id))
        await house.until(created.task_id, "completed")
    messages = stub.run("other").bodies[-1]["messages"]
    assert [message["role"] for message in messages] == [
        *("system", "user", "assistant", "tool", "assistant", "user"),
    ]
    call = messages[2]["tool_calls"][0]
    assert "extra_content" not in call
    assert ":" not in call["id"]
    assert call["id"] == messages[3]["tool_call_id"]
