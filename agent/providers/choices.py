"""Which of a stream's choices is the reply. Pure.

We never ask for a second one. Some servers send it all the same, some count their chunks where a
choice has its number, and some put the words of a reply into one choice and its calls into the next.
"""

from __future__ import annotations

from agent.providers.calls import MAX_CALLS
from agent.providers.chunks import Call, Choice, Chunk
from agent.providers.failures import FILTER

_LENGTH = frozenset(
    (
        *("length", "max_tokens", "max_output_tokens", "model_length", "token_limit"),
        *("max_completion_tokens", "model_context_window_exceeded"),
    )
)
_NO_REASON = frozenset({"", "null", "none"})
_BROKEN = frozenset(
    (
        *("error", "server_error", "network_error", "insufficient_system_resource"),
        *("abort", "aborted", "cancelled", "canceled", "timeout"),
    )
)
"""The server stopped in the middle: what came until then is no answer."""
_BAD_CALL = ("malformed_function_call", "unexpected_tool_call")
"""What the model wrote as a call was none, whatever of it came; some write more around the word."""


def finish_reason_of(said: str) -> str:
    """In one word for what has many: length, content_filter, error; "" for what is no reason."""
    lower = said.lower()
    if lower in _NO_REASON:
        return ""
    if lower in _LENGTH:
        return "length"
    if lower in FILTER:
        return "content_filter"
    bad_call = any(word in lower for word in _BAD_CALL)
    return "error" if bad_call or lower in _BROKEN else said


class Choices:
    """Feed it chunks, get the choices that are the reply's."""

    def __init__(self) -> None:
        self.calls_beside: list[Call] = []
        """What other choices call; the reply's, if it calls nothing itself."""
        self._index: int | None = None
        """Of the choice that is ours."""
        self._counting = True
        """Whether the numbers may still turn out to be those of chunks."""

    def certain(self, chunk: Chunk) -> bool:
        """Whether another chunk with the same number is the reply's, and changes nothing here."""
        index = chunk.choices[0].index if chunk.choices else None
        return index is None or (index == self._index and not self._counting)

    def ours(self, chunk: Chunk) -> list[Choice]:
        found: list[Choice] = []
        for choice in chunk.choices or ():
            if choice.index == self._index:
                self._counting = False
                found.append(choice)
            elif self._is_ours(choice, chunk):
                found.append(choice)
            else:
                self._beside(choice)
        return found

    def _is_ours(self, choice: Choice, chunk: Chunk) -> bool:
        if choice.index is None:
            return True
        counted = self._counting and chunk.choices == [choice] and choice.index - 1 == self._index
        if self._index is None or counted:
            self._index = choice.index
            return True
        return False

    def _beside(self, choice: Choice) -> None:
        part = choice.delta or choice.message
        if part is not None and len(self.calls_beside) < MAX_CALLS:
            self.calls_beside += part.tool_calls or ()
