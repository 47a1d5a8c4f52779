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
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter

from agent.events import Delta, LiveEvent, ToolProgress
from tasks.hub.live import After, Kind, LiveBlock, LiveKey, Progress
from tasks.hub.pace import Pace
from tasks.hub.peers import Peers
from tasks.hub.topic import BLOCKS_END_TYPES, Bell, Key, StoredFrame, Topic
from tasks.loops import on_loop

__all__ = [
    "BLOCKS_END_TYPES",
    "After",
    "Hub",
    "Key",
    "Kind",
    "Listener",
    "LiveBlock",
    "LiveKey",
    "Peers",
    "Progress",
    "StoredFrame",
    "hub",
]


class Listener:
    """One follower's seat at a topic; `with hub.listen(key) as seat`."""

    def __init__(self, hub: Hub, topic: Topic, joined: int) -> None:
        self._hub = hub
        self.topic = topic
        self.joined = joined
        """Blocks with a higher `opened` began under this listener's eyes."""
        self.bell = Bell()
        if not topic.bells:
            hub.followed_first(topic.key)
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
        self._hub.left(self.topic)


@dataclass(slots=True)
class ActiveRun:
    """A run in this process."""

    session_id: str
    after: After
    """The task's last event."""
    topics: tuple[Topic, Topic]
    """Its task's and its session's; a run holds them until its end."""
    rested: bool = False
    """Whether it waited for a beat: what it shows next is for this beat, not for the next one."""


