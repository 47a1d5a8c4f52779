"""Replay and live in one loop, without queues.

A follower holds a cursor (what it has sent of the log) and one offset per open block (what it has
sent of the reply that is being written). Each turn: clear the bell; send stored events until the
cursor is level with the log; send what is new of the live state; wait for the bell.

Promises, whatever the timing:

1. Stored events go out in order, each once, without a gap.
2. A live entry goes out only after the event that it began after, and never after its own end.
3. The snapshot and deltas of a block add up to its text before its stored message goes out.
4. Memory is constant: who reads slowly gets bigger pieces, at most `growing.FRAME_CHARS` each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Any
from uuid import UUID

from agent.events import TERMINAL_TYPES
from streaming import growing, sse
from streaming.growing import Seen
from streaming.source import CHUNK_BYTES, Dress, Extras, Greeting, Source
from tasks.hub import (
    BLOCKS_END_TYPES,
    After,
    Key,
    Kind,
    Listener,
    LiveBlock,
    LiveKey,
    StoredFrame,
    hub,
)

PAGE_ROWS = 100
MOST_PAGE_ROWS = 1_000
PAGE_BYTES = 256 * 1024
"""What a follower keeps of a page that it read from the database, and aims at with the next."""
RETRY_MILLISECONDS = 2000
_NO_PAGE: deque[StoredFrame] = deque()
"""Everybody's while they have none, and never filled: an empty one of their own is 700 bytes."""


def heard(kind: Kind, row_id: str) -> AbstractContextManager[object]:
    """Around a look at a log and the first step of `follow()`: what is stored between the two is not
    missed, so the look need not be repeated once the follower listens.

    With runs in other processes listening is a subscription, which nobody gets before it is known
    who asks; there the relay looks at the log itself as soon as it has joined.
    """
    if hub.has_peers:
        return nullcontext()
    try:
        return hub.listen(Key(kind, str(UUID(row_id))))
    except ValueError:  # names nothing, and is refused as soon as it is known who asks
        return nullcontext()


async def follow(
    source: Source, cursor: int, extras: Extras | None = None, dress: Dress | None = None
) -> AsyncGenerator[bytes, None]:
    """Everything after `cursor`, then live, until a terminal event (tasks only).

    Also ends when access ends and when the server stops: then without a terminal event.
    """
    with hub.listen(Key(source.kind, source.id)) as seat:
        greeting = await source.greet()
        seat.advanced(greeting.last)
        connected = sse.live_frame("connected", greeting.payload)
        yield sse.CONNECTED + sse.retry(RETRY_MILLISECONDS) + connected
        follower = _Follower(source, seat, cursor, greeting, extras, dress)
        del source, greeting, connected  # nor is anything kept below of what was sent
        try:
            while (chunk := await follower.next_chunk()) is not None:
                yield chunk
                del chunk
        finally:
            follower.close()


