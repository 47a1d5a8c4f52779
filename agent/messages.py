"""The conversation as a provider needs it: messages and their blocks. Pure values.

Nothing here is stored. A transcript folds events into these; a provider turns these into its own
request format. `provider_data` is opaque: it came from a provider and only goes back to one.

A message never changes, so what every step asks about the whole history (how large it is, how it
reads with its marks) is found out once for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from agent.text import mark_untrusted, size_of_text

OVERHEAD = 80
"""Bytes around a message, or a call, on the wire."""


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """What the assistant says."""

    block_id: str
    text: str
    provider_data: Any = None

    @property
    def size(self) -> int:
        return size_of_text(self.text)


class Reasoning(msgspec.Struct, frozen=True, kw_only=True):
    """What the assistant thought; never part of the answer."""

    block_id: str
    text: str
    provider_data: Any = None

    @property
    def size(self) -> int:
        """It is seldom sent back, but where it is, it counts."""
        return size_of_text(self.text) // 4


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call as the model asked for it."""

    block_id: str
    tool_call_id: str
    """Unique in the session. Inside a provider's reply: the provider's own id, perhaps empty."""
    index: int
    """Its place among the calls of the reply: 0, 1, 2 …"""
    name: str
    arguments: dict[str, Any] | None
    """None when the model sent something that is not a JSON object: never executed."""
    raw_arguments: str = ""
    """What the model sent instead, when `arguments` is None."""
    problem: str = ""
    """Why `arguments` is None, in words for the model."""
    provider_data: Any = None

    @property
    def size(self) -> int:
        return OVERHEAD + len(self.name) + size_of_text(str(self.arguments))


Block = Text | Reasoning | ToolCall


class UserMessage(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    text: str

    @cached_property
    def size(self) -> int:
        """Bytes on the wire, about."""
        return OVERHEAD + size_of_text(self.text)


class AssistantMessage(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    blocks: tuple[Block, ...]
    model: str = ""
    """Which one wrote it; "" is the one that is asked."""

    @cached_property
    def size(self) -> int:
        """Bytes on the wire, about."""
        return OVERHEAD + sum([block.size for block in self.blocks])

    @cached_property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple([block for block in self.blocks if isinstance(block, ToolCall)])

    @cached_property
    def text(self) -> str:
        return "".join([block.text for block in self.blocks if isinstance(block, Text)])


class ToolMessage(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The result of one call. Every call of an assistant message is followed by exactly one."""

    tool_call_id: str
    name: str
    content: str
    from_person: bool = False
    """A person's own words: they are not data from outside."""

    @cached_property
    def size(self) -> int:
        """Bytes on the wire, about."""
        return OVERHEAD + size_of_text(self.content)

    @cached_property
    def marked(self) -> ToolMessage:
        """The same with its content marked as data."""
        if self.from_person:
            return self
        content = mark_untrusted(self.content, self.name)
        return msgspec.structs.replace(self, content=content)


Message = UserMessage | AssistantMessage | ToolMessage


@dataclass(frozen=True, kw_only=True, eq=False)
class ToolDefinition:
    """What the model is told about a tool. Equal is only the same one: it is looked up by that."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of the arguments object."""


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one model call."""

    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    """Part of `output_tokens`."""
    cached_tokens: int = 0
    """Part of `input_tokens`."""
    estimated: bool = False
    """The provider did not say; we counted characters."""

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A complete model reply. Blocks stand in the order in which they were opened."""

    blocks: tuple[Block, ...]
    finish_reason: str
    usage: Usage
