"""The provider for servers that speak OpenAI's language, and what a test asks of it."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from agent.errors import ProviderError
from agent.events import Delta
from agent.messages import (
    AssistantMessage,
    Message,
    Reply,
    ToolDefinition,
    ToolMessage,
    UserMessage,
)
from agent.providers import ModelRequest
from agent.providers.client import Client
from agent.providers.openai import OpenAIProvider

KEY = "sk-live-CANARY-7f3a"
TOOL = ToolDefinition(name="read_file", description="read", parameters={"type": "object"})


def request(*messages: Message, tools: tuple[ToolDefinition, ...] = (TOOL,)) -> ModelRequest:
    numbers = itertools.count(1)
    return ModelRequest(
        system="You are careful.",
        messages=messages or (UserMessage(text="Hi"),),
        tools=tools,
        step=1,
        new_block_id=lambda: f"b{next(numbers)}",
    )


def provider(client: Client, base_url: str, **options: Any) -> OpenAIProvider:
    return OpenAIProvider(client, base_url=base_url, model="m", api_key=KEY, **options)


async def ask(target: OpenAIProvider, *messages: Message) -> tuple[list[Delta], Reply]:
    items = [item async for item in target.stream(request(*messages))]
    deltas = [item for item in items if not isinstance(item, Reply)]
    (reply,) = [item for item in items if isinstance(item, Reply)]
    assert items[-1] is reply
    return deltas, reply


async def failure(target: OpenAIProvider, *messages: Message) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ask(target, *messages)
    error = caught.value
    assert "CANARY" not in f"{error} {error.hint}"
    assert error.__cause__ is None
    assert error.__suppress_context__
    return error


def text(reply: Reply) -> str:
    return AssistantMessage(blocks=reply.blocks).text


class Flood:
    """A server whose bytes are always there before they are asked for: reading never suspends."""

    status = 200
    headers: dict[str, str] = {}

    async def post(self, *request: object) -> Flood:
        self._enough = time.monotonic() + 2  # the test fails rather than hangs
        return self

    def take(self) -> bytes:
        return b""

    async def read(self) -> bytes:
        return b": ping\n\n" if time.monotonic() < self._enough else b""

    def at_end(self) -> bool:
        return False

    def close(self) -> None: ...

    async def aclose(self) -> None: ...


def result(tool_call_id: str, content: str = "AAA") -> ToolMessage:
    return ToolMessage(tool_call_id=tool_call_id, name="read_file", content=content)