class _Pulse:
    """Rings the follower's own bell when a heartbeat is due: one timer per beat, not per wait."""

    def __init__(self, seat: Listener, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._seat = seat
        self._seconds = seconds
        self._struck = False
        self._timer = self._next()

    def due(self) -> bool:
        """True once per beat."""
        if not self._struck:
            return False
        self._struck = False
        self._timer = self._next()
        return True

    def stop(self) -> None:
        self._timer.cancel()

    def _next(self) -> asyncio.TimerHandle:
        return self._loop.call_later(self._seconds, self._strike)

    def _strike(self) -> None:
        self._struck = True
        self._seat.bell.ring()


class _Follower:
    """One reader's place in the log and in the live state."""

    def __init__(
        self,
        source: Source,
        seat: Listener,
        cursor: int,
        greeting: Greeting,
        extras: Extras | None,
        dress: Dress | None,
    ) -> None:
        self._kind = source.kind
        self._read_page, self._read_past, self._check = source.page, source.past, source.check
        self._seat = seat
        self._over = greeting.over
        self._extras = extras
        self._dress = dress
        # A cursor that nobody was given yet waits for what comes next.
        self._cursor = min(cursor, greeting.last)
        self._ended = False
        self._page = deque(greeting.first) if greeting.first else _NO_PAGE
        seat.settle(greeting.first)
        self._page_rows = PAGE_ROWS
        self._large: Iterator[bytes] | None = None
        """What is left of a frame that is sent piece by piece."""
        self._blocks: dict[LiveKey, Seen] = {}
        self._progress: dict[LiveKey, int] = {}
        self._pulse = _Pulse(seat, source.heartbeat)
        seat.bell.ring()

    def close(self) -> None:
        self._pulse.stop()

    async def next_chunk(self) -> bytes | None:
        """What to send next; waits when there is nothing. None is the end."""
        bell = self._seat.bell
        if self._large is not None and not self._seat.closing:
            if piece := next(self._large, None):
                return piece
            self._large = None
        while not self._ended:
            if not bell.rung:
                await bell.wait()
            if self._seat.closing:
                break
            bell.clear()
            if self._pulse.due():
                bell.ring()
                return await self._beat()
            if chunk := await self._next():
                return chunk
            if self._over:
                break
        return None

    async def _next(self) -> bytes:
        """The next chunk, or nothing. Who leaves something for the one after it rings the bell."""
        if self._cursor >= self._seat.topic.last:
            self._page = _NO_PAGE  # who is level and silent keeps nothing that it has sent
        elif chunk := await self._next_stored():
            self._seat.bell.ring()
            return chunk
        if self._over:
            return b""
        if self._extras is not None and (chunk := await self._extras.level(self._cursor)):
            self._seat.bell.ring()
            return chunk
        return self._next_live()

    async def _beat(self) -> bytes | None:
        last = await self._check()
        if last is None:
            return None
        self._seat.advanced(last)
        return sse.HEARTBEAT if self._dress is None else self._dress.beat(self._kind, last)

    # ── the log ───────────────────────────────────────────────────────────────────────────────

    async def _next_stored(self) -> bytes:
        """The next chunk of stored events; empty when the cursor is level with the log after all."""
        if past := await self._next_past():
            return past
        if self._dress is not None:
            await self._dress.prepare(self._at_hand())
        chunk = self._stored(self._at_hand())
        if not chunk:
            rows = await self._read_page(self._cursor, self._page_rows)
            # The database may be ahead of the hub: what these rows end must not be shown again.
            self._seat.settle(rows)
            self._page = deque([*self._page, *_first(rows, PAGE_BYTES)])
            self._page_rows = _rows_for_a_page(len(rows), sum(len(row.body) for row in rows))
            if self._dress is not None:
                await self._dress.prepare(self._at_hand())
            chunk = self._stored(self._at_hand())
        return chunk

    async def _next_past(self) -> bytes:
        """Where all is over nothing is growing that an event could end, so none is looked at."""
        plain = self._over and self._extras is None and self._dress is None
        if not plain or self._page or self._read_past is None:
            return b""
        found = await self._read_past(self._cursor, self._page_rows)
        if found.body:
            self._cursor, self._ended = found.last, found.ended
            self._page_rows = _rows_for_a_page(found.count, len(found.body))
        return found.body

    def _at_hand(self) -> Iterable[StoredFrame]:
        while self._page and self._page[0].number(self._kind) <= self._cursor:
            self._page.popleft()
        if self._page:
            return self._page
        self._page = _NO_PAGE
        return self._seat.topic.after(self._cursor)

    def _stored(self, frames: Iterable[StoredFrame]) -> bytes:
        """Encode frames until the chunk is full. Does not wait: the tail must not move under it."""
        parts: list[bytes] = []
        size = 0
        for frame in frames:
            while rest := self._missing(frame):
                parts.append(rest)
                size += len(rest)
                if size >= CHUNK_BYTES:
                    return b"".join(parts)
            body = frame.body if self._dress is None else self._dress.stored(frame)
            if body is None or (parts and len(body) > CHUNK_BYTES):
                break
            if len(body) > CHUNK_BYTES:
                return self._advance_large(frame, body)
            parts.append(self._advance(frame, body))
            size += len(parts[-1])
            if self._ended or size >= CHUNK_BYTES:
                break
        return b"".join(parts)

    def _missing(self, frame: StoredFrame) -> bytes:
        """The next piece of the text that this message completes, as an ordinary delta."""
        if frame.block_id is None:
            return b""
        seen = self._blocks.get((frame.task_id, frame.block_id))
        if seen is None or self._is_dressed(seen.block):
            return b""
        if frame.text is not None:
            seen.block.finish(frame.text)
        return growing.delta(seen)

    def _advance(self, frame: StoredFrame, body: bytes) -> bytes:
        """Pass a stored event: send it, and forget the live state that it ends."""
        number = frame.number(self._kind)
        self._cursor = number
        if frame.block_id is not None:
            self._blocks.pop((frame.task_id, frame.block_id), None)
        if frame.tool_call_id is not None:
            self._progress.pop((frame.task_id, frame.tool_call_id), None)
        if frame.type in BLOCKS_END_TYPES:
            _forget(self._blocks, frame.task_id)
            _forget(self._progress, frame.task_id)
        self._ended = self._kind == "task" and frame.type in TERMINAL_TYPES
        sent = sse.stored_frame(number, body)
        return sent if self._extras is None else sent + self._extras.after(frame)

    def _advance_large(self, frame: StoredFrame, body: bytes) -> bytes:
        """The body is everybody's: a follower that does not read holds one piece of it."""
        begin = sse.stored_frame(frame.number(self._kind), b"")
        after = self._advance(frame, b"").removeprefix(begin)
        pieces = (body[at : at + CHUNK_BYTES] for at in range(0, len(body), CHUNK_BYTES))
        self._large = chain(pieces, [after] if after else [])
        return begin + next(pieces)

    # ── the live state ────────────────────────────────────────────────────────────────────────

    def _next_live(self) -> bytes:
        """What is new of every live entry whose time has come, at most one frame of each.

        Does not wait between look and encode: no commit can come between them.
        """
        topic = self._seat.topic
        parts: list[bytes] = []
        size = 0
        for key, block in topic.live.items():
            seen = self._blocks.get(key)
            if seen is None and not self._may(block.after):
                continue
            if size >= CHUNK_BYTES:
                self._seat.bell.ring()
                break
            if new := self._block(key, block, seen):
                parts.append(new)
                size += len(new)
        for key, progress in topic.progress.items():
            if self._may(progress.after) and self._progress.get(key) != progress.version:
                self._progress[key] = progress.version
                parts.append(growing.progress(progress))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _may(self, after: After) -> bool:
        return after.number(self._kind) <= self._cursor

    def _block(self, key: LiveKey, block: LiveBlock, seen: Seen | None) -> bytes:
        first, late = seen is None, block.opened <= self._seat.joined
        if seen is None:
            seen = self._blocks[key] = Seen(block)
        if self._dress is not None and block.kind == "text":
            new = self._dress.growing(block, seen, late=late, ring=self._seat.bell.ring)
            more = bool(new)  # perhaps: it counts pieces of its own
        else:
            new = growing.snapshot(seen) if first and late else growing.delta(seen)
            more = seen.offset < block.length
        if more:
            self._seat.bell.ring()
        return new

    def _is_dressed(self, block: LiveBlock) -> bool:
        return self._dress is not None and block.kind == "text"


def _rows_for_a_page(count: int, size: int) -> int:
    """How many rows like these make a page: each page is a hop to a thread."""
    return min(MOST_PAGE_ROWS, max(PAGE_ROWS, count * PAGE_BYTES // (size + 1)))


def _first(rows: Sequence[StoredFrame], most: int) -> list[StoredFrame]:
    """As many as fit, but one at least; the others are read again when it is their turn."""
    found: list[StoredFrame] = []
    size = 0
    for row in rows:
        size += len(row.body)
        if found and size > most:
            break
        found.append(row)
    return found


def _forget(entries: dict[LiveKey, Any], task_id: str) -> None:
    for key in [key for key in entries if key[0] == task_id]:
        del entries[key]
