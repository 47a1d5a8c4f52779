"""Stream payloads -> deltas, and at the end one `Reply`. Pure: no I/O, no clock.

1. Text and reasoning are one block each, however they interleave; every call is a block.
2. What arrives in one network read is one delta per block (cut to 512 characters).
3. Every text is cleaned, and rid of our key, as it passes, so the deltas of a block add up to its
   text exactly. A surrogate pair cut in two by JSON chunks is joined first, and so is a key: what
   may still become one is held back, nothing else.
4. An end is `[DONE]` or a finish reason, or else usage alone as the last word: it is counted when
   all is said. Anything else is a reply that broke off.
5. Where only the end shows that text was reasoning, or the reverse, the blocks are written anew
   under new ids; the ones that were streamed have no part in the reply and never happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from agent.errors import ProviderIncomplete, ProviderRefused
from agent.events import AssistantDelta, Delta, ReasoningDelta
from agent.messages import Block, Reasoning, Reply, Text, Usage
from agent.providers.calls import CUT_OFF, FILTERED, CallTable, finished, scrubbed
from agent.providers.choices import Choices, finish_reason_of
from agent.providers.chunks import Alike, Call, Choice, Chunk, Part, decode, of_object
from agent.providers.failures import broken_off, failure, failure_of, is_error, tidy
from agent.providers.growth import ENOUGH, Growth
from agent.providers.outgoing import Outgoing
from agent.providers.thinking import ReasoningDetails, ThinkSplitter, between, lone_end
from agent.providers.usage import estimated_usage, merged, usage_of
from agent.scrub import Scrubber

NO_KEY = Scrubber()
MAX_REPLY_CHARS = 4 * 1024 * 1024
HEAD_BYTES = 200
"""Of what is no reply, so much is told."""
_MAX_COMPARED = 64 * 1024


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
        tools: frozenset[str] = frozenset(),
    ) -> None:
        self._step = step
        self._new_block_id = new_block_id
        self._input_chars = input_chars
        self._scrub = scrub
        self._think_open = think_open
        self._thinking = ThinkSplitter(inside=think_open)
        self._growing = Growth(), Growth()
        """Of the answer and of the reasoning."""
        self._calls = CallTable(new_block_id, tools)
        self._streams: dict[str, Outgoing] = {}
        """Every block by its id, in the order in which they were opened."""
        self._dirty: dict[str, Outgoing] = {}
        self._text_id = ""
        self._reasoning_id = ""
        self._mirrored = 0
        """Characters of reasoning that the same delta had as answer, too."""
        self._details = ReasoningDetails()
        self._streamed = False
        """Whether a `delta` said something: a `message` then only repeats it."""
        self._said = ""
        self._chars = 0
        self._usage: Usage | None = None
        self._choices = Choices()
        self._alike = Alike()
        self._head = self._ignored = b""
        self.ended_unopened = False
        """Whether the reply ended a reasoning that nothing had opened."""
        self.finish_reason = ""
        self.done = False
        """Whether `[DONE]` was seen: what follows does not count."""
        self._summed_up = False
        """Whether the last chunk had nothing but what the reply cost."""

    @property
    def ended(self) -> bool:
        """Whether the reply may end here."""
        return self.done or bool(self.finish_reason)

    @property
    def settled(self) -> bool:
        """Whether nothing but its tail can follow. A finish reason before any word is none: some
        servers write it into the first chunk."""
        return self.done or bool(self.finish_reason and self._streams)

    @property
    def progress(self) -> int:
        """Grows with the reply."""
        return self._chars

    def begins(self, body: bytes) -> None:
        """The beginning of the body: all there is to tell when nothing in it is a reply."""
        self._head = (self._head + body[:HEAD_BYTES])[:HEAD_BYTES]

    def feed(self, payloads: Iterable[bytes]) -> list[Delta]:
        """Take the payloads of one network read, or the last of them."""
        self.take(payloads)
        return self._drain()

    def take(self, payloads: Iterable[bytes]) -> None:
        """Take some of those of one read; what they say comes with the last ones."""
        waiting = list(payloads)
        at = 0
        while at < len(waiting):
            if self._alike.head:
                texts = self._alike.texts(waiting, at)
                self._texts(texts)
                at += len(texts)
            if at < len(waiting):
                self._payload(waiting[at])
                at += 1

    def take_alike(self, events: bytes) -> bytes:
        """The same for the events at the beginning that do nothing but add to the answer. Gives those
        of which only their payloads tell."""
        if not (self._growing[0].plain and self._thinking.done):
            return events
        text, size = self._alike.at_once(events)
        self._say(text)
        return events[size:]

    def _texts(self, texts: list[str]) -> None:
        """Pieces of the answer that came one after the other, with nothing else."""
        answers = self._growing[0]
        for at, text in enumerate(texts):
            if answers.plain and self._thinking.done:
                self._say("".join(texts[at:]))
                return
            if text:
                self._answer(text if answers.plain else answers.feed(text))

    def _payload(self, payload: bytes) -> None:
        if self.done:
            self._late(payload)
            return
        chunk = decode(payload)
        if chunk is not None:
            self._chunk(chunk)
            known = self._streamed and self._choices.certain(chunk)
            self._alike.learn(payload, chunk if known else None)
            if not chunk.choices:
                self._ignored = payload[:HEAD_BYTES]
        elif payload.strip(b' "\t').upper() in (b"[DONE]", b"DONE"):
            self.done = True
            self._alike.learn(payload, None)
        else:
            self._other(payload)

    def _late(self, payload: bytes) -> None:
        """Behind `[DONE]` only usage counts."""
        with suppress(ProviderIncomplete):
            chunk = decode(payload)
            if chunk is not None and chunk.usage:
                self._used(chunk.usage)

    def _other(self, payload: bytes) -> None:
        """Text instead of a chunk: a sign of life, or how the server says that it failed."""
        said = payload[:2000].decode("utf-8", "replace")
        if said.lstrip("[ ").lower().startswith("error"):
            raise failure(tidy(said))
        self._ignored = payload[:HEAD_BYTES]

    def feed_body(self, body: dict[str, Any]) -> list[Delta]:
        """Take a whole reply that was not streamed."""
        self._chunk(of_object(body))
        self.done = self.done or bool(body.get("choices"))
        return self._drain()

    def finish(self) -> tuple[list[Delta], Reply]:
        """(the last deltas, the reply). Raises ProviderIncomplete when the end is missing."""
        if not (self.ended or self._summed_up):
            raise broken_off(begun=bool(self._streams), told=self._ignored or self._head)
        for growing, take in zip(self._growing, (self._answer, self._thought), strict=True):
            take(growing.close())
        self._route(self._thinking.close())
        for entry in () if self._calls.calls else self._choices.calls_beside:
            self._call(entry)
        rest = [*self._drain(final=True), *self._told_apart()]
        blocks = tuple([self._block(block_id) for block_id in self._streams])
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
        self._summed_up = False
        if chunk.usage:
            self._used(chunk.usage)
            self._summed_up = not chunk.choices and bool(self._streams)
        for choice in self._choices.ours(chunk):
            self._choice(choice)

    def _used(self, usage: dict[str, Any]) -> None:
        found = usage_of(usage)
        if found is not None:
            self._usage = merged(self._usage, found)

    def _choice(self, choice: Choice) -> None:
        if choice.error:
            raise failure_of({"error": choice.error})
        if choice.delta is not None:
            if choice.finish_reason and self._is_all_again(choice.delta.content):
                choice.delta.content = None
            self._part(choice.delta)
            self._streamed = self._streamed or bool(self._streams)
        if choice.message is not None:
            self._message(choice.message)
        if choice.text:
            self._answer(choice.text)
        if choice.usage:
            self._used(choice.usage)
        if choice.finish_reason:
            self._reason(choice.finish_reason)

    def _reason(self, said: str) -> None:
        said = self._scrub.exact(tidy(said))[:60]
        reason = finish_reason_of(said)
        if not reason or self.finish_reason == "length":
            return
        if reason == "error":
            raise failure(f"the reply ended with the reason {said!r}")
        self.finish_reason = reason

    def _part(self, part: Part) -> None:
        thought = part.reasoning_content or part.reasoning or part.thinking or part.reasoning_text
        if part.reasoning_details:
            told = self._details.add(part.reasoning_details)
            thought = thought or told
        answers, thinks = self._growing
        if thought:
            self._mirrored += len(thought) if thought == part.content else 0
            self._thought(thought if thinks.plain else thinks.feed(thought))
        if part.content:
            self._answer(part.content if answers.plain else answers.feed(part.content))
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

    def _is_all_again(self, content: str | None) -> bool:
        """Whether a last piece repeats the whole answer."""
        if not content or len(content) < ENOUGH or not self._text_id:
            return False
        return content == self._streams[self._text_id].whole

    def _unsaid(self, content: str) -> str:
        """Messages that grow from chunk to chunk repeat their beginning."""
        if self._said and content.startswith(self._said):
            content = content[len(self._said) :]
        if len(self._said) < _MAX_COMPARED:
            self._said += content
        return content

    def _thought(self, piece: str) -> None:
        if piece:
            self._route(((True, piece),))

    def _answer(self, piece: str) -> None:
        if not piece:
            return
        if self._thinking.done:
            self._say(piece)
        else:
            self._route(self._thinking.feed(piece))

    def _say(self, piece: str) -> None:
        if piece:
            self._text_id = self._text_id or self._open(AssistantDelta)
            self._write(self._text_id, piece)

    def _route(self, pieces: Iterable[tuple[bool, str]]) -> None:
        for is_reasoning, piece in pieces:
            if is_reasoning:
                self._reasoning_id = self._reasoning_id or self._open(ReasoningDelta)
                self._write(self._reasoning_id, piece)
            else:
                self._say(piece)

    def _call(self, entry: Call) -> None:
        known = len(self._calls.calls)
        placed = self._calls.add(entry)
        if placed is None:
            return
        call, new = placed
        if len(self._calls.calls) > known:
            make = partial(self._calls.delta, call, self._step, self._scrub)
            self._streams[call.block_id] = Outgoing(make, self._scrub)
        if new:
            self._write(call.block_id, new)

    # ── putting blocks together ───────────────────────────────────────────────────────────────

    def _open(self, kind: type[AssistantDelta | ReasoningDelta]) -> str:
        block_id = self._new_block_id()
        make = partial(kind, step=self._step, block_id=block_id)
        self._streams[block_id] = Outgoing(make, self._scrub)
        return block_id

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
        deltas: list[Delta] = []
        for stream in streams.values():
            deltas += stream.drain(final=final)
        self._dirty.clear()
        return deltas

    def _told_apart(self) -> list[Delta]:
        """Text and reasoning as the whole reply shows them."""
        text = self._streams[self._text_id].text if self._text_id else ""
        if not text and not self._think_open:
            return []
        thought = self._streams[self._reasoning_id].text if self._reasoning_id else ""
        if found := lone_end(text):
            self.ended_unopened = True
            return self._rewrite(thought + found[0], found[1])
        if found := between(text):
            return self._rewrite(thought + found[0], found[1])
        if ENOUGH <= self._mirrored == len(thought) < len(text) and text.startswith(thought):
            return self._rewrite(thought, text[len(thought) :].lstrip())
        whole = self._think_open and self._thinking.unclosed and not self._calls.calls
        if whole and not text and self.finish_reason != "length":
            return self._rewrite("", thought)  # it did not think this time
        return []

    def _rewrite(self, thought: str, text: str) -> list[Delta]:
        for block_id in (self._reasoning_id, self._text_id):
            self._streams.pop(block_id, None)
        calls, self._streams = self._streams, {}
        self._reasoning_id = self._text_id = ""
        self._route(
            [
                (is_reasoning, said)
                for is_reasoning, said in ((True, thought), (False, text))
                if said
            ]
        )
        deltas = self._drain(final=True)
        self._streams |= calls
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
        why = {"length": CUT_OFF, "content_filter": FILTERED}.get(self.finish_reason, "")
        cut_off = why if call is calls[-1] else ""
        name = self._calls.name_of(call)
        return finished(call, name, text, cut_off=cut_off, scrub=self._scrub)

    def _estimate(self) -> Usage:
        thought = len(self._streams[self._reasoning_id].text) if self._reasoning_id else 0
        return estimated_usage(self._input_chars, self._chars, thought)
