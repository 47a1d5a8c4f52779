"""Which sessions this process listens to in the channel layer, and what their log says meanwhile.

Joining takes a while, and the transport may lose messages or be away. So after a join, and every
second, the newest numbers of everything that is followed here are read from the database: one query
per process, whatever the number of streams.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from channels.db import database_sync_to_async
from django.db import DatabaseError

from tasks.hub import Hub, Key
from tasks.models import Session, Task
from tasks.relay.outbox import PAUSE_SECONDS, TROUBLE, asks, group

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Change:
    """Join or leave; of a topic, or of the questions about a session's run."""

    joins: bool
    key: Key
    as_runner: bool = False


class Membership:
    """Changes are made one after the other by one task."""

    def __init__(
        self, hub: Hub, layer: Any, channel: str, own_group: str, joined: Callable[[str], None]
    ) -> None:
        self._hub = hub
        self._layer = layer
        self._channel = channel
        self._own_group = own_group
        """Where this process gets its answers; of a group, a failed join can be tried again."""
        self._joined = joined
        """Called with a session that this process now listens to, or has a new follower of."""
        self._changes: deque[Change] = deque()
        self._session_of: dict[Key, str] = {}
        self._groups: Counter[str] = Counter()
        self._wake = asyncio.Event()

    def change(self, joins: bool, key: Key, *, as_runner: bool = False) -> None:
        self._changes.append(Change(joins, key, as_runner))
        self._wake.set()

    async def work(self) -> None:
        """Until it is cancelled."""
        self._wake.set()
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                if self._own_group not in self._groups:
                    await self._join(self._own_group)
                await self._make_changes()
            except TROUBLE as trouble:
                await self._wait_for("the channel layer", trouble)
            except DatabaseError as trouble:
                await self._wait_for("the database", trouble)
            except Exception as error:
                # The boundary of one round: without it nobody is listened to any more.
                logger.exception("Listening stumbled and goes on.")
                await self._wait_for("better times", error)

    async def look_for_ever(self) -> None:
        """Every second, until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except DatabaseError as trouble:
                logger.error("The log of what is followed could not be read: %s", trouble)
            except Exception:
                # The boundary of one look: the next one finds what this one missed.
                logger.exception("A look at what is followed broke.")

    async def look(self) -> None:
        tasks, sessions = self._hub.followed()
        if not tasks and not sessions:
            return
        for key, last in (await database_sync_to_async(_newest)(tasks, sessions)).items():
            self._hub.advanced(key, last)

    async def _wait_for(self, what: str, trouble: BaseException) -> None:
        logger.warning("Listening waits for %s: %s", what, trouble)
        self._wake.set()
        await asyncio.sleep(PAUSE_SECONDS)

    async def _make_changes(self) -> None:
        """A change that fails stays first in line."""
        await self._find_sessions()
        new: list[str] = []
        while self._changes:
            change = self._changes[0]
            session_id = self._session(change.key)
            if session_id is not None:
                name = asks(session_id) if change.as_runner else group(session_id)
                await (self._join if change.joins else self._leave)(name)
                if change.joins and not change.as_runner:
                    new.append(session_id)
            if not change.joins:
                self._session_of.pop(change.key, None)
            self._changes.popleft()
        if new:
            for session_id in dict.fromkeys(new):
                self._joined(session_id)
            await self.look()

    async def _join(self, name: str) -> None:
        if not self._groups[name]:
            await self._layer.group_add(name, self._channel)
        self._groups[name] += 1

    async def _leave(self, name: str) -> None:
        if self._groups[name] == 1:
            await self._layer.group_discard(name, self._channel)
        self._groups[name] -= 1
        if self._groups[name] <= 0:
            del self._groups[name]

    def _session(self, key: Key) -> str | None:
        return key.id if key.kind == "session" else self._session_of.get(key)

    async def _find_sessions(self) -> None:
        unknown = [
            change.key.id
            for change in self._changes
            if change.joins and change.key.kind == "task" and change.key not in self._session_of
        ]
        if unknown:
            found = await database_sync_to_async(_sessions_of)(unknown)
            self._session_of.update(found)


def _sessions_of(task_ids: Sequence[str]) -> dict[Key, str]:
    rows = Task.objects.filter(pk__in=task_ids).values_list("pk", "session_id")
    return {Key("task", str(task)): str(session) for task, session in rows}


def _newest(task_ids: Sequence[str], session_ids: Sequence[str]) -> dict[Key, int]:
    tasks = Task.objects.filter(pk__in=task_ids).values_list("pk", "last_sequence")
    sessions = Session.objects.filter(pk__in=session_ids).values_list("pk", "last_position")
    found = {Key("task", str(pk)): last for pk, last in (tasks if task_ids else ())}
    found |= {Key("session", str(pk)): last for pk, last in (sessions if session_ids else ())}
    return found
