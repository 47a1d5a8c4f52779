"""Our messages -> the body of a `/chat/completions` request that strict servers accept. Pure.

One system message, at index 0. Every call has one result, right behind it, in the order of the
calls. Ids are unique and not empty, arguments are always the text of a JSON object, names match
what servers allow. Reasoning stays at home unless a quirk demands it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from agent.messages import AssistantMessage, Message, Reasoning, ToolCall, ToolMessage, UserMessage
from agent.providers import ModelRequest, ToolDefinition
from agent.providers.quirks import NO_CONTENT_FILLER, Quirks
from agent.text import clean_json

MAX_ID = 40
UNKNOWN_OUTCOME = "The call was interrupted; its outcome is unknown."
_encode = msgspec.json.encode


def request_body(
    request: ModelRequest, model: str, quirks: Quirks, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The whole body; `options` are the profile's own fields (temperature, max_tokens …)."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [*_system(request.system, quirks), *_messages(request.messages, quirks)],
        "stream": quirks.stream,
    }
    if quirks.stream:
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    body |= {quirks.renamed.get(name, name): value for name, value in options.items()}
    if quirks.system_role == "user":
        _merge_system(body["messages"])
    if quirks.alternate:
        body["messages"] = _alternating(body["messages"])
    return {name: value for name, value in body.items() if name not in quirks.dropped}


def encoded(body: dict[str, Any]) -> bytes:
    """The body as bytes, whatever text got into it."""
    try:
        return _encode(body)
    except UnicodeEncodeError:
        return _encode(clean_json(body, 1000))


def _system(system: str, quirks: Quirks) -> list[dict[str, Any]]:
    return [{"role": quirks.system_role, "content": system}] if system else []


def _merge_system(messages: list[dict[str, Any]]) -> None:
    if len(messages) > 1 and messages[0]["role"] == messages[1]["role"] == "user":
        system = messages.pop(0)
        messages[0] = {
            "role": "user",
            "content": f"{system['content']}\n\n{messages[0]['content']}",
        }


def _alternating(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A summary, a request and what was said behind it are a person's messages in a row."""
    out: list[dict[str, Any]] = []
    for message in messages:
        if out and message["role"] == out[-1]["role"] == "user":
            both = f"{out[-1]['content']}\n\n{message['content']}"
            out[-1] = {"role": "user", "content": both}
        else:
            out.append(message)
    return out


def _messages(messages: Sequence[Message], quirks: Quirks) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for position, message in enumerate(messages):
        match message:
            case UserMessage(text=text):
                out.append({"role": "user", "content": text})
            case AssistantMessage():
                results = _results_after(messages, position)
                out += _assistant(message, results, quirks)
            case ToolMessage():
                pass  # went out with its call
    return out


def _results_after(messages: Sequence[Message], position: int) -> dict[str, str]:
    """The results up to the next assistant message, by call id."""
    results: dict[str, str] = {}
    for message in messages[position + 1 :]:
        if isinstance(message, AssistantMessage):
            break
        if isinstance(message, ToolMessage):
            results.setdefault(message.tool_call_id, message.content)
    return results


def _assistant(
    message: AssistantMessage, results: dict[str, str], quirks: Quirks
) -> list[dict[str, Any]]:
    calls, text = message.calls, message.text
    if not calls:
        return [{"role": "assistant", "content": text}] if text else []
    wire: dict[str, Any] = {"role": "assistant", "content": text or quirks.empty_content}
    wire["tool_calls"] = [_call(call, quirks) for call in calls]
    _reasoning(wire, message, quirks)
    return [wire, *(_result(call, results, quirks) for call in calls)]


def _reasoning(wire: dict[str, Any], message: AssistantMessage, quirks: Quirks) -> None:
    thoughts = [block for block in message.blocks if isinstance(block, Reasoning)]
    if quirks.reasoning_field:
        wire[quirks.reasoning_field] = "".join(thought.text for thought in thoughts)
    for thought in thoughts:
        _pass_through(wire, thought.provider_data, quirks)


def _pass_through(wire: dict[str, Any], data: Any, quirks: Quirks) -> None:
    """Hand `provider_data` back; its keys are message or call fields."""
    if isinstance(data, dict):
        wire |= {name: value for name, value in data.items() if name not in quirks.dropped}


def _call(call: ToolCall, quirks: Quirks) -> dict[str, Any]:
    arguments = _encode({} if call.arguments is None else call.arguments).decode()
    wire: dict[str, Any] = {
        "id": wire_id(call.tool_call_id, quirks),
        "type": "function",
        "function": {"name": wire_name(call.name), "arguments": arguments},
    }
    _pass_through(wire, call.provider_data, quirks)
    return wire


def _result(call: ToolCall, results: dict[str, str], quirks: Quirks) -> dict[str, Any]:
    content = results.get(call.tool_call_id, UNKNOWN_OUTCOME)
    return {
        "role": "tool",
        "tool_call_id": wire_id(call.tool_call_id, quirks),
        "content": content or NO_CONTENT_FILLER,
    }


def wire_id(tool_call_id: str, quirks: Quirks) -> str:
    """The id as this server takes it; the same for a call and its result."""
    if len(tool_call_id) <= MAX_ID and not quirks.short_ids:
        return tool_call_id
    digest = hashlib.sha256(tool_call_id.encode()).hexdigest()
    return digest[:9] if quirks.short_ids else f"call_{digest[:24]}"


def wire_name(name: str) -> str:
    """A tool name that every server accepts in history, also when the model made one up."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unknown_tool"


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": function}
