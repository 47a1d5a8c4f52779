"""Stream payloads -> deltas, and at the end one `Reply`. Pure: no I/O, no clock.

1. Text and reasoning are one block each, however they interleave; every call is a block.
2. What arrives in one network read is one delta per block (cut to 512 characters).
3. Every text is cleaned, and rid of our key, as it passes, so the deltas of a block add up to its
   text exactly. A surrogate pair cut in two by JSON chunks is joined first, and so is a key: what
   may still become one is held back, nothing else.
4. An end is `[DONE]` or a finish reason. Anything else is a reply that broke off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from agent.errors import ProviderIncomplete, ProviderRefused
from agent.events import MAX_DELTA_CHARS, AssistantDelta, Delta, ReasoningDelta, ToolCallDelta
from agent.messages import Block, Reasoning, Reply, Text, Usage
from agent.providers.calls import CallTable, OpenCall, finished, scrubbed
from agent.providers.chunks import Call, Choice, Chunk, Part, decode, of_object
from agent.providers.failures import failure, failure_of, is_error, tidy
from agent.providers.scrub import Scrubber
from agent.providers.thinking import ReasoningDetails, ThinkSplitter
from agent.providers.usage import estimated_usage, usage_of
from agent.text import clean

NO_KEY = Scrubber()
MAX_REPLY_CHARS = 4 * 1024 * 1024
_MAX_COMPARED = 64 * 1024
_LENGTH = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
_NO_REASON = frozenset({"", "null", "none"})


class _Stream:
    """The text of one block on its way out."""

    def __init__(self, delta: Callable[[int, str], Delta], scrub: Scrubber) -> None:
        self._delta = delta
        self._scrub = scrub or None
        self._pending: list[str] = []
        self._sent: list[str] = []
        self._offset = 0

    @property
    def text(self) -> str:
        return "".join(self._sent)

    def add(self, piece: str) -> None:
        self._pending.append(piece)

    def drain(self, *, final: bool = False) -> Iterable[Delta]:
        text = "".join(self._pending)
        self._pending.clear()
        if not text:
            return
        if self._scrub is not None:
            text = self._scrub.exact(text)
        if not final and (kept := self._undecided(text)):
            self._pending.append(text[-kept:])
            text = text[:-kept]
        text = clean(text)
        for start in range(0, len(text), MAX_DELTA_CHARS):
            piece = text[start : start + MAX_DELTA_CHARS]
            self._sent.append(piece)
            yield self._delta(self._offset, piece)
            self._offset += len(piece)

    def _undecided(self, text: str) -> int:
        """How much of the end may mean something else with the next read."""
        if "\ud800" <= text[-1] <= "\udbff":
            return 1
        return 0 if self._scrub is None else self._scrub.undecided(text)


class Assembler:
    """Put together one reply. Raises ProviderError, and nothing else, whatever it is fed."""

    def __init__(
        self,
        step: int,
        new_block_id: Callable[[], str],
        *,
        input_chars: int = 0,
        think_open: bool = False,
        scrub: Scrubber = NO_KEY,
    ) -> None:
        self._step = step
        self._new_block_id = new_block_id
        self._input_chars = input_chars
        self._scrub = scrub
        self._thinking = ThinkSplitter(inside=think_open)
        self._calls = CallTable(new_block_id)
        self._streams: dict[str, _Stream] = {}
        """Every block by its id, in the order in which they were opened."""
        self._dirty: dict[str, _Stream] = {}
        self._text_id = ""
        self._reasoning_id = ""
        self._details = ReasoningDetails()
        self._streamed = False
        """Whether a `delta` said something: a `message` then only repeats it."""
        self._said = ""
        self._chars = 0
        self._usage: Usage | None = None
        self._ignored = b""
        self.finish_reason = ""
        self.done = False
        """Whether `[DONE]` was seen: what follows does not count."""

    @property
    def ended(self) -> bool:
        """Whether the reply may end here."""
        return self.done or bool(self.finish_reason)

    def feed(self, payloads: Iterable[bytes]) -> list[Delta]:
        """Take the payloads of one network read."""
        for payload in payloads:
            if self.done:
                break
            chunk = decode(payload)
            if chunk is not None:
                self._chunk(chunk)
            elif payload.strip().upper() in (b"[DONE]", b"DONE"):
                self.done = True
            else:
                self._ignored = self._ignored or payload[:200]
        return self._drain()

    def feed_body(self, body: dict[str, Any]) -> list[Delta]:
        """Take a whole reply that was not streamed."""
        self._chunk(of_object(body))
        self.done = self.done or bool(body.get("choices"))
        return self._drain()

    def finish(self) -> tuple[list[Delta], Reply]:
        """(the last deltas, the reply). Raises ProviderIncomplete when the end is missing."""
        if not self.ended:
            raise self._broken_off()
        self._route(self._thinking.close())
        rest = self._drain(final=True)
        blocks = tuple(self._block(block_id) for block_id in self._streams)
        reason = self.finish_reason or ("tool_calls" if self._calls.calls else "stop")
        return rest, Reply(
            blocks=blocks, finish_reason=reason, usage=self._usage or self._estimate()
        )

    # ── taking chunks apart ───────────────────────────────────────────────────────────────────

    def _chunk(self, chunk: Chunk) -> None:
        if chunk.error:
            raise failure_of({"error": chunk.error})
        if chunk.other is not None and is_error(chunk.other):
            raise failure_of(chunk.other)
        if chunk.usage:
            self._usage = usage_of(chunk.usage) or self._usage
        for choice in chunk.choices or ():
            if not choice.index:  # we never ask for a second choice; some servers send one
                self._choice(choice)

    def _choice(self, choice: Choice) -> None:
        if choice.error:
            raise failure_of({"error": choice.error})
        if choice.delta is not None:
            self._part(choice.delta)
            self._streamed = self._streamed or bool(self._streams)
        if choice.message is not None:
            self._message(choice.message)
        if choice.text:
            self._answer(choice.text)
        if choice.usage:
            self._usage = usage_of(choice.usage) or self._usage
        if choice.finish_reason:
            self._reason(choice.finish_reason)

    def _reason(self, reason: str) -> None:
        reason = self._scrub.exact(tidy(reason))[:40]
        if reason.lower() in _NO_REASON or self.finish_reason == "length":
            return
        if reason.lower() == "error":
            raise failure("the reply ended with an error")
        self.finish_reason = "length" if reason.lower() in _LENGTH else reason

    def _part(self, part: Part) -> None:
        thought = part.reasoning_content or part.reasoning or part.thinking or part.reasoning_text
        if part.reasoning_details:
            told = self._details.add(part.reasoning_details)
            thought = thought or told
        if thought:
            self._route([(True, thought)])
        if part.content:
            self._answer(part.content)
        if part.refusal:
            self._answer(part.refusal)
        if part.tool_calls:
            for entry in part.tool_calls:
                self._call(entry)
        elif part.function_call is not None:
            self._call(Call(index=-1, function=part.function_call))

    def _message(self, whole: Part) -> None:
        """A whole message: the reply itself, or a repetition of what was streamed before."""
        if self._streamed:
            if not self._calls.calls:
                self._part(Part(tool_calls=whole.tool_calls, function_call=whole.function_call))
            if not self._text_id and whole.content:
                self._answer(whole.content)
            return
        whole.content = self._unsaid(whole.content or "")
        self._part(whole)

    def _unsaid(self, content: str) -> str:
        """Messages that grow from chunk to chunk repeat their beginning."""
        if self._said and content.startswith(self._said):
            content = content[len(self._said) :]
        if len(self._said) < _MAX_COMPARED:
            self._said += content
        return content

    def _answer(self, piece: str) -> None:
        if self._thinking.done:
            self._route(((False, piece),))
        else:
            self._route(self._thinking.feed(piece))

    def _route(self, pieces: Iterable[tuple[bool, str]]) -> None:
        for is_reasoning, piece in pieces:
            if is_reasoning:
                self._reasoning_id = self._reasoning_id or self._open(ReasoningDelta)
                self._write(self._reasoning_id, piece)
            else:
                self._text_id = self._text_id or self._open(AssistantDelta)
                self._write(self._text_id, piece)

    def _call(self, entry: Call) -> None:
        known = len(self._calls.calls)
        placed = self._calls.add(entry)
        if placed is None:
            return
        call, new = placed
        if len(self._calls.calls) > known:
            self._streams[call.block_id] = _Stream(self._call_delta(call), self._scrub)
        if new:
            self._write(call.block_id, new)

    # ── putting blocks together ───────────────────────────────────────────────────────────────

    def _open(self, kind: type[AssistantDelta | ReasoningDelta]) -> str:
        block_id = self._new_block_id()

        def delta(offset: int, piece: str) -> Delta:
            return kind(step=self._step, block_id=block_id, offset=offset, delta=piece)

        self._streams[block_id] = _Stream(delta, self._scrub)
        return block_id

    def _call_delta(self, call: OpenCall) -> Callable[[int, str], Delta]:
        def delta(offset: int, piece: str) -> Delta:
            return ToolCallDelta(
                step=self._step,
                block_id=call.block_id,
                index=call.position,
                name=self._scrub.exact(call.name),
                offset=offset,
                delta=piece,
            )

        return delta

    def _write(self, block_id: str, piece: str) -> None:
        self._chars += len(piece)
        if self._chars > MAX_REPLY_CHARS:
            raise ProviderRefused(
                f"The model's reply is longer than {MAX_REPLY_CHARS:,} characters.",
                code="reply_too_large",
            )
        stream = self._streams[block_id]
        stream.add(piece)
        self._dirty[block_id] = stream

    def _drain(self, *, final: bool = False) -> list[Delta]:
        streams = self._streams if final else self._dirty
        deltas = [delta for stream in streams.values() for delta in stream.drain(final=final)]
        self._dirty.clear()
        return deltas

    def _block(self, block_id: str) -> Block:
        text = self._streams[block_id].text
        if block_id == self._text_id:
            return Text(block_id=block_id, text=text)
        if block_id == self._reasoning_id:
            opaque = scrubbed(self._details.opaque(), self._scrub)
            return Reasoning(block_id=block_id, text=text, provider_data=opaque)
        calls = self._calls.calls
        call = next(call for call in calls if call.block_id == block_id)
        cut_off = self.finish_reason == "length" and call is calls[-1]
        return finished(call, text, cut_off=cut_off, scrub=self._scrub)

    def _estimate(self) -> Usage:
        thought = len(self._streams[self._reasoning_id].text) if self._reasoning_id else 0
        return estimated_usage(self._input_chars, self._chars, thought)

    def _broken_off(self) -> ProviderIncomplete:
        if self._streams:
            message = "The model's reply broke off before its end."
        elif self._ignored:
            said = tidy(self._ignored.decode("utf-8", "replace"))
            message = f"The model's server sent no reply, only: {said}"
        else:
            message = "The model's server closed the connection without a reply."
        return ProviderIncomplete(message, code="provider_incomplete")
