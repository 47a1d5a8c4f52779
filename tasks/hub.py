"""Who follows which task or session in this process: bells, a shared tail and the live state.

Lives on the server's event loop: everything but `committed_from_thread` and `wants` is called
there. It knows no database and holds no queue. A follower keeps its own place (a cursor, and one
offset per open block) and reads from what is shared here, so a slow one costs no memory.

Promises: `committed()` drops the live state of a reply, appends its frames and rings in **one loop
turn**, so nobody can see a reply both as open block and as stored message. A topic exists while
somebody follows it or a run of it is active here, and not longer.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Literal, NamedTuple

import msgspec

from agent.events import (
    TERMINAL_TYPES,
    AssistantDelta,
    Delta,
    LiveEvent,
    ReasoningDelta,
    ToolCallDelta,
    ToolProgress,
)

TAIL_FRAMES = 256
TAIL_BYTES = 1024 * 1024
PIECE_CHARS = 1024
"""Deltas are glued to pieces of at least this size: few objects, and still a cheap append."""
LIVE_RINGS_PER_SECOND = 2000
"""Above so many wake-ups by deltas per second they are gathered."""
LIVE_RINGS_BURST = 200

BLOCKS_END_TYPES = TERMINAL_TYPES | {
    "model_call_finished",
    "model_call_retried",
    "task_recovered",
    "task_started",
}
"""After one of these an open block without its stored message never happened."""

Kind = Literal["task", "session"]
BlockKind = Literal["text", "reasoning", "tool_call"]
LiveKey = tuple[str, str]
"""Task id and block id, or task id and tool_call_id."""


class Key(NamedTuple):
    """What a topic is about; ids are canonical UUID strings."""

    kind: Kind
    id: str


class StoredFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A committed event, encoded once for all followers of its task and its session."""

    task_id: str
    session_id: str
    sequence: int
    position: int
    type: str
    body: bytes
    """`event: …` and `data: …` lines with the closing blank line; the `id:` line is the stream's."""
    block_id: str | None = None
    """Of a message or call that completes a block."""
    text: str | None = None
    """The whole text of that block, unless it is a tool call."""
    tool_call_id: str | None = None
    """Of `tool_call_finished`."""

    def number(self, kind: Kind) -> int:
        """Its id on a stream of that kind."""
        return self.sequence if kind == "task" else self.position


class After(NamedTuple):
    """The last event of the task when a live entry began: followers get that event first."""

    sequence: int
    position: int

    def number(self, kind: Kind) -> int:
        return self.sequence if kind == "task" else self.position


class LiveBlock:
    """The growing text of an open block; one object for all topics and followers."""

    __slots__ = (
        "_pieces",
        "_starts",
        "after",
        "block_id",
        "index",
        "kind",
        "length",
        "memo",
        "name",
        "opened",
        "step",
        "task_id",
    )

    def __init__(self, task_id: str, first: Delta, after: After, opened: int) -> None:
        self.task_id = task_id
        self.block_id = first.block_id
        self.kind: BlockKind = _KINDS[type(first)]
        self.step = first.step
        self.index, self.name = 0, ""
        if isinstance(first, ToolCallDelta):
            self.index, self.name = first.index, first.name
        self.after = after
        self.opened = opened
        """Serial number: who began to listen later is a late joiner."""
        self.length = 0
        """In Unicode code points."""
        self.memo: tuple[int, int, int, bytes] | None = None
        """(from, length then, to, frame) of the last encoding; followers in step share it."""
        self._pieces: list[str] = []
        self._starts: list[int] = []

    def apply(self, event: Delta) -> bool:
        """Append a delta if it starts where the text ends; anything else is old or has a hole."""
        if event.offset != self.length or not event.delta:
            return False
        if isinstance(event, ToolCallDelta):
            self.name = event.name
        self._append(event.delta)
        return True

    def finish(self, text: str) -> None:
        """Complete it with the stored text, for followers that are still behind."""
        if len(text) > self.length:
            self._append(text[self.length :])

    def _append(self, text: str) -> None:
        if self._pieces and len(self._pieces[-1]) < PIECE_CHARS:
            self._pieces[-1] += text
        else:
            self._starts.append(self.length)
            self._pieces.append(text)
        self.length += len(text)

    def slice(self, start: int, limit: int) -> str:
        """At most `limit` characters from `start`; the cost depends on their number alone."""
        end = min(self.length, start + limit)
        if start >= end:
            return ""
        first = bisect_right(self._starts, start) - 1
        last = bisect_right(self._starts, end - 1)
        origin = self._starts[first]
        return "".join(self._pieces[first:last])[start - origin : end - origin]


