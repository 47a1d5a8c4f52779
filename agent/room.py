"""How much history fits into what a model can read, as far as is known.

Known is the context size of its profile, how many bytes of this conversation make a token, and what
the server has refused as too long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from agent.context import Meter, shortened, size
from agent.messages import Message, Usage
from agent.providers import Model

MAX_REPLY_TOKENS = 8192
"""Kept free for the reply, or a quarter of what the model can read if that is less."""
LEAST_BUDGET = 2000
"""Bytes; below this no conversation is possible, and the server may say so itself."""
AFTER_OVERFLOW = 0.6


class Room:
    """How much history fits into what the model can read."""

    def __init__(self, fixed: int) -> None:
        self._fixed = fixed
        """Bytes of what every request begins with: the system prompt and the tools' definitions."""
        self._meter = Meter()
        self._most: float = math.inf
        """Bytes of a request that a server found too long, less a good part of them."""
        self._sent = 0
        self._overflows = 0
        self._short = False
        self._hopeless = False

    def begin_step(self) -> None:
        self._overflows = 0

    def budget(self, model: Model) -> int:
        """Bytes for the history, with room left for the reply."""
        reply = min(MAX_REPLY_TOKENS, model.context_tokens // 4)
        whole = (model.context_tokens - reply) * self._meter.bytes_per_token
        return max(LEAST_BUDGET, int(min(whole, self._most)) - self._fixed)

    def is_short(self, history: Sequence[Message], budget: int) -> bool:
        """Whether leaving out old results is not enough, or has just proved not to be."""
        if self._hopeless:
            return False
        if self._short or size(history) <= budget:
            return self._short
        return size(shortened(history, budget)) > budget

    def sending(self, history: Sequence[Message]) -> None:
        self._sent = self._fixed + size(history)

    def learn(self, usage: Usage) -> None:
        self._short = False
        self._meter.learn(self._sent, usage)

    def overflowed(self) -> bool:
        """The server could not read that much: whether another try makes sense."""
        self._overflows += 1
        self._short = True
        self._most = min(self._most, self._sent * AFTER_OVERFLOW)
        return self._overflows == 1

    def give_up(self) -> None:
        """The model would not summarize; it is not asked for that again in this run."""
        self._hopeless = True
