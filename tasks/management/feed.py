"""What happens to one task, in order: stored events, and between them what its run here shows.

For a command that runs a task in its own process and shows it. Stored events are read from the
log, whoever wrote them, so the feed goes on when another process takes the task over. Live events
come from the run itself, which is told to call `observe`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple
from uuid import UUID

from agent.events import TERMINAL_TYPES, LiveEvent
from tasks import events
from tasks.events import Row

POLL_SECONDS = 0.1
"""So late at most comes what others stored."""
PAGE = 500


class _Shown(NamedTuple):
    """A live event and the newest stored one before it."""

    after: int
    event: LiveEvent | None


class Feed:
    """Iterate it in one thread while the run calls `observe` in another.

    Between two pieces of news it yields None whenever it is level with the log. It ends after a
    terminal event, or when `close()` was called.
    """

    def __init__(self, task_id: UUID) -> None:
        self._task_id = task_id
        self._cursor = 0
        self._queue: SimpleQueue[_Shown] = SimpleQueue()
        self._shown: deque[_Shown] = deque()
        """Taken from the queue, not passed on yet."""
        self._closed = False
        self._read_at = 0.0

    def observe(self, sequence: int, event: LiveEvent | None) -> None:
        """The run's side: any thread, never waits."""
        self._queue.put(_Shown(sequence, event))

    def close(self) -> None:
        """End the iteration at the next moment. Safe in a signal handler."""
        self._closed = True
        self._queue.put(_Shown(0, None))

    def __iter__(self) -> Iterator[Row | LiveEvent | None]:
        while not self._closed:
            for item in self._news():
                yield item
                if isinstance(item, Row) and item.type in TERMINAL_TYPES:
                    return
            if self._queue.empty() and not self._shown:
                yield None

    def _news(self) -> Iterator[Row | LiveEvent]:
        """The queue is emptied after the log was read: what a run showed before it stored one of
        the rows is there by then, and goes out ahead of that row."""
        self._fill(wait=not self._shown)
        rows = self._rows() if self._due() else []
        self._fill(wait=False)
        while self._shown:
            while rows and rows[0].sequence <= self._shown[0].after:
                yield self._pass(rows.pop(0))
            if self._shown[0].after > self._cursor:
                break  # it came after a row that was stored behind our look
            event = self._shown.popleft().event
            if event is not None:
                yield event
        for row in rows:
            yield self._pass(row)

    def _fill(self, *, wait: bool) -> None:
        if wait:
            with suppress(Empty):
                self._shown.append(self._queue.get(timeout=POLL_SECONDS))
        while not self._queue.empty():
            self._shown.append(self._queue.get())

    def _due(self) -> bool:
        """Whether there is reason to look into the log."""
        behind = any(each.after > self._cursor for each in self._shown)
        return behind or time.monotonic() - self._read_at >= POLL_SECONDS

    def _rows(self) -> list[Row]:
        self._read_at = time.monotonic()
        return events.page(self._task_id, self._cursor, PAGE)

    def _pass(self, row: Row) -> Row:
        self._cursor = row.sequence
        return row
