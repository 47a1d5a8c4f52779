"""The seam to models: one request in, deltas out, exactly one reply at the end.

A provider makes one attempt and says with typed errors how it failed; trying again is the loop's
business, because every attempt is an event that people see.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agent.events import Delta
from agent.messages import Message, Reply, ToolDefinition, Usage


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """Everything that a model call depends on."""

    system: str
    """The one system message; always first."""
    messages: Sequence[Message]
    tools: Sequence[ToolDefinition]
    step: int
    """Written into every delta."""
    new_block_id: Callable[[], str] = field(repr=False)
    """Block ids are ours, not the provider's."""


class Provider(Protocol):
    """A model that can be asked."""

    model: str
    """Its name, as shown to people."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Ask once. Yields deltas as they arrive (each at most 512 characters, offsets counted in
        code points from 0 per block), then exactly one `Reply` whose blocks carry the same block
        ids and whose texts are the sums of their deltas.

        Raises `ProviderError` for every failure of the other side: never an HTTP, JSON or Unicode
        error, never with a key in its message. Closing the generator closes the connection.
        """
        ...

    async def aclose(self) -> None:
        """Let go of what this provider alone holds."""
        ...


@dataclass(frozen=True, kw_only=True)
class Prices:
    """What a million tokens cost."""

    input: float
    output: float
    cached: float | None = None
    """Of input that the provider had cached; None: as other input."""

    def cost(self, usage: Usage) -> float:
        fresh = max(0, usage.input_tokens - usage.cached_tokens)
        cached = self.input if self.cached is None else self.cached
        paid = fresh * self.input + usage.cached_tokens * cached + usage.output_tokens * self.output
        return paid / 1_000_000


CONTEXT_TOKENS = 100_000
"""What a model is taken to read when nobody said."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """A provider and what a run must know of its model besides."""

    provider: Provider
    prices: Prices | None = None
    """None: unknown, and nothing is counted."""
    context_tokens: int = CONTEXT_TOKENS
