"""What the model sees this step: a history within what it can read. Pure.

Sizes are bytes of UTF-8, which follow tokens in every script better than characters do; a `Meter`
learns how many make a token from what the provider reports.

When the history outgrows its budget, old results of tools give way first: they can be read again,
the conversation cannot. What gives way is chosen in coarse steps, so that the beginning of the
history stays the same for some time and providers can cache it. If that is not enough the caller
summarizes (`agent.compaction`), and only where that is impossible requests and replies are left
out, the oldest first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import attrgetter

import msgspec

from agent.messages import AssistantMessage, Message, ToolMessage, Usage, UserMessage
from agent.text import size_of_text

HISTORY_BYTES = 400_000
"""About 100,000 tokens."""
BYTES_PER_TOKEN = 4.0
LEFT_OUT = "[Left out to save room. Call the tool again if it is needed.]"
HEAD_CHARS = 400
"""Of an old result, this much stays at first."""
KEPT_WHOLE = 4
"""The newest results stay as long as anything else can give way."""
KEPT_REPLIES = 2
"""So many of the newest replies are never left out."""
SLACK, STEP = 0.75, 0.25
"""Over budget, the history is brought down to this share of it, in steps of that share."""


class Meter:
    """How many bytes make a token with this model and this text."""

    def __init__(self) -> None:
        self.bytes_per_token = BYTES_PER_TOKEN

    def learn(self, sent: int, usage: Usage) -> None:
        """From a request of `sent` bytes. What the provider did not count teaches nothing."""
        if usage.estimated or usage.input_tokens < 100:
            return
        ratio = min(8.0, max(1.0, sent / usage.input_tokens))
        self.bytes_per_token += (ratio - self.bytes_per_token) / 2


def fit(history: Sequence[Message], budget: int = HISTORY_BYTES) -> list[Message]:
    """The history with tool results marked as data, within about `budget` bytes where possible."""
    if size(history) <= budget:
        return _marked(history)
    messages = shortened(history, budget)
    for give_way in (_without_old_requests, _without_old_replies, _with_cut_results):
        if size(messages) <= budget:
            break
        messages = give_way(messages, budget)
    return _marked(messages)


def shortened(history: Sequence[Message], budget: int) -> list[Message]:
    """The first way to make room: old results to their heads, then to a note."""
    messages = list(history)
    results = [i for i, message in enumerate(messages) if isinstance(message, ToolMessage)]
    for shorten in (_head, _note):
        excess = size(messages) - budget
        if excess <= 0:
            break
        step = max(1, budget * STEP)
        excess = round(math.ceil((excess + budget * (1 - SLACK)) / step) * step)
        _shorten(messages, results[:-KEPT_WHOLE], excess, shorten)
    return messages


def size(messages: Sequence[Message]) -> int:
    return sum(map(_size, messages))


_size: Callable[[Message], int] = attrgetter("size")


# ── giving way ────────────────────────────────────────────────────────────────────────────────


def _shorten(
    messages: list[Message], places: Sequence[int], excess: int, shorten: Callable[[str], str]
) -> None:
    for place in places:
        if excess <= 0:
            return
        message = messages[place]
        if isinstance(message, ToolMessage):
            content = shorten(message.content)
            excess -= size_of_text(message.content) - size_of_text(content)
            messages[place] = msgspec.structs.replace(message, content=content)


def _head(content: str) -> str:
    if len(content) <= HEAD_CHARS + len(LEFT_OUT):
        return content
    return f"{content[:HEAD_CHARS]}\n{LEFT_OUT}"


def _note(content: str) -> str:
    return LEFT_OUT if len(content) > len(LEFT_OUT) else content


def _without_old_requests(messages: list[Message], budget: int) -> list[Message]:
    """Drop whole requests from the front, never the newest one: a reply and its results stay
    together, so the history stays valid."""
    excess = size(messages) - budget
    starts = [i for i, message in enumerate(messages) if isinstance(message, UserMessage)]
    first = 0
    for start in starts[1:]:
        if excess <= 0:
            break
        excess -= size(messages[first:start])
        first = start
    return messages[first:]


def _without_old_replies(messages: list[Message], budget: int) -> list[Message]:
    """Drop replies with their results behind the newest words of a person, the oldest first."""
    last = max((i for i, each in enumerate(messages) if isinstance(each, UserMessage)), default=-1)
    starts = [
        i
        for i, message in enumerate(messages)
        if i > last and isinstance(message, AssistantMessage)
    ]
    excess = size(messages) - budget
    first = last + 1
    for start in starts[1 : max(1, len(starts) - KEPT_REPLIES + 1)]:
        if excess <= 0:
            break
        excess -= size(messages[first:start])
        first = start
    return [*messages[: last + 1], *messages[first:]]


def _with_cut_results(messages: list[Message], budget: int) -> list[Message]:
    """The last resort: every result is cut, as little as it takes."""
    limit = 64 * 1024
    while size(messages) > budget and limit >= 256:
        messages = [_cut_result(message, limit) for message in messages]
        limit //= 2
    return messages


def _cut_result(message: Message, limit: int) -> Message:
    if not isinstance(message, ToolMessage) or len(message.content) <= limit:
        return message
    return msgspec.structs.replace(message, content=f"{message.content[:limit]}\n{LEFT_OUT}")


def _marked(messages: Sequence[Message]) -> list[Message]:
    return [each.marked if isinstance(each, ToolMessage) else each for each in messages]
