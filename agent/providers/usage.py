"""Token counts in any of the shapes in which providers report them. Pure."""

from __future__ import annotations

from typing import Any

from agent.messages import Usage

CHARS_PER_TOKEN = 4
_MOST = 10**9
"""Tokens of one call; more is nonsense, and would be charged for."""
_LONGEST = 10
"""Digits of a count that is a string."""


def usage_of(value: dict[str, Any]) -> Usage | None:
    """The reported usage; None when it says nothing (all zero or unknown shape)."""
    read = _sub(value, "prompt_tokens_details", "input_tokens_details")
    written = _sub(value, "completion_tokens_details", "output_tokens_details")
    entered = _first(value, "prompt_tokens", "input_tokens")
    left = _first(value, "completion_tokens", "output_tokens")
    thought = _first(written, "reasoning_tokens") or _first(value, "reasoning_tokens")
    beside = _first(value, "total_tokens") - entered - left
    if not left or beside == thought:
        left += max(0, beside)  # some count reasoning in the total only
    if not (entered or left):
        return None
    cached = _first(read, "cached_tokens") or _first(
        value, "prompt_cache_hit_tokens", "cached_tokens"
    )
    return Usage(
        input_tokens=entered,
        output_tokens=left,
        reasoning_tokens=min(thought, left),
        cached_tokens=min(cached, entered),
    )


def merged(known: Usage | None, new: Usage) -> Usage:
    """Counts grow within a reply, and a later report may leave out what an earlier one had."""
    if known is None:
        return new
    return Usage(
        input_tokens=max(known.input_tokens, new.input_tokens),
        output_tokens=max(known.output_tokens, new.output_tokens),
        reasoning_tokens=max(known.reasoning_tokens, new.reasoning_tokens),
        cached_tokens=max(known.cached_tokens, new.cached_tokens),
    )


def estimated_usage(input_chars: int, output_chars: int, reasoning_chars: int) -> Usage:
    """What it was about, when the provider does not say."""
    return Usage(
        input_tokens=_tokens(input_chars),
        output_tokens=_tokens(output_chars),
        reasoning_tokens=_tokens(reasoning_chars),
        estimated=True,
    )


def _tokens(chars: int) -> int:
    return -(-chars // CHARS_PER_TOKEN)


def _sub(value: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        found = value.get(name)
        if isinstance(found, dict):
            return found
    return {}


def _first(value: dict[str, Any], *names: str) -> int:
    for name in names:
        count = value.get(name)
        if isinstance(count, str) and count.isdecimal() and len(count) < _LONGEST:
            count = int(count)
        if isinstance(count, int | float) and not isinstance(count, bool) and 0 < count < _MOST:
            return int(count)
    return 0
