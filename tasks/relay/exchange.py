"""The hub of this process and the hubs of the others, over the channel layer (scale-out).

Each process listens on one channel. A web process joins the group of every session that somebody
follows there and asks whoever runs a task of it for what is open; a worker joins the group of
questions about each session that it runs. What arrives goes into the hub at once: a slow follower
keeps nobody waiting. Losing the transport loses liveliness, never an event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextvars import Context
from typing import Any
from uuid import uuid4

from channels.layers import get_channel_layer

from tasks.conf import conf
from tasks.hub import After, Hub, Key, Peers, StoredFrame, hub
from tasks.relay import wire
from tasks.relay.membership import Membership
from tasks.relay.outbox import PAUSE_SECONDS, TROUBLE, Outbox

logger = logging.getLogger(__name__)

ASK_AGAIN_SECONDS = 0.5
MAX_REMEMBERED = 1000
CANCEL_TRIES = 5
CLOSE_SECONDS = 0.3


class Exchange(Peers):
    """One per process. `start()` on the hub's event loop, before `hub.attach(…, peers=…)`."""

    def __init__(self, own: Hub = hub) -> None:
        self._hub = own
        self._layer: Any = get_channel_layer()
        self._sender = uuid4().hex
        self._channel = f"pilothouse.{self._sender}"
        self._members = Membership(own, self._layer, self._channel, self._channel, self._ask)
        self._outbox = Outbox(own, self._layer, conf().delta_flush_ms / 1000, self._sender)
        self._runs: dict[str, set[str]] = {}
        """Session id -> tasks that run here."""
        self._asked: dict[str, float] = {}
        """Session id -> when its run was last asked for what is open."""
        self._doubted: set[str] = set()
        """Sessions whose run will be asked soon."""
        self._work: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Returns at once: a transport that is away now will be back."""
        self._own(self._receive(), "relay.receive")
        self._own(self._outbox.pump(), "relay.send")
        self._own(self._members.work(), "relay.join")
        self._own(self._members.look_for_ever(), "relay.look")

    async def stop(self) -> None:
        await self._outbox.flush()
        for outcome in await _ended(*self._work):
            if isinstance(outcome, Exception):
                logger.error("A part of the relay broke.", exc_info=outcome)
        closing = asyncio.ensure_future(self._layer.flush())
        await asyncio.wait({closing}, timeout=CLOSE_SECONDS)
        await _ended(closing)

    def _own(self, work: Coroutine[Any, Any, None], name: str) -> None:
        loop = asyncio.get_running_loop()
        self._work.append(loop.create_task(work, name=name, context=Context()))

    # ── what the hub says ────────────────────────────────────────────────────────────────────

    def followed(self, key: Key) -> None:
        self._members.change(True, key)

    def unfollowed(self, key: Key) -> None:
        self._members.change(False, key)

    def running(self, task_id: str, session_id: str) -> None:
        self._runs.setdefault(session_id, set()).add(task_id)
        self._members.change(True, Key("session", session_id), as_runner=True)

    def idle(self, task_id: str, session_id: str) -> None:
        tasks = self._runs.get(session_id, set())
        tasks.discard(task_id)
        if not tasks:
            self._runs.pop(session_id, None)
        self._members.change(False, Key("session", session_id), as_runner=True)

    def grew(self, task_id: str, session_id: str) -> None:
        self._outbox.grew(task_id, session_id)

    def committed(self, frames: Sequence[StoredFrame]) -> None:
        self._outbox.committed(frames)

    # ── what the others say ──────────────────────────────────────────────────────────────────

    async def _receive(self) -> None:
        while True:
            try:
                self._handle(await self._layer.receive(self._channel))
            except TROUBLE as trouble:
                logger.warning("The relay cannot listen: %s", trouble)
                await asyncio.sleep(PAUSE_SECONDS)
            except Exception:
                # The boundary of one message: the next may be better.
                logger.exception("A message of another process was not understood.")

    def _handle(self, message: dict[str, Any]) -> None:
        match message:
            case {"type": "relay.parts", "from": sender, "session": str(session_id)}:
                if sender != self._sender:
                    self._take(session_id, message["parts"])
            case {"type": "relay.ask", "session": str(session_id), "reply": str(channel)}:
                tasks = self._runs.get(session_id, set())
                self._outbox.answer(session_id, tasks, channel)
            case _:
                logger.warning("A message of type %.50r is not known.", message.get("type"))

    def _take(self, session_id: str, parts: Sequence[bytes]) -> None:
        frames: list[StoredFrame] = []
        for data in parts:
            match wire.decode(data):
                case wire.Stored(frame=frame):
                    frames.append(frame)
                case wire.Advanced() as newer:
                    self._hub.advanced(Key("task", newer.task_id), newer.sequence)
                    self._hub.advanced(Key("session", session_id), newer.position)
                case wire.Live() as live:
                    self._publish(frames)
                    self._show(session_id, live)
        self._publish(frames)

    def _publish(self, frames: list[StoredFrame]) -> None:
        """What was committed together is dropped, appended and rung in one go."""
        if frames:
            self._hub.published(frames)
            frames.clear()

    def _show(self, session_id: str, live: wire.Live) -> None:
        after = After(*live.after)
        if not self._hub.relayed(live.task_id, session_id, live.event, after, late=live.late):
            self._ask_soon(session_id)

    def _ask_soon(self, session_id: str) -> None:
        """About a hole. Not again at every word that follows it, but surely once more."""
        if session_id in self._doubted:
            return
        loop = asyncio.get_running_loop()
        wait = self._asked.get(session_id, 0.0) + ASK_AGAIN_SECONDS - loop.time()
        if wait <= 0:
            self._ask(session_id)
        else:
            self._doubted.add(session_id)
            loop.call_later(wait, self._ask, session_id)

    def _ask(self, session_id: str) -> None:
        self._doubted.discard(session_id)
        if len(self._asked) > MAX_REMEMBERED:
            self._asked.clear()
        self._asked[session_id] = asyncio.get_running_loop().time()
        self._outbox.ask(session_id, self._channel)


async def _ended(*tasks: asyncio.Future[Any]) -> list[Any]:
    """Cancelled, and what became of them. The Redis client can lose a cancellation in a time-out of
    its own, so whoever does not end is told again."""
    for _ in range(CANCEL_TRIES):
        for task in tasks:
            task.cancel()
        _, running = await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
        if not running:
            break
    return [task.exception() for task in tasks if task.done() and not task.cancelled()]
