"""Our messages -> the body of a `/chat/completions` request that strict servers accept. Pure.

One system message, at index 0. Every call has one result, right behind it, in the order of the
calls. Ids are unique and not empty, arguments are always the text of a JSON object, names match
what servers allow. Reasoning stays at home unless a quirk demands it. What a model left for its own
provider (signatures, ids of odd forms) goes to no other.

Every step sends the whole history again, so `Bodies` keeps the bytes of what it has sent.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import is_
from typing import Any

import msgspec

from agent.messages import (
    AssistantMessage,
    Message,
    Reasoning,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    UserMessage,
)
from agent.providers import ModelRequest
from agent.providers.quirks import NO_CONTENT_FILLER, Quirks, plain_schema
from agent.text import clean_json, cut

MAX_ID = 40
_UNSIGNED = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""What Google's documentation gives for calls that did not come from its models."""
UNKNOWN_OUTCOME = "The call was interrupted; its outcome is unknown."
_PLAIN_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_encode = msgspec.json.encode


def request_body(
    request: ModelRequest, model: str, quirks: Quirks, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The whole body; `options` are the profile's own fields (temperature, max_tokens …)."""
    messages = [*_system(request.system, quirks), *_messages(request.messages, model, quirks)]
    if quirks.system_role == "user":
        _merge_system(messages)
    if quirks.alternate:
        messages = _alternating(messages)
    tools = _tools(request.tools, quirks.plain_schemas, quirks.description_chars)
    return _body(messages, tools, model, quirks, options)


class Bodies:
    """The bodies of one conversation's requests as bytes: the same as `request_body` encoded, but
    what was sent in the last one is not encoded again."""

    def __init__(self, model: str, options: Mapping[str, Any]) -> None:
        self._model = model
        self._options = options
        self._quirks: Quirks | None = None
        self._sent: list[Message] = []
        self._system = ""
        self._pieces: list[bytes] = []
        """`_system` and `_sent` on the wire under `_quirks`."""

    def encoded(self, request: ModelRequest, quirks: Quirks) -> bytes:
        if quirks.alternate or quirks.system_role == "user":  # messages melt into each other
            return encoded(request_body(request, self._model, quirks, self._options))
        self._write(request.system, request.messages, quirks)
        messages = msgspec.Raw(b"[%b]" % b",".join(self._pieces))
        how = quirks.plain_schemas, quirks.description_chars
        tools = _encoded_tools(tuple(request.tools), *how) if request.tools else ()
        return encoded(_body(messages, tools, self._model, quirks, self._options))

    def _write(self, system: str, messages: Sequence[Message], quirks: Quirks) -> None:
        known, same = len(self._sent), system == self._system and quirks == self._quirks
        if not (same and _goes_on(self._sent, messages)):
            known, self._quirks, self._system = 0, quirks, system
            self._pieces = [encoded(message) for message in _system(system, quirks)]
        fresh = messages[known:]
        self._pieces += [encoded(message) for message in _messages(fresh, self._model, quirks)]
        self._sent = list(messages)


def _goes_on(sent: Sequence[Message], messages: Sequence[Message]) -> bool:
    """Whether these begin with what was sent, and none of the rest is a result of a call in it."""
    known = len(sent)
    if known > len(messages) or not all(map(is_, sent, messages)):
        return False
    rest = (message for message in messages[known:] if not isinstance(message, UserMessage))
    return not isinstance(next(rest, None), ToolMessage)


def _body(
    messages: Any, tools: Any, model: str, quirks: Quirks, options: Mapping[str, Any]
) -> dict[str, Any]:
    body = {"model": model, "messages": messages, "stream": quirks.stream}
    if quirks.stream:
        body["stream_options"] = {"include_usage": True}
    if tools:
        body["tools"] = tools
    body |= {quirks.renamed.get(name, name): value for name, value in options.items()}
    return {name: value for name, value in body.items() if name not in quirks.dropped}


def encoded(body: Any) -> bytes:
    """JSON as bytes, whatever text got into it."""
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
    """A summary, a request and what was said behind it are a person's messages in a row; and they
    may speak right after a tool."""
    out: list[dict[str, Any]] = []
    for message in messages:
        if out and message["role"] == out[-1]["role"] == "user":
            both = f"{out[-1]['content']}\n\n{message['content']}"
            out[-1] = {"role": "user", "content": both}
        else:
            if out and message["role"] == "user" and out[-1]["role"] == "tool":
                out.append({"role": "assistant", "content": NO_CONTENT_FILLER})
            out.append(message)
    return out


def _messages(messages: Sequence[Message], model: str, quirks: Quirks) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for position, message in enumerate(messages):
        match message:
            case UserMessage(text=text):
                out.append({"role": "user", "content": text})
            case AssistantMessage():
                results = _results_after(messages, position)
                own = message.model in ("", model)
                out += _assistant(message, results, quirks, own=own)
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
    message: AssistantMessage, results: dict[str, str], quirks: Quirks, *, own: bool
) -> list[dict[str, Any]]:
    calls, text = message.calls, message.text
    if not calls:
        return [{"role": "assistant", "content": text}] if text else []
    said = "" if quirks.bare_calls else text
    wire: dict[str, Any] = {"role": "assistant", "content": said or quirks.empty_content}
    wire["tool_calls"] = [_call(call, quirks, own=own) for call in calls]
    _reasoning(wire, message, quirks, own=own)
    return [wire, *(_result(call, results, quirks, own=own) for call in calls)]


