"""The provider cases over HTTP: plays a case turn by turn and refuses what strict servers refuse.

    async with StubServer() as stub:
        provider = OpenAIProvider(client, base_url=stub.url("A01"), …)

Each request to `/<case>/…/chat/completions` gets the next turn of that case; what stands between
the case and `v1` makes an independent run (`stub.url("A01", "second")`). A request that breaks a
guard of the turn gets 400 and does not use the turn up. After the script the answer is DONE-<case>.
`serving(StubServer())` runs it in a thread.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support import cases
from tests.support.provider_server import SSE, ProviderServer, Request, delta

Messages = list[dict[str, Any]]


@dataclass(kw_only=True)
class Run:
    """One playing of a case."""

    turns: list[cases.Turn]
    bodies: list[dict[str, Any]] = field(default_factory=list)
    """Every request body, refused or not."""
    refusals: list[str] = field(default_factory=list)
    played: int = 0
    answered_at: float = field(default_factory=time.monotonic)


class StubServer(ProviderServer):
    """A strict server with a script."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: dict[str, Run] = {}
        self.scripts: dict[str, list[cases.Turn]] = {}
        """Turns of scenes that are no collected case."""

    def url(self, scene: str, run: str = "") -> str:
        return f"http://127.0.0.1:{self.port}/{scene}{'/' if run else ''}{run}/v1"

    def run(self, case: str, run: str = "") -> Run:
        """What happened so far."""
        return self.runs[f"{case}/{run}" if run else case]

    async def _play(self, request: Request) -> None:
        name = request.path.removesuffix("/chat/completions").removesuffix("/v1").strip("/")
        turns = self.scripts.get(request.scene) or cases.turns(request.scene)
        run = self.runs.setdefault(name, Run(turns=turns))
        run.bodies.append(request.body)
        turn = run.turns[run.played] if run.played < len(run.turns) else None
        refusal = refused(turn.guards if turn else ("paired",), request.body, run)
        if refusal:
            run.refusals.append(refusal)
            error = {"message": refusal, "type": "invalid_request_error", "code": None}
            await request.answer({"error": error}, _status_of(refusal))
            return
        run.played += 1
        if turn is None:
            await request.head(200, SSE)
            await request.events(delta(f"DONE-{request.scene}"), delta("", "stop"), "[DONE]")
            await request.end()
        else:
            await _play_turn(turn, request)
        run.answered_at = time.monotonic()


async def _play_turn(turn: cases.Turn, request: Request) -> None:
    key = request.headers.get("authorization", "").removeprefix("Bearer ").encode()
    await request.head(turn.status, turn.headers)
    for chunk in turn.chunks:
        await request.chunk(chunk.replace(b"{{AUTH}}", key))
        await asyncio.sleep(turn.delay)
    if turn.end == "hang":
        await request.until_closed()
    if turn.end == "close":
        await request.end()
    else:
        request.writer.transport.abort()


def _status_of(refusal: str) -> int:
    if refusal.startswith("rate limited"):
        return 429
    return 422 if "extra_forbidden" in refusal else 400


# ── guards: what a strict provider refuses, and in which words ────────────────────────────────


def refused(guards: tuple[str, ...], body: dict[str, Any], run: Run) -> str:
    """The first refusal, or "" when the request is fine."""
    for guard in guards:
        name, _, argument = guard.partition(":")
        if name == "no_field":
            found = (
                f"{argument}: Extra inputs are not permitted (extra_forbidden)"
                if argument in body
                else ""
            )
        elif name == "min_delay":
            waited = time.monotonic() - run.answered_at >= float(argument)
            found = "" if waited else "rate limited: Retry-After was not honoured"
        else:
            found = _GUARDS[name](body["messages"], argument)
        if found:
            return found
    return ""


def _assistants(messages: Messages) -> Messages:
    return [message for message in messages if message["role"] == "assistant"]


def _calls(messages: Messages) -> list[dict[str, Any]]:
    return [call for message in messages for call in message.get("tool_calls") or []]


def _system_first(messages: Messages, _: str) -> str:
    late = any(message["role"] in ("system", "developer") for message in messages[1:])
    return "System message must be at the beginning." if late else ""


def _content_not_null(messages: Messages, _: str) -> str:
    null = any(message.get("content") is None for message in _assistants(messages))
    return "invalid message content type: <nil>" if null else ""


def _content_not_empty(messages: Messages, _: str) -> str:
    empty = any(message.get("content") == "" for message in _assistants(messages))
    return "messages: text content blocks must be non-empty" if empty else ""


def _reasoning_back(messages: Messages, wanted: str) -> str:
    calling = [message for message in _assistants(messages) if message.get("tool_calls")]
    if all(message.get("reasoning_content") == wanted for message in calling):
        return ""
    return "The `reasoning_content` in the thinking mode must be passed back to the API."


def _args_json_object(messages: Messages, _: str) -> str:
    for call in _calls(messages):
        arguments = call["function"].get("arguments")
        if not isinstance(arguments, str):
            return "messages.tool_calls.function.arguments: Input should be a valid string"
        try:
            fine = isinstance(json.loads(arguments), dict)
        except ValueError:
            fine = False
        if not fine:
            return "tool_calls[].function.arguments must be a JSON object string"
    return ""


def _two_results_differ(messages: Messages, _: str) -> str:
    results = [message["content"] for message in messages if message["role"] == "tool"]
    return "" if len(results) >= 2 and results[0] != results[1] else "two calls, two results"


def _unique_ids(messages: Messages, _: str) -> str:
    ids = [call.get("id") for call in _calls(messages)]
    fine = all(ids) and len(ids) == len(set(ids))
    return "" if fine else "Duplicate value for 'tool_call_id'"


def _paired(messages: Messages, _: str) -> str:
    open_ids: Counter[str] = Counter()
    for message in messages:
        if message["role"] == "tool":
            identity = message["tool_call_id"]
            if not open_ids[identity]:
                return f"tool_call_id '{identity}' does not match any tool call before it"
            if message["content"] is None:
                return "tool message content must be a string, got null"
            open_ids[identity] -= 1
            continue
        if +open_ids:
            break
        if message.get("tool_calls") == []:
            return "[] is too short - 'messages.tool_calls'"
        open_ids = Counter(call["id"] for call in message.get("tool_calls") or [])
    missing = ", ".join(+open_ids)
    return f"tool calls without response messages: {missing}" if missing else ""


_GUARDS: dict[str, Callable[[Messages, str], str]] = {
    "system_first": _system_first,
    "content_not_null": _content_not_null,
    "content_not_empty": _content_not_empty,
    "reasoning_back": _reasoning_back,
    "args_json_object": _args_json_object,
    "two_results_differ": _two_results_differ,
    "unique_ids": _unique_ids,
    "paired": _paired,
}
