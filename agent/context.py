"""What the model sees this step: one system message and a history that fits.

Results of tools are marked as data. When the history outgrows its budget, the oldest results give
way first: they can be read again, the conversation cannot.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agent.messages import AssistantMessage, Message, ToolMessage, UserMessage
from agent.text import mark_untrusted

HISTORY_CHARS = 400_000
"""About 100,000 tokens."""
LEFT_OUT = "[Left out to save room. Call the tool again if it is needed.]"
KEPT_WHOLE = 4
"""The newest results are never left out."""


def fit(history: Sequence[Message], budget: int = HISTORY_CHARS) -> list[Message]:
    """The history with tool results marked, within about `budget` characters where possible."""
    messages = [_marked(message) for message in history]
    results = [i for i, message in enumerate(messages) if isinstance(message, ToolMessage)]
    excess = sum(map(_size, messages)) - budget
    for index in results[:-KEPT_WHOLE] if excess > 0 else []:
        message = messages[index]
        if isinstance(message, ToolMessage) and len(message.content) > len(LEFT_OUT):
            excess -= len(message.content) - len(LEFT_OUT)
            messages[index] = msgspec.structs.replace(message, content=LEFT_OUT)
        if excess <= 0:
            break
    return _without_oldest(messages, excess)


def _without_oldest(messages: list[Message], excess: int) -> list[Message]:
    """Drop whole requests from the front, never the newest one: a reply and its results stay
    together, so the history stays valid."""
    starts = [i for i, message in enumerate(messages) if isinstance(message, UserMessage)]
    first = 0
    for start in starts[1:]:
        if excess <= 0:
            break
        excess -= sum(map(_size, messages[first:start]))
        first = start
    return messages[first:]


def _marked(message: Message) -> Message:
    if isinstance(message, ToolMessage):
        marked = mark_untrusted(message.content, message.name)
        return msgspec.structs.replace(message, content=marked)
    return message


def _size(message: Message) -> int:
    if isinstance(message, AssistantMessage):
        return sum(len(str(getattr(block, "text", ""))) for block in message.blocks) + sum(
            len(str(call.arguments)) for call in message.calls
        )
    return len(message.content if isinstance(message, ToolMessage) else message.text)
