"""The provider against a real server: what is sent, and what a refusal teaches."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from agent.messages import (
    AssistantMessage,
    Message,
    Reasoning,
    Text,
    ToolCall,
    UserMessage,
)
from agent.providers.client import Client
from agent.providers.quirks import Quirks
from tests.support.openai import ask, failure, provider, result, text
from tests.support.provider_server import ProviderServer, Request, Scene, delta


def calling(*calls: ToolCall, thought: str = "") -> AssistantMessage:
    thoughts = (Reasoning(block_id="r", text=thought),) if thought else ()
    return AssistantMessage(blocks=(*thoughts, *calls))


def call(tool_call_id: str, **changes: Any) -> ToolCall:
    fields: dict[str, Any] = {"name": "read_file", "arguments": {"path": "a.txt"}, "index": 0}
    return ToolCall(block_id="b", tool_call_id=tool_call_id, **(fields | changes))


async def sent(
    client: Client, server: ProviderServer, *messages: Message, **options: Any
) -> list[dict[str, Any]]:
    await ask(provider(client, server.url("normal"), **options), *messages)
    wire: list[dict[str, Any]] = server.requests[-1].body["messages"]
    return wire


async def test_history_is_what_strict_servers_accept(client, server):
    messages = await sent(
        client,
        server,
        UserMessage(text="Go"),
        calling(
            call("x"),
            call("y", arguments=None, raw_arguments="[", problem="no", name="a.b c"),
            call("z" * 60, arguments={}),
            thought="hm",
        ),
        result("z" * 60, ""),
        result("x"),
        result("stray"),
        AssistantMessage(blocks=(Text(block_id="t", text="So."),)),
        AssistantMessage(blocks=(Reasoning(block_id="t", text="nothing said"),)),
    )
    assert [m["role"] for m in messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "tool",
        "assistant",
    ]
    calls = messages[2]["tool_calls"]
    assert [m["tool_call_id"] for m in messages[3:6]] == [c["id"] for c in calls]
    assert [json.loads(c["function"]["arguments"]) for c in calls] == [{"path": "a.txt"}, {}, {}]
    assert [c["function"]["name"] for c in calls] == ["read_file", "a_b_c", "read_file"]
    assert all(0 < len(c["id"]) <= 40 for c in calls)
    assert [m["content"] for m in messages[3:5]] == [
        "AAA",
        "The call was interrupted; its outcome is unknown.",
    ]
    assert messages[5]["content"]
    assert messages[2]["content"] is None
    assert "hm" not in json.dumps(messages)


async def test_quirks_change_what_is_sent(client, server):
    quirks = Quirks(
        empty_content="",
        reasoning_field="reasoning_content",
        system_role="user",
        short_ids=True,
        dropped=("top_p",),
    )
    messages = await sent(
        client,
        server,
        UserMessage(text="Go"),
        calling(call("call_1"), thought="hm"),
        result("call_1"),
        quirks=quirks,
        options={"top_p": 1, "temperature": 0},
    )
    assert [m["role"] for m in messages] == ["user", "assistant", "tool"]
    assert messages[0]["content"] == "You are careful.\n\nGo"
    assert messages[1]["content"] == ""
    assert messages[1]["reasoning_content"] == "hm"
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"]
    assert len(messages[2]["tool_call_id"]) == 9
    assert server.requests[-1].body["temperature"] == 0
    assert "top_p" not in server.requests[-1].body


async def test_opaque_data_goes_back_to_its_provider(client, server):
    extra = {"extra_content": {"google": {"thought_signature": "s"}}}
    details = {"reasoning_details": [{"signature": "s"}]}
    thought = Reasoning(block_id="r", text="hm", provider_data=details)
    message = AssistantMessage(blocks=(thought, call("x", provider_data=extra)))
    messages = await sent(client, server, UserMessage(text="Go"), message, result("x"))
    assert messages[2]["reasoning_details"] == details["reasoning_details"]
    assert messages[2]["tool_calls"][0]["extra_content"] == extra["extra_content"]


async def test_text_that_no_encoder_takes_is_cleaned(client, server):
    messages = await sent(client, server, UserMessage(text="a\ud83d"))
    assert messages[1]["content"] == "a\ufffd"


# ── refusals that teach ───────────────────────────────────────────────────────────────────────


def strict(refusal: Any, refuses: Callable[[dict[str, Any]], bool]) -> Scene:
    async def scene(request: Request) -> None:
        if refuses(request.body):
            await request.answer(refusal, 400)
        else:
            await request.head(200, {"content-type": "text/event-stream"})
            await request.events(delta("Hello."), delta("", "stop"), "[DONE]")
            await request.end()

    return scene


def nested(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", **fields}}


def contents(body: dict[str, Any]) -> list[Any]:
    return [m["content"] for m in body["messages"] if m["role"] == "assistant"]


@pytest.mark.parametrize(
    ("refusal", "refuses", "learnt"),
    [
        (
            nested("Unrecognized request argument: stream_options"),
            lambda b: "stream_options" in b,
            {"dropped": ("stream_options",)},
        ),
        (
            nested("Unknown parameter.", param="stream_options"),
            lambda b: "stream_options" in b,
            {"dropped": ("stream_options",)},
        ),
        (
            {
                "detail": [
                    {"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}
                ]
            },
            lambda b: "stream_options" in b,
            {"dropped": ("stream_options",)},
        ),
        (
            nested("parallel_tool_calls is not supported"),
            lambda b: "parallel_tool_calls" in b,
            {"dropped": ("parallel_tool_calls",)},
        ),
        (
            nested("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
            lambda b: "max_tokens" in b,
            {"renamed": {"max_tokens": "max_completion_tokens"}},
        ),
        (
            nested("invalid message content type: <nil>"),
            lambda b: None in contents(b),
            {"empty_content": ""},
        ),
        (
            nested("The `reasoning_content` in the thinking mode must be passed back to the API."),
            lambda b: any(
                m["role"] == "assistant" and "reasoning_content" not in m for m in b["messages"]
            ),
            {"reasoning_field": "reasoning_content"},
        ),
        (
            nested("Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9."),
            lambda b: any(len(m.get("tool_call_id", "123456789")) != 9 for m in b["messages"]),
            {"short_ids": True},
        ),
        (
            nested("System role not supported"),
            lambda b: b["messages"][0]["role"] == "system",
            {"system_role": "user"},
        ),
        (
            nested("Conversation roles must alternate user/assistant/user/assistant/..."),
            lambda b: [m["role"] for m in b["messages"]].count("user") > 1,
            {"alternate": True},
        ),
    ],
)
async def test_a_refused_peculiarity_is_learnt_at_once(client, refusal, refuses, learnt):
    said = (UserMessage(text="What was before"), UserMessage(text="Go"))
    history = (*said, calling(call("call_1"), thought="hm"), result("call_1"))
    options = {"parallel_tool_calls": False, "max_tokens": 100}
    async with ProviderServer(strict=strict(refusal, refuses)) as server:
        target = provider(client, server.url("strict"), options=options)
        error = await failure(target, *history)
        assert error.adapted
        assert target.quirks == Quirks(**learnt)
        assert text((await ask(target, *history))[1]) == "Hello."


async def test_a_server_that_cannot_stream_is_asked_for_documents(client, server):
    target = provider(client, server.url("streamless"))
    assert (await failure(target)).adapted
    assert text((await ask(target))[1]) == "Hello."
    assert target.quirks == Quirks(stream=False)


async def test_a_server_that_refuses_everything_is_asked_a_few_times(client):
    refusal = nested("content: null or empty content, <nil>, must be non-empty, stream_options")
    async with ProviderServer(strict=strict(refusal, lambda body: True)) as server:
        target = provider(client, server.url("strict"))
        history = (UserMessage(text="Go"), calling(call("x")), result("x"))
        tries = [(await failure(target, *history)).adapted for _ in range(6)]
    assert tries == [True, True, False, False, False, False]


async def test_an_ordinary_refusal_teaches_nothing(client):
    scene = strict(nested("messages: at least one is needed"), lambda body: True)
    async with ProviderServer(strict=scene) as server:
        error = await failure(provider(client, server.url("strict")))
    assert (error.code, error.adapted) == ("provider_refused", False)


async def test_a_full_context_has_its_own_code(client):
    refusal = nested(
        "This model's maximum context length is 8192 tokens.", code="context_length_exceeded"
    )
    async with ProviderServer(strict=strict(refusal, lambda body: True)) as server:
        assert (await failure(provider(client, server.url("strict")))).code == "context_overflow"
