"""What real servers want of a request, from public reports about other clients: one refusal is enough."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agent.messages import (
    AssistantMessage,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    UserMessage,
)
from agent.providers import ModelRequest
from agent.providers.quirks import Quirks, learn
from agent.providers.wire import Bodies, encoded, request_body
from tests.support.counting import python_calls

SCHEMA = {
    "type": "object",
    "properties": {"title": {"type": "string", "minLength": 1}},
    "additionalProperties": False,
}
TOOL = ToolDefinition(name="read_file", description="Reads a file. " * 100, parameters=SCHEMA)


def called(model: str = "", **changes: Any) -> AssistantMessage:
    fields: dict[str, Any] = {
        "block_id": "c",
        "tool_call_id": "functions.read_file:0",
        "index": 0,
        "name": "read_file",
        "arguments": {"title": "a"},
    }
    blocks = (
        Reasoning(block_id="r", text="hm", provider_data={"reasoning_details": ["signed"]}),
        Text(block_id="t", text="Let me look."),
        ToolCall(**fields | changes),
    )
    return AssistantMessage(blocks=blocks, model=model)


HISTORY = (
    UserMessage(text="Go"),
    called(provider_data={"extra_content": {"google": {"thought_signature": "s"}}}),
    ToolMessage(tool_call_id="functions.read_file:0", name="read_file", content="AAA"),
    UserMessage(text="And?"),
)
Body = dict[str, Any]


OPTIONS = {"temperature": 0.2}


def request_of(history: Sequence[Message]) -> ModelRequest:
    return ModelRequest(
        system="Be careful.", messages=history, tools=[TOOL], step=1, new_block_id=lambda: "b"
    )


def body_of(quirks: Quirks, history: Sequence[Message] = HISTORY) -> Body:
    return request_body(request_of(history), "m", quirks, OPTIONS)


LONGER = (
    *HISTORY[:3],
    called(model="other", tool_call_id="x" * 60),
    ToolMessage(tool_call_id="x" * 60, name="read_file", content="\ud83d"),
    UserMessage(text="Go on"),
    called(),
    ToolMessage(tool_call_id="functions.read_file:0", name="read_file", content=""),
    AssistantMessage(blocks=(Text(block_id="t", text="Done."),)),
    UserMessage(text="More"),
    UserMessage(text="and more"),
)


LONG = (
    HISTORY[0],
    *(
        message
        for step in range(60)
        for message in (
            called(tool_call_id=f"call{step}"),
            ToolMessage(tool_call_id=f"call{step}", name="read_file", content="AAA"),
        )
    ),
)


@pytest.mark.parametrize(
    "quirks",
    [
        Quirks(),
        Quirks(stream=False, dropped=("temperature",)),
        Quirks(alternate=True),
        Quirks(system_role="user"),
        Quirks(reasoning_field="reasoning", signatures=True, short_ids=True),
        Quirks(tool_names=True, bare_calls=True, plain_schemas=("minimum",), empty_content=""),
        Quirks(description_chars=1024),
    ],
)
def test_a_growing_history_is_sent_as_if_each_request_were_written_anew(quirks):
    bodies = Bodies("m", OPTIONS)
    cuts = [*range(1, len(LONGER) + 1), 3, len(LONGER)]  # and one that became shorter
    for cut in cuts:
        asked = request_of(LONGER[:cut])
        whole = request_body(asked, "m", quirks, OPTIONS)
        assert bodies.encoded(asked, quirks) == encoded(whole)
        assert bodies.encoded(asked, Quirks()) == encoded(
            request_body(asked, "m", Quirks(), OPTIONS)
        )


def test_what_was_sent_before_is_not_written_again():
    bodies, counts = Bodies("m", OPTIONS), []
    for steps in (5, 6, 50, 51):
        messages = LONG[: 1 + 2 * steps]
        with python_calls() as names:
            bodies.encoded(request_of(messages), Quirks())
        counts.append(len(names))
    assert counts[3] == counts[1] <= 50 < counts[0] < counts[2]


def results(body: Body) -> list[Body]:
    return [message for message in body["messages"] if message["role"] == "tool"]


def calls(body: Body) -> list[Body]:
    return [call for message in body["messages"] for call in message.get("tool_calls", ())]


def callers(body: Body) -> list[Body]:
    return [message for message in body["messages"] if "tool_calls" in message]


def follows(body: Body, first: str, second: str) -> bool:
    roles = [message["role"] for message in body["messages"]]
    return (first, second) in set(itertools.pairwise(roles))


@pytest.mark.parametrize(
    ("source", "refusal", "refuses", "learnt"),
    [
        (
            "NousResearch/hermes-agent#16478",
            "GenerateContentRequest.contents[2].parts[0].function_response.name: Name cannot be empty.",
            lambda body: any("name" not in each for each in results(body)),
            {"tool_names": True},
        ),
        (
            "su-kaka/gcli2api#200",
            "Tool message must have a 'name' field. The 'name' field is required.",
            lambda body: any("name" not in each for each in results(body)),
            {"tool_names": True},
        ),
        (
            "NousResearch/hermes-agent#19728",
            "Request contains an invalid argument.",
            lambda body: any("name" not in each for each in results(body)),
            {"tool_names": True},
        ),
        (
            "zed-industries/zed#37021",
            "Unexpected role 'user' after role 'tool'",
            lambda body: follows(body, "tool", "user"),
            {"alternate": True},
        ),
        (
            "OpenSecretCloud/maple-proxy#18",
            "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
            lambda body: any(":" in call["id"] for call in calls(body)),
            {"short_ids": True},
        ),
        (
            "Laisky/one-api#60",
            'Invalid JSON payload received. Unknown name "additionalProperties" at '
            "'tools[0].function_declarations[0].parameters': Cannot find field.",
            lambda body: "additionalProperties" in body["tools"][0]["function"]["parameters"],
            {"plain_schemas": ("additionalProperties",)},
        ),
        (
            "abhigyanpatwari/GitNexus#43",
            "Missing `reasoning_content` field in the assistant message at message index 2.",
            lambda body: any("reasoning_content" not in each for each in callers(body)),
            {"reasoning_field": "reasoning_content"},
        ),
        (
            "modelcontextprotocol/servers#799",
            "Invalid 'tools[26].function.description': string too long. Expected a string with maximum "
            "length 1024, but got a string with length 2780 instead.",
            lambda body: len(body["tools"][0]["function"]["description"]) > 1024,
            {"description_chars": 1024},
        ),
        (
            "kin of modelcontextprotocol/servers#799",
            "tools.0.custom.description: String should have at most 1024 characters",
            lambda body: len(body["tools"][0]["function"]["description"]) > 1024,
            {"description_chars": 1024},
        ),
        (
            "agentscope-ai/QwenPaw#433",
            "thinking is enabled but reasoning_content is missing in assistant tool call message at "
            "index 2",
            lambda body: any("reasoning_content" not in each for each in callers(body)),
            {"reasoning_field": "reasoning_content"},
        ),
        (
            "charmbracelet/crush#1216",
            "Your organization must be verified to stream this model. Please go to: https://x.y/z",
            lambda body: body.get("stream"),
            {"stream": False},
        ),
        (
            "kin of vllm-project/vllm#41114",
            "Only user, assistant and tool roles are supported!",
            lambda body: body["messages"][0]["role"] == "system",
            {"system_role": "user"},
        ),
        (
            "langchain-ai/langchain#21196",
            "Assistant message must have either content or tool_calls, but not both.",
            lambda body: any(each["content"] for each in callers(body)),
            {"bare_calls": True},
        ),
        (
            "OpenMinis/OpenMinis#87",
            "body.messages.2.assistant.reasoning_details: Extra inputs are not permitted",
            lambda body: any("reasoning_details" in each for each in callers(body)),
            {"dropped": ("reasoning_details",)},
        ),
        (
            "kin of ollama/ollama#11131",
            "Unsupported value: 'temperature' does not support 0.2 with this model.",
            lambda body: "temperature" in body,
            {"dropped": ("temperature",)},
        ),
    ],
)
def test_what_a_refusal_asks_for_is_done(
    source: str, refusal: str, refuses: Callable[[Body], bool], learnt: dict[str, Any]
) -> None:
    body = body_of(Quirks())
    assert refuses(body)
    quirks = learn(Quirks(), refusal, body)
    assert quirks == Quirks(**learnt)
    assert not refuses(body_of(quirks))
    assert learn(quirks, refusal, body_of(quirks)) is None


@pytest.mark.parametrize(
    ("refusal", "filler"),
    [
        ("unsupported operand type(s) for +: 'NoneType' and 'str'", ""),
        ("messages.2: content must be a non-empty string", "…"),
        ("messages: text content blocks must be non-empty", "…"),
        ("messages.1.content: Input should be a valid string", ""),
    ],
)
def test_calls_without_words_get_a_content_that_the_server_takes(refusal: str, filler: str) -> None:
    call = called().blocks[-1]
    history = (HISTORY[0], AssistantMessage(blocks=(call,)), HISTORY[2])
    quirks = learn(Quirks(), refusal, body_of(Quirks(), history))
    assert quirks is not None
    assert callers(body_of(quirks, history))[0]["content"] == filler


def test_calls_of_another_model_get_the_signature_that_google_wants() -> None:
    """Gitlawb/openclaude#67, OpenHands/software-agent-sdk#1500"""
    history = (HISTORY[0], called("other"), *HISTORY[2:])
    refusal = "Function call is missing a thought_signature in functionCall parts."
    quirks = learn(Quirks(), refusal, body_of(Quirks(), history))
    assert quirks == Quirks(signatures=True)
    for messages, signature in ((history, "skip_thought_signature_validator"), (HISTORY, "s")):
        (call,) = calls(body_of(quirks, messages))
        assert call["extra_content"]["google"]["thought_signature"] == signature


def test_what_a_model_left_for_its_provider_goes_to_no_other() -> None:
    """earendil-works/pi#9048, huggingface/tau#557, langchain-ai/langchain#37756"""
    extra = {"extra_content": {"google": {"thought_signature": "s"}}}
    for model, own in (("", True), ("m", True), ("other", False)):
        body = body_of(Quirks(), (HISTORY[0], called(model, provider_data=extra), *HISTORY[2:]))
        (caller,), (call,), (result,) = callers(body), calls(body), results(body)
        assert ("reasoning_details" in caller) == ("extra_content" in call) == own
        assert (call["id"] == "functions.read_file:0") == own
        assert call["id"] == result["tool_call_id"]
        assert own or re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", call["id"])


def test_a_property_may_be_named_like_a_keyword() -> None:
    said = "tools.0.function.parameters: title, minLength are not supported in a schema"
    quirks = learn(Quirks(), said, body_of(Quirks()))
    assert quirks == Quirks(plain_schemas=("minLength",))
    parameters = body_of(quirks)["tools"][0]["function"]["parameters"]
    assert parameters["properties"] == {"title": {"type": "string"}}
