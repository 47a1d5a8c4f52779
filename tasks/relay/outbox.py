"""What this process tells the others: gathered per session, in order, sent by one task.

Text is read from the hub when it is sent, so whatever a model wrote while a message was under way
goes with the next one: at once while there is little to do, in larger pieces under load. When the
transport fails, what was to be sent is forgotten. Live text has a hole then, which whoever follows
it notices and asks about; stored events are read from the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from redis.exceptions import RedisError

from tasks.hub import Hub, LiveBlock, Progress, StoredFrame
from tasks.relay import wire

logger = logging.getLogger(__name__)

MAX_WAITING_BYTES = 16 * 1024 * 1024
SEND_SECONDS = 5.0
PAUSE_SECONDS = 0.5
MAX_KEPT = 64
"""Messages to single processes that are sent again behind a failure."""
TROUBLE = (RedisError, OSError, TimeoutError)


def group(session_id: str) -> str:
    """Web processes where somebody follows the session or a task of it."""
    return f"session.{session_id}"


def asks(session_id: str) -> str:
    """The worker that runs a task of the session."""
    return f"asks.{session_id}"


class Outbox:
    """Fed on the event loop, without waiting."""

    def __init__(self, hub: Hub, layer: Any, flush_seconds: float, sender: str) -> None:
        self._hub = hub
        self._layer = layer
        self._flush_seconds = flush_seconds
        self._sender = sender
        self._waiting: dict[str, list[bytes]] = {}
        """Parts by session."""
        self._bytes = 0
        self._grown: dict[str, str] = {}
        """Task id -> session id, of runs here with something new to show."""
        self._direct: deque[tuple[str, dict[str, Any]]] = deque()
        """Questions and answers, with the group that they are for."""
        self._sent: WeakKeyDictionary[LiveBlock, int] = WeakKeyDictionary()
        self._shown: dict[tuple[str, str], int] = {}
        """Version of each progress that was sent."""
        self._wake = asyncio.Event()
        self._failing = False

    def grew(self, task_id: str, session_id: str) -> None:
        self._grown[task_id] = session_id
        self._wake.set()

    def committed(self, frames: Sequence[StoredFrame]) -> None:
        """First what was shown of the reply that these events end."""
        for frame in frames:
            if frame.task_id in self._grown:
                self._gather(frame.task_id, self._grown.pop(frame.task_id))
            self._put(frame.session_id, wire.stored(frame))
            if frame.tool_call_id is not None:
                self._shown.pop((frame.task_id, frame.tool_call_id), None)

    def ask(self, session_id: str, reply_to: str) -> None:
        """For the live state of the session's run, wherever it is."""
        question = {"type": "relay.ask", "session": session_id, "reply": reply_to}
        self._direct.append((asks(session_id), question))
        self._wake.set()

    def answer(self, session_id: str, tasks: Iterable[str], reply_to: str) -> None:
        """Everything that is open, from its beginning, to the one who asked."""
        for task_id in tasks:
            for message in self._messages(session_id, self._state(task_id)):
                self._direct.append((reply_to, message))
        self._wake.set()

    async def pump(self) -> None:
        """Sends until it is cancelled. At most half of the time is spent here."""
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            began = loop.time()
            try:
                await self._send_all()
            except TROUBLE as trouble:
                await self._lose(trouble)
                continue
            except Exception:
                # The boundary of one round: nothing may end the only way out of this process.
                logger.exception("The relay stumbled and goes on.")
                self._forget()
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            if self._failing:
                self._failing = False
                logger.info("The relay sends again.")
            await asyncio.sleep(min(self._flush_seconds, loop.time() - began))

    async def flush(self) -> None:
        """Before the end of the process: what is still here."""
        try:
            async with asyncio.timeout(1):
                await self._send_all()
        except TROUBLE as trouble:
            logger.warning("The last live frames were not sent: %s", trouble)

    # ── gathering ────────────────────────────────────────────────────────────────────────────

    def _gather(self, task_id: str, session_id: str) -> None:
        topic = self._hub.topic_of(task_id)
        if topic is None:
            return
        for block in topic.live.values():
            start = self._sent.get(block, 0)
            if start < block.length:
                self._sent[block] = block.length
                for piece in wire.pieces(block, start):
                    self._put(session_id, piece)
        for key, progress in topic.progress.items():
            if self._shown.get(key) != progress.version:
                self._shown[key] = progress.version
                self._put(session_id, _progress(progress))

    def _state(self, task_id: str) -> Iterable[wire.Part]:
        topic = self._hub.topic_of(task_id)
        if topic is None:
            return
        for block in topic.live.values():
            yield from wire.pieces(block, 0, late=True)
        for progress in topic.progress.values():
            yield _progress(progress, late=True)

    def _put(self, session_id: str, part: wire.Part) -> None:
        data = wire.encode(part)
        if self._bytes + len(data) > MAX_WAITING_BYTES:
            self._forget()
        self._waiting.setdefault(session_id, []).append(data)
        self._bytes += len(data)
        self._wake.set()

    def _forget(self) -> None:
        self._waiting.clear()
        self._direct.clear()
        self._bytes = 0

    # ── sending ──────────────────────────────────────────────────────────────────────────────

    async def _send_all(self) -> None:
        grown, self._grown = self._grown, {}
        for task_id, session_id in grown.items():
            self._gather(task_id, session_id)
        waiting, self._waiting, self._bytes = self._waiting, {}, 0
        for session_id, parts in waiting.items():
            for message in self._packed(session_id, parts):
                await self._send(group(session_id), message)
        while self._direct:
            await self._send(*self._direct[0])
            self._direct.popleft()

    async def _send(self, name: str, message: dict[str, Any]) -> None:
        async with asyncio.timeout(SEND_SECONDS):
            await self._layer.group_send(name, message)

    async def _lose(self, trouble: BaseException) -> None:
        if not self._failing:
            logger.warning("The relay cannot send, live text pauses: %s", trouble)
        self._failing = True
        # A question, or its answer, is said once more: while text pauses nobody would ask again.
        kept = list(self._direct)[:MAX_KEPT]
        self._forget()
        await asyncio.sleep(PAUSE_SECONDS)
        self._direct.extend(kept)
        if kept:
            self._wake.set()

    def _messages(self, session_id: str, parts: Iterable[wire.Part]) -> Iterable[dict[str, Any]]:
        return self._packed(session_id, map(wire.encode, parts))

    def _packed(self, session_id: str, parts: Iterable[bytes]) -> Iterable[dict[str, Any]]:
        batch: list[bytes] = []
        size = 0
        for part in parts:
            if batch and size + len(part) > wire.MESSAGE_BYTES:
                yield self._message(session_id, batch)
                batch, size = [], 0
            batch.append(part)
            size += len(part)
        if batch:
            yield self._message(session_id, batch)

    def _message(self, session_id: str, parts: list[bytes]) -> dict[str, Any]:
        return {"type": "relay.parts", "session": session_id, "from": self._sender, "parts": parts}


def _progress(progress: Progress, *, late: bool = False) -> wire.Part:
    after = (progress.after.sequence, progress.after.position)
    return wire.Live(task_id=progress.task_id, after=after, event=progress.event, late=late)
