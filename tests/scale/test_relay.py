"""Two hubs in one process, joined by a real Redis: what one says the other shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

import pytest
from channels.layers import channel_layers
from channels_redis.pubsub import RedisPubSubChannelLayer  # type: ignore[import-untyped]

from agent.events import AssistantDelta, ToolProgress
from tasks.hub import Hub, Key, StoredFrame
from tasks.relay import wire
from tasks.relay.exchange import Exchange
from tasks.relay.outbox import group
from tests.support.services import Redis
from tests.support.waiting import happened

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Side:
    """A process, as far as the relay goes."""

    hub: Hub
    exchange: Exchange


@asynccontextmanager
async def side(redis: Redis) -> AsyncIterator[Side]:
    layer = RedisPubSubChannelLayer(
        hosts=[{"address": redis.url, "max_connections": 10_000, "socket_connect_timeout": 2}]
    )
    channel_layers.set("default", layer)
    hub = Hub()
    exchange = Exchange(hub)
    await exchange.start()
    hub.attach(asyncio.get_running_loop(), 0.01, exchange)
    try:
        yield Side(hub, exchange)
    finally:
        hub.detach()
        await exchange.stop()


@pytest.fixture
async def worker(redis: Redis) -> AsyncIterator[Side]:
    async with side(redis) as one:
        yield one


@pytest.fixture
async def web(redis: Redis) -> AsyncIterator[Side]:
    async with side(redis) as one:
        yield one


def ids() -> tuple[str, str]:
    return str(uuid4()), str(uuid4())


def speak(side: Side, task: str, session: str, text: str, offset: int, block: str = "b1") -> None:
    for start in range(0, len(text), 512):
        piece = text[start : start + 512]
        event = AssistantDelta(step=1, block_id=block, offset=offset + start, delta=piece)
        side.hub.live(task, session, event)


def shown(side: Side, session: str, task: str, block: str = "b1") -> str:
    topic = side.hub._topics.get(Key("session", session))
    found = topic.live.get((task, block)) if topic else None
    return found.slice(0, 10**9) if found else ""


def stored(task: str, session: str, sequence: int, type_: str, **more: str) -> StoredFrame:
    body = b"event: x\ndata: {}\n\n" + b" " * int(more.pop("size", 0))
    return StoredFrame(
        task_id=task,
        session_id=session,
        sequence=sequence,
        position=sequence,
        type=type_,
        body=body,
        **more,
    )


async def test_words_arrive_in_another_process_and_go_with_their_message(
    worker: Side, web: Side
) -> None:
    task, session = ids()
    with web.hub.listen(Key("session", session)) as seat:
        worker.hub.running(task, session, 3, 3)
        await happened(lambda: group(session) in web.exchange._members._groups)
        speak(worker, task, session, "Hello ", 0)
        await happened(lambda: shown(web, session, task) == "Hello ")
        speak(worker, task, session, "world", 6)
        await happened(lambda: shown(web, session, task) == "Hello world")
        block = seat.topic.live[task, "b1"]
        assert block.after == (3, 3), "followers get that event first"
        assert block.opened > seat.joined
        speak(worker, task, session, "!", 11)
        end = stored(task, session, 4, "assistant_message", block_id="b1", text="Hello world!")
        worker.hub.committed([end, stored(task, session, 5, "model_call_finished")])
        await happened(lambda: seat.topic.last == 5)
        assert block.slice(0, 99) == "Hello world!"
        assert not seat.topic.live
        assert [frame.sequence for frame in seat.topic.after(3)] == [4, 5]


async def test_whoever_comes_late_asks_the_run(worker: Side, web: Side) -> None:
    task, session = ids()
    text = "0123456789" * 20_000
    worker.hub.running(task, session, 3, 3)
    speak(worker, task, session, text, 0)
    worker.hub.live(task, session, ToolProgress(tool_call_id="c1", text="half"))
    await happened(lambda: worker.exchange._members._groups)
    with web.hub.listen(Key("session", session)) as seat:
        await happened(lambda: shown(web, session, task) == text)
        await happened(lambda: (task, "c1") in seat.topic.progress)
        speak(worker, task, session, "more", len(text))
        await happened(lambda: shown(web, session, task) == text + "more")


async def test_a_hole_is_asked_about(worker: Side, web: Side) -> None:
    task, session = ids()
    with web.hub.listen(Key("session", session)):
        worker.hub.running(task, session, 3, 3)
        await happened(lambda: group(session) in web.exchange._members._groups)
        await happened(lambda: len(worker.exchange._members._groups) == 2)
        speak(worker, task, session, "one ", 0)
        await happened(lambda: shown(web, session, task) == "one ")
        speak(worker, task, session, "two ", 4)
        worker.exchange._outbox._gather(task, session)
        worker.exchange._outbox._forget()  # as when the transport failed
        speak(worker, task, session, "three", 8)
        await happened(lambda: shown(web, session, task) == "one two three")


async def test_what_has_ended_does_not_open_again(worker: Side, web: Side) -> None:
    """A worker that was paused says what it had to say when its run is over."""
    task, session = ids()
    with web.hub.listen(Key("session", session)) as seat:
        web.hub.settle([stored(task, session, 9, "task_started")])
        worker.hub.running(task, session, 3, 3)
        await happened(lambda: group(session) in web.exchange._members._groups)
        speak(worker, task, session, "Old", 0, block="old")
        worker.hub.committed([stored(task, session, 10, "user_message")])
        await happened(lambda: seat.topic.last == 10)
        assert not seat.topic.live


async def test_large_events_go_by_reference(worker: Side, web: Side) -> None:
    task, session = ids()
    with web.hub.listen(Key("session", session)) as seat:
        await happened(lambda: group(session) in web.exchange._members._groups)
        huge = stored(task, session, 7, "tool_call_finished", size=str(wire.MESSAGE_BYTES))
        worker.hub.committed([huge])
        await happened(lambda: seat.topic.last == 7)
        assert not list(seat.topic.after(6)), "it is read from the log"


async def test_two_hundred_who_come_back_at_once(worker: Side, web: Side) -> None:
    sessions = [str(uuid4()) for _ in range(200)]
    with ExitStack() as stack:
        seats = [stack.enter_context(web.hub.listen(Key("session", s))) for s in sessions]
        await happened(lambda: len(web.exchange._members._groups) == 201)
        for session in sessions:
            worker.hub.committed([stored(str(uuid4()), session, 1, "task_created")])
        await happened(lambda: all(seat.topic.last == 1 for seat in seats))
    await happened(lambda: len(web.exchange._members._groups) == 1)
