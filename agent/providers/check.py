"""Does a model work for us? Two tiny requests: a tool call, and an answer to its result.

For the "test connection" button and the command: never raises for what the other side does, and
says what to do about it. What the server refuses is learnt on the way, as in a run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import count

from agent.errors import ProviderError
from agent.messages import (
    AssistantMessage,
    Message,
    Reply,
    Text,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    UserMessage,
)
from agent.providers import ModelRequest, Provider

SECONDS = 90.0
MAX_ADAPTATIONS = 8
WORD = "albatross"
_SYSTEM = (
    "This is a test of the connection. Do exactly what you are asked, in as few words as possible."
)
_ECHO = ToolDefinition(
    name="echo",
    description="Gives back the word.",
    parameters={
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
        "additionalProperties": False,
    },
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that works, or does not."""

    what: str
    ok: bool
    said: str


@dataclass(kw_only=True)
class Report:
    """What was found, in order."""

    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(finding.ok for finding in self.findings)

    def note(self, what: str, ok: bool, said: str) -> None:
        self.findings.append(Finding(what=what, ok=ok, said=said))


@dataclass(frozen=True, kw_only=True)
class _Heard:
    reply: Reply
    deltas: int
    first: float | None
    """Seconds until the first delta."""
    whole: float


async def check(provider: Provider, seconds: float = SECONDS) -> Report:
    """Ask the model; a report in any case."""
    report = Report()
    try:
        async with asyncio.timeout(seconds):
            await _talk(provider, report)
    except ProviderError as error:
        report.note("connection" if not report.findings else "answer", False, _said(error))
    except TimeoutError:
        report.note("time", False, f"It was not done within {seconds:g} seconds.")
    return report


async def _talk(provider: Provider, report: Report) -> None:
    asked = UserMessage(text=f'Call the tool echo with the word "{WORD}".')
    heard = await _ask(provider, [asked])
    _note_reply(report, heard)
    calls = [block for block in heard.reply.blocks if isinstance(block, ToolCall)]
    sound = [call for call in calls if call.name == _ECHO.name and call.arguments]
    if not sound:
        problem = calls[0].problem if calls else "It answered without calling the tool."
        report.note("tool call", False, f"{problem or 'It called something else.'} {_TOOLLESS}")
        return
    report.note("tool call", True, f"it called {sound[0].name}")
    # A server that gives calls no id gets ours, as in a run.
    own = [
        ToolCall(
            block_id=call.block_id,
            tool_call_id=call.tool_call_id or f"call_{number}",
            index=number,
            name=call.name,
            arguments=call.arguments,
            provider_data=call.provider_data,
        )
        for number, call in enumerate(sound)
    ]
    others = [block for block in heard.reply.blocks if not isinstance(block, ToolCall)]
    results = [
        ToolMessage(tool_call_id=call.tool_call_id, name=call.name, content=WORD) for call in own
    ]
    again = await _ask(provider, [asked, AssistantMessage(blocks=(*others, *own)), *results])
    text = "".join(block.text for block in again.reply.blocks if isinstance(block, Text)).strip()
    report.note("answer", True, f"{again.whole:.1f} s, {len(text)} characters")


async def _ask(provider: Provider, messages: Sequence[Message]) -> _Heard:
    """One request, asked again at once while the server's refusals teach something."""
    for attempt in count(1):
        try:
            return await _once(provider, messages)
        except ProviderError as error:
            if not error.adapted or attempt > MAX_ADAPTATIONS:
                raise
    raise AssertionError


async def _once(provider: Provider, messages: Sequence[Message]) -> _Heard:
    numbers = count(1)
    request = ModelRequest(
        system=_SYSTEM,
        messages=messages,
        tools=[_ECHO],
        step=1,
        new_block_id=lambda: f"b{next(numbers)}",
    )
    began = time.monotonic()
    deltas, first = 0, None
    reply: Reply | None = None
    async with aclosing(provider.stream(request)) as stream:
        async for item in stream:
            if isinstance(item, Reply):
                reply = item
            else:
                deltas += 1
                first = time.monotonic() - began if first is None else first
    assert reply is not None  # the protocol: exactly one, at the end
    return _Heard(reply=reply, deltas=deltas, first=first, whole=time.monotonic() - began)


def _note_reply(report: Report, heard: _Heard) -> None:
    report.note("connection", True, f"it replied after {heard.whole:.1f} s")
    first = "" if heard.first is None else f", the first after {heard.first:.1f} s"
    report.note("stream", True, f"{heard.deltas} pieces{first}")
    usage = heard.reply.usage
    counted = "counted by us, because it does not say" if usage.estimated else "as it says"
    report.note(
        "usage", True, f"{usage.input_tokens} tokens in, {usage.output_tokens} out, {counted}"
    )


def _said(error: ProviderError) -> str:
    return f"{error} {error.hint}".strip()


_TOOLLESS = "Without tool calls it can talk, but do nothing."
