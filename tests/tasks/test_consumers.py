"""The channel `runs` wakes this process's runner, whatever else is sent to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any
from uuid import UUID

import pytest
from channels.layers import get_channel_layer

from tasks.consumers import RUNS, RunWorker

TASK = "6f1de35e-6ab4-4b0d-ae4d-4fa0a62a0b4e"
tag: ContextVar[str] = ContextVar("tag", default="none")


class Wakened:
    """Remembers what reached the runner, and in which context."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str | None]] = []
        self.contexts: set[str] = set()
        self.called = asyncio.Event()

    def wake(self, task_id: str | None = None) -> None:
        if task_id is not None:
            UUID(task_id)
        self._note("wake", task_id)

    def cancel(self, task_id: str) -> None:
        self._note("cancel", task_id)

    def _note(self, what: str, task_id: str | None) -> None:
        self.calls.append((what, task_id))
        self.contexts.add(tag.get())
        self.called.set()

    async def next(self) -> tuple[str, str | None]:
        async with asyncio.timeout(5):
            await self.called.wait()
        self.called.clear()
        return self.calls[-1]


@pytest.fixture
async def runner() -> Wakened:
    return Wakened()


@pytest.fixture
async def worker(runner: Wakened) -> AsyncIterator[RunWorker]:
    tag.set("of whoever started it")
    worker = RunWorker(runner)
    worker.ensure_started()
    yield worker
    await worker.stop()
    layer = get_channel_layer()
    assert layer is not None
    await layer.flush()


async def send(**message: Any) -> None:
    layer = get_channel_layer()
    assert layer is not None
    await layer.send(RUNS, message)


async def test_start_cancel_and_wake_reach_the_runner(runner: Wakened, worker: RunWorker) -> None:
    await send(type="run.start", task_id=TASK)
    assert await runner.next() == ("wake", TASK)
    await send(type="run.cancel", task_id=TASK)
    assert await runner.next() == ("cancel", TASK)
    await send(type="run.wake")
    assert await runner.next() == ("wake", None)
    assert runner.contexts == {"none"}


@pytest.mark.parametrize(
    "message",
    [
        {"type": "run.start"},
        {"type": "run.start", "task_id": 7},
        {"type": "run.start", "task_id": "not an id"},
        {"type": "http.request"},
        {"type": "_secret"},
        {"task_id": TASK},
    ],
)
async def test_a_bad_message_is_logged_and_the_next_one_arrives(
    runner: Wakened,
    worker: RunWorker,
    message: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    await send(**message)
    await send(type="run.wake")
    assert await runner.next() == ("wake", None)
    assert len(runner.calls) == 1
    assert any(record.levelno >= logging.WARNING for record in caplog.records)


async def test_a_listener_that_was_ended_from_outside_comes_back(
    runner: Wakened, worker: RunWorker
) -> None:
    (listener,) = (task for task in asyncio.all_tasks() if task.get_name() == RUNS)
    listener.cancel()
    await asyncio.wait({listener})
    await send(type="run.wake")
    assert await runner.next() == ("wake", None)


async def test_a_consumer_that_broke_is_replaced_before_the_next_message(
    runner: Wakened, worker: RunWorker
) -> None:
    await send(type="run.wake")
    await runner.next()
    consumer = worker.application_instances[RUNS]["future"]
    consumer.cancel()
    await asyncio.wait({consumer})
    await send(type="run.start", task_id=TASK)
    assert await runner.next() == ("wake", TASK)


async def test_stopping_leaves_no_task_behind(runner: Wakened) -> None:
    before = asyncio.all_tasks()
    worker = RunWorker(runner)
    worker.ensure_started()
    worker.ensure_started()
    await send(type="run.wake")
    await runner.next()
    await worker.stop()
    worker.ensure_started()
    assert asyncio.all_tasks() == before
