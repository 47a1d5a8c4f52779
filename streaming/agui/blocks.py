"""The pieces of a model's reply, each as the three events that open, extend and close it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Out = dict[str, Any]
Payload = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of block."""

    key: str
    """What AG-UI calls its id."""
    begins: tuple[str, ...]
    grows: str
    ends: tuple[str, ...]
    fixed: tuple[tuple[str, str], ...] = ()
    """Fields of the last event that begins it."""

    def begin(self, block_id: str, payload: Payload) -> Iterator[Out]:
        for type_ in self.begins[:-1]:
            yield {"type": type_, self.key: block_id}
        named = {"toolCallName": payload["name"]} if self is CALL else {}
        yield {"type": self.begins[-1], self.key: block_id, **dict(self.fixed), **named}

    def grow(self, block_id: str, text: str) -> Out:
        return {"type": self.grows, self.key: block_id, "delta": text}

    def end(self, block_id: str) -> Iterator[Out]:
        for type_ in self.ends:
            yield {"type": type_, self.key: block_id}


TEXT = Kind(
    key="messageId",
    begins=("TEXT_MESSAGE_START",),
    grows="TEXT_MESSAGE_CONTENT",
    ends=("TEXT_MESSAGE_END",),
    fixed=(("role", "assistant"),),
)
REASONING = Kind(
    key="messageId",
    begins=("REASONING_START", "REASONING_MESSAGE_START"),
    grows="REASONING_MESSAGE_CONTENT",
    ends=("REASONING_MESSAGE_END", "REASONING_END"),
    fixed=(("role", "reasoning"),),
)
CALL = Kind(
    key="toolCallId",
    begins=("TOOL_CALL_START",),
    grows="TOOL_CALL_ARGS",
    ends=("TOOL_CALL_END",),
)
KINDS = {"text": TEXT, "reasoning": REASONING, "tool_call": CALL}


def result(call_id: str, content: str, about: Mapping[str, Any]) -> Out:
    """What a call came to: a message of its own."""
    return {
        "type": "TOOL_CALL_RESULT",
        "messageId": f"{call_id}:result",
        "toolCallId": call_id,
        "role": "tool",
        "content": content,
        "metadata": {"pilothouse": about},
    }