class Hub:
    """One per process."""

    def __init__(self) -> None:
        self.closing = False
        self._topics: dict[Key, Topic] = {}
        self._runs: dict[str, ActiveRun] = {}
        self._serial = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pace = Pace()
        self._peers: Peers | None = None

    def attach(
        self,
        loop: asyncio.AbstractEventLoop,
        flush_seconds: float = 0.0,
        peers: Peers | None = None,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        """Serve this loop; deltas may be gathered for `flush_seconds` under load."""
        self._peers = peers
        self._pace.stop()
        self._pace = Pace(flush_seconds, cpu)
        self._pace.runs = len(self._runs)
        self._loop = loop
        self.closing = False

    @property
    def has_peers(self) -> bool:
        """Runs may be in other processes."""
        return self._peers is not None

    def detach(self) -> None:
        self._loop = None
        self._peers = None
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
        return (
            self._peers is not None
            or Key("task", task_id) in self._topics
            or Key("session", session_id) in self._topics
        )

    def committed_from_thread(self, frames: Sequence[StoredFrame]) -> None:
        """`committed()` on the loop, from any thread, in order.

        Call it before the one who waits for the commit is told: then all deltas that follow find
        the right `after`.
        """
        loop = self._loop
        if loop is not None and frames:
            on_loop(loop, partial(self.committed, frames))

    def committed(self, frames: Sequence[StoredFrame]) -> None:
        """Events were committed here. Drops live state, appends, then rings: one loop turn."""
        if self._peers is not None:
            self._peers.committed(frames)
        self.published(frames)

    def published(self, frames: Sequence[StoredFrame]) -> None:
        """The same for what another process stored."""
        rung: dict[Topic, None] = {}
        for of_task in _by_task(frames):
            newest = of_task[-1]
            if (run := self._runs.get(newest.task_id)) is not None:
                run.after = max(run.after, After(newest.sequence, newest.position))
            for topic in self._topics_of(newest.task_id, newest.session_id):
                for frame in of_task:
                    topic.settle(frame)
                    topic.append(frame)
                rung[topic] = None
        for topic in rung:
            topic.ring()

    def settle(self, frames: Sequence[StoredFrame]) -> None:
        """Drop the live state that these events end, without appending or ringing."""
        for of_task in _by_task(frames):
            for topic in self._topics_of(of_task[0].task_id, of_task[0].session_id):
                for frame in of_task:
                    topic.settle(frame)

    def live(self, task_id: str, session_id: str, event: LiveEvent) -> None:
        """A delta or a progress of a run that is active here (see `running`)."""
        run = self._runs.get(task_id)
        if run is None:
            return
        self._serial += 1
        if isinstance(event, ToolProgress):
            now = self._progress(run.topics, task_id, event, run.after)
        else:
            opens = self._delta(run.topics, task_id, event, run.after)
            if opens is None:
                return
            now, run.rested = opens or run.rested, False
        for topic in run.topics:
            if topic.bells:
                self._pace.ring(topic, self._loop, now=now)
        if self._peers is not None:
            self._peers.grew(task_id, session_id)

    def turn(self, task_id: str) -> asyncio.Future[None] | None:
        """What to wait for until the run may show more; None while there is little to do. Who reads
        a model asks here, so that under load more is read at once."""
        run = self._runs.get(task_id)
        if run is None or (rest := self._pace.turn(self._loop)) is None:
            return None
        run.rested = True
        return rest

    def relayed(
        self, task_id: str, session_id: str, event: LiveEvent, after: After, *, late: bool
    ) -> bool:
        """The same from a run in another process. False: something before it got lost.

        `late`: it was asked for, and shows to everybody as to one who comes late.
        """
        topics = [
            topic
            for topic in self._topics_of(task_id, session_id)
            if task_id not in self._runs and not topic.knows_end(task_id, event, after)
        ]
        if not topics:
            return True
        self._serial += 1
        if isinstance(event, ToolProgress):
            first = self._progress(topics, task_id, event, after)
        else:
            opened = 0 if late else self._serial
            block = find_block(topics, task_id, event, after, opened)
            if event.offset > block.length:
                return False
            first = not block.length
            block.overlap(event)
            for topic in topics:
                topic.live.setdefault((task_id, event.block_id), block)
        for topic in topics:
            self._pace.ring(topic, self._loop, now=first)
        return True

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
        topics = self._topic(Key("task", task_id)), self._topic(Key("session", session_id))
        self._runs[task_id] = ActiveRun(session_id, After(last_sequence, last_position), topics)
        for topic, last in zip(topics, (last_sequence, last_position), strict=True):
            topic.runs.add(task_id)
            if last > topic.last:
                topic.last = last
                topic.ring()
        if self._peers is not None:
            self._peers.running(task_id, session_id)
        self._pace.runs = len(self._runs)

    def idle(self, task_id: str) -> None:
        """The run ended here, whatever it stored; what it left open never happened."""
        run = self._runs.pop(task_id, None)
        if run is None:
            return
        self._pace.runs = len(self._runs)
        for topic in run.topics:
            topic.runs.discard(task_id)
            topic.forget(task_id)
            self.release(topic)
        if self._peers is not None:
            self._peers.idle(task_id, run.session_id)

    # ── what followers and the watcher ask ────────────────────────────────────────────────────

    def listen(self, key: Key) -> Listener:
        return Listener(self, self._topic(key), self._serial)

    def followed_first(self, key: Key) -> None:
        if self._peers is not None:
            self._peers.followed(key)

    def left(self, topic: Topic) -> None:
        """A follower went."""
        if self._peers is not None and not topic.bells:
            self._peers.unfollowed(topic.key)
        self.release(topic)

    def topic_of(self, task_id: str) -> Topic | None:
        """For the peers: the live state of a run that is here."""
        return self._topics.get(Key("task", task_id))

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
        self, topics: Sequence[Topic], task_id: str, event: ToolProgress, after: After
    ) -> bool:
        """Keep the latest; True when it is the call's first."""
        key = (task_id, event.tool_call_id)
        before = topics[0].progress.get(key)
        entry = Progress(task_id, event, after if before is None else before.after, self._serial)
        for topic in topics:
            topic.progress[key] = entry
        return before is None

    def _delta(
        self, topics: Sequence[Topic], task_id: str, event: Delta, after: After
    ) -> bool | None:
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


def _by_task(frames: Sequence[StoredFrame]) -> list[list[StoredFrame]]:
    """As they come, those of one task behind each other together: mostly all of them."""
    return [list(several) for _, several in groupby(frames, attrgetter("task_id"))]


def find_block(
    topics: Sequence[Topic], task_id: str, event: Delta, after: After, opened: int
) -> LiveBlock:
    """The block that this delta belongs to, known to one of the topics or new."""
    key = (task_id, event.block_id)
    known = (topic.live[key] for topic in topics if key in topic.live)
    return next(known, None) or LiveBlock(task_id, event, after, opened)


hub = Hub()