def _reasoning(
    wire: dict[str, Any], message: AssistantMessage, quirks: Quirks, *, own: bool
) -> None:
    thoughts = [block for block in message.blocks if isinstance(block, Reasoning)]
    if quirks.reasoning_field and quirks.reasoning_field not in quirks.dropped:
        wire[quirks.reasoning_field] = "".join(thought.text for thought in thoughts)
    for thought in thoughts if own else ():
        _pass_through(wire, thought.provider_data, quirks)


def _pass_through(wire: dict[str, Any], data: Any, quirks: Quirks) -> None:
    """Hand `provider_data` back; its keys are message or call fields."""
    if isinstance(data, dict):
        wire |= {name: value for name, value in data.items() if name not in quirks.dropped}


def _call(call: ToolCall, quirks: Quirks, *, own: bool) -> dict[str, Any]:
    arguments = _encode({} if call.arguments is None else call.arguments).decode()
    wire: dict[str, Any] = {
        "id": wire_id(call.tool_call_id, quirks, own=own),
        "type": "function",
        "function": {"name": wire_name(call.name), "arguments": arguments},
    }
    if own:
        _pass_through(wire, call.provider_data, quirks)
    if quirks.signatures:
        wire.setdefault("extra_content", _UNSIGNED)
    return wire


def _result(
    call: ToolCall, results: dict[str, str], quirks: Quirks, *, own: bool
) -> dict[str, Any]:
    content = results.get(call.tool_call_id, UNKNOWN_OUTCOME)
    wire = {
        "role": "tool",
        "tool_call_id": wire_id(call.tool_call_id, quirks, own=own),
        "content": content or NO_CONTENT_FILLER,
    }
    return {**wire, "name": wire_name(call.name)} if quirks.tool_names else wire


def wire_id(tool_call_id: str, quirks: Quirks, *, own: bool) -> str:
    """The id as this server takes it; the same for a call and its result."""
    odd = not (own or _PLAIN_ID.fullmatch(tool_call_id))
    if len(tool_call_id) <= MAX_ID and not (quirks.short_ids or odd):
        return tool_call_id
    digest = hashlib.sha256(tool_call_id.encode()).hexdigest()
    return digest[:9] if quirks.short_ids else f"call_{digest[:24]}"


def wire_name(name: str) -> str:
    """A tool name that every server accepts in history, also when the model made one up."""
    return _NOT_IN_A_NAME.sub("_", name)[:64] or "unknown_tool"


@lru_cache(maxsize=32)
def _encoded_tools(
    tools: tuple[ToolDefinition, ...], plain: tuple[str, ...], description_chars: int
) -> msgspec.Raw:
    """Runs share their tools: encoded once for all of them."""
    return msgspec.Raw(encoded(_tools(tools, plain, description_chars)))


def _tools(
    tools: Sequence[ToolDefinition], plain: tuple[str, ...], description_chars: int
) -> list[dict[str, Any]]:
    return [_tool(tool, plain, description_chars) for tool in tools]


def _tool(tool: ToolDefinition, plain: tuple[str, ...], description_chars: int) -> dict[str, Any]:
    said = tool.description
    function = {
        "name": tool.name,
        "description": cut(said, description_chars) if description_chars else said,
        "parameters": plain_schema(tool.parameters, plain) if plain else tool.parameters,
    }
    return {"type": "function", "function": function}
