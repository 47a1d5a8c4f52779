"""Streams of the real store over ASGI, and what is stored meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from agent.events import (
    BudgetWarning,
    StoredEvent,
    TaskCompleted,
)
from streaming.asgi.lanes import LaneHandler
from tasks import events
from tasks.models import Task
from tasks.writer import writer
from tests.support.exchange import Exchange
from tests.support.sse import Event, Parser, Reader

HEARTBEAT = 0.05


class Watched(Exchange):
    """A stream as a careful client reads it."""

    def __init__(
        self, app: LaneHandler, path: str, headers: dict[str, str], method: str = "GET"
    ) -> None:
        self.parser = Parser()
        self.reader = Reader()
        self.events: list[Event] = []
        super().__init__(app, method, path, headers)

    def streamed(self, body: bytes) -> None:
        for event in self.parser.feed(body):
            self.events.append(event)
            self.reader.apply(event)

    async def until(self, holds: Callable[[Watched], bool]) -> None:
        await self.once(lambda: holds(self))

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.events]


Open = Callable[..., Watched]


def warning(number: int = 1) -> BudgetWarning:
    return BudgetWarning(step=1, which="steps", used=number, limit=300)


async def store(task: Task, *stored: StoredEvent, status: str | None = None) -> None:
    await writer.run(partial(events.append, task.pk, stored))
    if status is not None:
        await Task.objects.filter(pk=task.pk).aupdate(status=status)


async def finish(task: Task) -> None:
    """The terminal event and the status in one transaction, as the runner writes them."""

    def command() -> None:
        events.append(task.pk, [TaskCompleted()])
        Task.objects.filter(pk=task.pk).update(status=Task.Status.COMPLETED)

    await writer.run(command)


def path_of(task: Task) -> str:
    return f"/api/tasks/{task.pk}/stream"