class Progress:
    """The latest progress of a running tool call."""

    __slots__ = ("after", "event", "memo", "task_id", "version")

    def __init__(self, task_id: str, event: ToolProgress, after: After, version: int) -> None:
        self.task_id = task_id
        self.event = event
        self.after = after
        self.version = version
        """Grows with every progress; a follower remembers what it has sent."""
        self.memo: bytes | None = None


class Bell:
    """Wakes one follower. Rung before the wait, it does not wait."""

    __slots__ = ("_waiter", "rung")

    def __init__(self) -> None:
        self.rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self.rung = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def clear(self) -> None:
        self.rung = False

    async def wait(self) -> None:
        if self.rung:
            return
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


class Topic:
    """What the followers of one task or session share."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.last = 0
        """The highest number known to be committed."""
        self.live: dict[LiveKey, LiveBlock] = {}
        self.progress: dict[LiveKey, Progress] = {}
        self.bells: set[Bell] = set()
        self.runs: set[str] = set()
        """Task ids with a run in this process."""
        self._tail: deque[StoredFrame] = deque()
        self._tail_bytes = 0

    def after(self, cursor: int) -> Iterator[StoredFrame]:
        """Frames after `cursor` from the tail; nothing when the tail does not reach back so far."""
        if not self._tail:
            return iter(())
        skip = cursor + 1 - self._tail[0].number(self.key.kind)
        return iter(()) if skip < 0 else islice(self._tail, skip, None)

    def append(self, frame: StoredFrame) -> None:
        """Keep a committed frame. The tail never has a hole: one that does not fit starts it anew."""
        number = frame.number(self.key.kind)
        self.last = max(self.last, number)
        if self._tail:
            newest = self._tail[-1].number(self.key.kind)
            if number <= newest:
                return
            if number != newest + 1:
                self._tail.clear()
                self._tail_bytes = 0
        self._tail.append(frame)
        self._tail_bytes += len(frame.body)
        while len(self._tail) > TAIL_FRAMES or self._tail_bytes > TAIL_BYTES:
            self._tail_bytes -= len(self._tail.popleft().body)

    def settle(self, frame: StoredFrame) -> None:
        """Drop the live state that this event ends.

        Judged by the event's number, so repeating it, or reading old events, drops nothing new.
        """
        if frame.block_id is not None:
            self._complete(frame, (frame.task_id, frame.block_id))
        if frame.type in BLOCKS_END_TYPES:
            _drop(self.live, frame)
            _drop(self.progress, frame)
        elif frame.type == "tool_call_finished":
            if frame.tool_call_id is None:
                _drop(self.progress, frame)
            else:
                self.progress.pop((frame.task_id, frame.tool_call_id), None)

    def _complete(self, frame: StoredFrame, key: LiveKey) -> None:
        block = self.live.get(key)
        if block is not None and block.after.sequence < frame.sequence:
            if frame.text is not None:
                block.finish(frame.text)
            del self.live[key]

    def forget(self, task_id: str) -> None:
        """Drop all live state of a task."""
        for entries in (self.live, self.progress):
            for key in [key for key in entries if key[0] == task_id]:
                del entries[key]

    def ring(self) -> None:
        for bell in self.bells:
            bell.ring()


class Pace:
    """When deltas wake followers: at once while there is little to do, else once per interval.

    A token bucket over all topics. Stored events and the first delta of a block never wait.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self._credit = float(LIVE_RINGS_BURST)
        self._counted_at = 0.0
        self._waiting: dict[Topic, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def ring(self, topic: Topic, loop: asyncio.AbstractEventLoop | None, *, now: bool) -> None:
        if loop is None or not self._seconds:
            topic.ring()
            return
        if not topic.bells or (topic in self._waiting and not now):
            return
        self._earn(loop.time())
        if now or self._credit > 0:
            self._waiting.pop(topic, None)
            self._spend(topic)
            return
        self._waiting[topic] = None
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._flush)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting.clear()

    def _flush(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, {}
        for topic in waiting:
            self._spend(topic)

    def _spend(self, topic: Topic) -> None:
        self._credit = max(-LIVE_RINGS_BURST, self._credit - len(topic.bells))
        topic.ring()

    def _earn(self, now: float) -> None:
        earned = (now - self._counted_at) * LIVE_RINGS_PER_SECOND
        self._credit = min(LIVE_RINGS_BURST, self._credit + earned)
        self._counted_at = now


class Listener:
    """One follower's seat at a topic; `with hub.listen(key) as seat`."""

    def __init__(self, hub: Hub, topic: Topic, joined: int) -> None:
        self._hub = hub
        self.topic = topic
        self.joined = joined
        """Blocks with a higher `opened` began under this listener's eyes."""
        self.bell = Bell()
        topic.bells.add(self.bell)

    @property
    def closing(self) -> bool:
        """The server stops: end without a terminal event."""
        return self._hub.closing

    def settle(self, frames: Sequence[StoredFrame]) -> None:
        """Frames read from the database before this process heard of their commit."""
        self._hub.settle(frames)

    def advanced(self, last: int) -> None:
        self._hub.advanced(self.topic.key, last)

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.topic.bells.discard(self.bell)
        self._hub.release(self.topic)


class Hub:
    """One per process."""

    def __init__(self) -> None:
        self.closing = False
        self._topics: dict[Key, Topic] = {}
        self._runs: dict[str, tuple[str, After]] = {}
        """Task id -> session id and the task's last event, of the runs in this process."""
        self._serial = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pace = Pace()

    def attach(self, loop: asyncio.AbstractEventLoop, flush_seconds: float = 0.0) -> None:
        """Serve this loop; deltas may be gathered for `flush_seconds` under load."""
        self._pace.stop()
        self._pace = Pace(flush_seconds)
        self._loop = loop
        self.closing = False

    def detach(self) -> None:
        self._loop = None
        self._pace.stop()

    def shutdown(self) -> None:
        """Wake all followers; they end without a terminal event."""
        self.closing = True
        for topic in self._topics.values():
            topic.ring()

    # ── what the store and the runner say ─────────────────────────────────────────────────────

    def wants(self, task_id: str, session_id: str) -> bool:
        """Whether anybody would read a frame of this task. Any thread.

        Ask **after** COMMIT: who begins to listen later than that reads the commit itself.
        """
        return Key("task", task_id) in self._topics or Key("session", session_id) in self._topics

    def committed_from_thread(self, frames: Sequence[StoredFrame]) -> None:
        """`committed()` on the loop, from any thread, in order.

        Call it before the one who waits for the commit is told: then all deltas that follow find
        the right `after`.
        """
        loop = self._loop
        if loop is None or not frames:
            return
        try:
            loop.call_soon_threadsafe(self.committed, frames)
        except RuntimeError:
            # The loop was closed between the look and the call: nobody is left to ring.
            return

    def committed(self, frames: Sequence[StoredFrame]) -> None:
        """Events were committed. Drops live state, appends, then rings: one loop turn."""
        rung: dict[Topic, None] = {}
        self.settle(frames)
        for frame in frames:
            if (run := self._runs.get(frame.task_id)) is not None:
                newest = After(frame.sequence, frame.position)
                self._runs[frame.task_id] = (run[0], max(run[1], newest))
            for topic in self._topics_of(frame.task_id, frame.session_id):
                topic.append(frame)
                rung[topic] = None
        for topic in rung:
            topic.ring()

    def settle(self, frames: Sequence[StoredFrame]) -> None:
        """Drop the live state that these events end, without appending or ringing."""
        for frame in frames:
            for topic in self._topics_of(frame.task_id, frame.session_id):
                topic.settle(frame)

    def live(self, task_id: str, session_id: str, event: LiveEvent) -> None:
        """A delta or a progress of a run that is active here (see `running`)."""
        run = self._runs.get(task_id)
        if run is None:
            return
        topics = self._topics_of(task_id, session_id)
        self._serial += 1
        if isinstance(event, ToolProgress):
            first = self._progress(topics, task_id, event, run[1])
        else:
            outcome = self._delta(topics, task_id, event, run[1])
            if outcome is None:
                return
            first = outcome
        for topic in topics:
            self._pace.ring(topic, self._loop, now=first)

    def advanced(self, key: Key, last: int) -> None:
        """The database holds a newer event than was published here."""
        topic = self._topics.get(key)
        if topic is not None and last > topic.last:
            topic.last = last
            topic.ring()

    def running(
        self, task_id: str, session_id: str, last_sequence: int, last_position: int
    ) -> None:
        """A run begins here; the numbers are those of the task's last event."""
        self._runs[task_id] = (session_id, After(last_sequence, last_position))
        for key, last in (
            (Key("task", task_id), last_sequence),
            (Key("session", session_id), last_position),
        ):
            topic = self._topic(key)
            topic.runs.add(task_id)
            if last > topic.last:
                topic.last = last
                topic.ring()

    def idle(self, task_id: str) -> None:
        """The run ended here, whatever it stored; what it left open never happened."""
        run = self._runs.pop(task_id, None)
        if run is None:
            return
        for topic in self._topics_of(task_id, run[0]):
            topic.runs.discard(task_id)
            topic.forget(task_id)
            self.release(topic)

    # ── what followers and the watcher ask ────────────────────────────────────────────────────

    def listen(self, key: Key) -> Listener:
        return Listener(self, self._topic(key), self._serial)

    def release(self, topic: Topic) -> None:
        """Let a topic go when nobody needs it."""
        if not topic.bells and not topic.runs and self._topics.get(topic.key) is topic:
            del self._topics[topic.key]

    def is_empty(self) -> bool:
        """Nobody follows and nothing runs here."""
        return not self._topics

    def followed(self) -> tuple[list[str], list[str]]:
        """Ids of the tasks and of the sessions that somebody follows here."""
        heard = [topic.key for topic in self._topics.values() if topic.bells]
        return (
            [key.id for key in heard if key.kind == "task"],
            [key.id for key in heard if key.kind == "session"],
        )

    # ── inside ────────────────────────────────────────────────────────────────────────────────

    def _topic(self, key: Key) -> Topic:
        topic = self._topics.get(key)
        if topic is None:
            topic = self._topics[key] = Topic(key)
        return topic

    def _topics_of(self, task_id: str, session_id: str) -> list[Topic]:
        keys = (Key("task", task_id), Key("session", session_id))
        return [topic for key in keys if (topic := self._topics.get(key)) is not None]

    def _progress(
        self, topics: list[Topic], task_id: str, event: ToolProgress, after: After
    ) -> bool:
        """Keep the latest; True when it is the call's first."""
        key = (task_id, event.tool_call_id)
        before = topics[0].progress.get(key)
        entry = Progress(task_id, event, after if before is None else before.after, self._serial)
        for topic in topics:
            topic.progress[key] = entry
        return before is None

    def _delta(self, topics: list[Topic], task_id: str, event: Delta, after: After) -> bool | None:
        """Apply it; True when it opened a block, None when it does not fit."""
        key = (task_id, event.block_id)
        # A run holds the topics of its task and its session, and both always change together.
        block = topics[0].live.get(key)
        opens = block is None
        if block is None:
            block = LiveBlock(task_id, event, after, self._serial)
        if not block.apply(event):
            return None
        if opens:
            for topic in topics:
                topic.live[key] = block
        return opens


_KINDS: dict[type[Delta], BlockKind] = {
    AssistantDelta: "text",
    ReasoningDelta: "reasoning",
    ToolCallDelta: "tool_call",
}


def _drop(entries: dict[LiveKey, LiveBlock] | dict[LiveKey, Progress], frame: StoredFrame) -> None:
    """Drop what began before this event of its task."""
    ended = [
        key
        for key, entry in entries.items()
        if key[0] == frame.task_id and entry.after.sequence < frame.sequence
    ]
    for key in ended:
        del entries[key]


hub = Hub()
