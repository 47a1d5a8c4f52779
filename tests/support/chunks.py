"""Chunks as servers send them, assembled as in production, every delta checked."""

from __future__ import annotations

import itertools
import json
from typing import Any

from agent.events import AssistantDelta, Delta, ReasoningDelta, ToolCallDelta
from agent.messages import Reasoning, Reply, Text, ToolCall
from agent.providers.assembler import Assembler
from agent.providers.reading import BodyReader


def assembler(**options: Any) -> Assembler:
    numbers = itertools.count(1)
    return Assembler(3, lambda: f"b{next(numbers)}", **options)


def assemble(reads: list[bytes], **options: Any) -> tuple[list[Delta], Reply]:
    """The path of the bytes in production, without the network."""
    target = assembler(**options)
    reader = BodyReader(target)
    deltas = [delta for read in reads for delta in reader.feed(read)]
    deltas += reader.close()
    rest, reply = target.finish()
    return deltas + rest, reply


def event(value: Any) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(arguments: Any = None, name: str | None = None, **head: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {
        **head,
        "function": {key: value for key, value in function.items() if value is not None},
    }


def reply_to(*values: Any, **options: Any) -> Reply:
    """One event per value, `[DONE]` at the end, every delta checked."""
    deltas, reply = assemble([event(value) for value in values] + [event(b"[DONE]")], **options)
    check_deltas(deltas, reply)
    return reply


def calls_in(reply: Reply) -> list[ToolCall]:
    return [block for block in reply.blocks if isinstance(block, ToolCall)]


def text_of(reply: Reply) -> str:
    return "".join(block.text for block in reply.blocks if isinstance(block, Text))


def reasoning_of(reply: Reply) -> str:
    return "".join(block.text for block in reply.blocks if isinstance(block, Reasoning))


def check_deltas(deltas: list[Delta], reply: Reply) -> None:
    """The deltas of a block are gapless, short, storable, and add up to its text. Only text and
    reasoning may turn out to be something else, and then they come once more."""
    told: dict[str, str] = {}
    for delta in deltas:
        assert delta.step == 3
        assert 0 < len(delta.delta) <= 512
        assert delta.offset == len(told.get(delta.block_id, ""))
        delta.delta.encode()
        assert "\x00" not in delta.delta
        told[delta.block_id] = told.get(delta.block_id, "") + delta.delta
    for block in reply.blocks:
        if isinstance(block, Text | Reasoning):
            assert told.pop(block.block_id) == block.text
        else:
            raw = told.pop(block.block_id, "")
            assert block.arguments is not None or raw.startswith(block.raw_arguments)
            assert (block.arguments is None) == bool(block.problem)
    kept = {type(delta) for delta in deltas if delta.block_id not in told}
    again = {type(delta) for delta in deltas if delta.block_id in told}
    assert ToolCallDelta not in again
    assert not again or kept & {AssistantDelta, ReasoningDelta}
    assert [call.index for call in calls_in(reply)] == list(range(len(calls_in(reply))))


A, B = '{"path":"a"}', '{"path":"b"}'

PA, PB = {"path": "a"}, {"path": "b"}
