"""A token costs the same in a long answer as in a short one, an event in a long log as in a short
one, and a follower that does not read costs nothing.

Counted: calls of functions, bytes on the wire, what the database reads, allocated memory.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import transaction

from agent.events import BudgetWarning
from streaming import views
from streaming.follow import follow
from tasks import access, events, wiring
from tasks.models import Task
from tests.streaming.world import World
from tests.support.bulk import long_log
from tests.support.counting import Work, counted
from tests.support.provider_server import SSE, ProviderServer, Request, Scene, delta, serving
from tests.support.rows import make_session, make_task
from tests.support.runs import House, make_house

TOKEN = "0000 "
READ = 50
"""Tokens that arrive together."""


@pytest.fixture
def house(tmp_path: Path) -> House:
    return make_house(tmp_path / "desk")


@dataclass
class Calls:
    """Calls of functions on this thread, Python's and C's, and what followers were sent."""

    made: int = 0
    sent: int = 0
    frames: int = 0
    """Of text that is not stored yet."""

    def __enter__(self) -> Calls:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        self.made += event in ("call", "c_call")


def answer_of(tokens: int, read: int) -> Scene:
    piece = "".join(f"data: {json.dumps(delta(f'{n:04d} '))}\n\n" for n in range(read)).encode()

    async def play(request: Request) -> None:
        await request.head(200, SSE)
        for _ in range(tokens // read):
            await request.chunk(piece)
        await request.events(delta("", "stop"), "[DONE]")
        await request.end()

    return play


async def cost_of_an_answer(
    house: House, settings: Any, tokens: int, followers: int, read: int = READ
) -> Calls:
    """A whole run with one answer of so many tokens, `read` at a time, followed by so many."""
    with serving(ProviderServer(answer=answer_of(tokens, read))) as server:
        settings.PILOTHOUSE = replace(
            settings.PILOTHOUSE, llm_base_url=server.url("answer"), llm_model="m"
        )
        async with house.runner(models=wiring.Models()) as runner:
            created = await house.ask()
            principal = await sync_to_async(access.principal_of)(house.alice)
            task = await Task.objects.aget(pk=created.task_id)
            greeting = views.greet_task(task)
            with Calls() as calls:
                source = views.task_source(principal, task.pk, greeting)
                source = replace(source, heartbeat=3600)  # which would ask for a token
                readers = [
                    asyncio.create_task(received(follow(source, 0))) for _ in range(followers)
                ]
                runner.wake(str(created.task_id))
                streams = await asyncio.gather(*readers)
            calls.sent = max(map(len, streams))
            calls.frames = max(stream.count(b"event: assistant_delta") for stream in streams)
            task = await house.until(created.task_id, "completed", 60)
            assert len(task.final_answer) == len(TOKEN * tokens)
    return calls


@pytest.mark.django_db(transaction=True)
async def test_what_is_read_together_is_one_frame(house: House, settings: Any) -> None:
    """However many deltas it is: nobody could have shown the first before the last was there. None,
    when the whole message was stored before the follower had its turn."""
    calls = await cost_of_an_answer(house, settings, tokens=4 * READ, followers=1, read=4 * READ)
    assert calls.frames <= 1
    assert calls.sent > 2 * len(TOKEN) * 4 * READ  # its message and its end bring the text whole


async def received(chunks: AsyncGenerator[bytes, None]) -> bytes:
    async with aclosing(chunks):
        return b"".join([chunk async for chunk in chunks])


async def compare(house: House, settings: Any, short: int, long: int) -> None:
    few = await cost_of_an_answer(house, settings, short, followers=2)
    many = await cost_of_an_answer(house, settings, long, followers=2)
    more = long - short
    base = few.made - short * (many.made - few.made) / more
    assert (many.made - few.made) / more < 1.5 * few.made / short, (few, many)
    assert base > -few.made  # nothing grows faster than its length
    # The text twice, as deltas and as the message, once more in the end; frames around it.
    assert many.sent < 6 * long * len(TOKEN), (few, many)


@pytest.mark.django_db(transaction=True)
async def test_a_token_costs_the_same_in_a_long_answer(house: House, settings: Any) -> None:
    await compare(house, settings, short=200, long=20_000)


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
async def test_a_token_costs_the_same_in_an_answer_of_two_megabytes(
    house: House, settings: Any
) -> None:
    await compare(house, settings, short=200, long=400_000)


FOLLOWER_CALLS = 32
"""At most, of functions in `streaming` and `tasks`, for a word: shown, rung for, framed, sent."""


async def test_a_word_costs_its_follower_few_calls() -> None:
    """One look at what is new for each time it was woken, and none to see that nothing else is."""
    run = World().task()
    run.begin()
    calls = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        file = frame.f_code.co_filename
        ours = "/tests/" not in file and ("/streaming/" in file or "/tasks/" in file)
        calls += event == "call" and ours

    async with aclosing(follow(run.source(), 0)) as stream:
        await anext(stream)
        sys.setprofile(note)
        for _ in range(20):
            waiting = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0)
            run.delta("b", "word ")
            await waiting
        sys.setprofile(None)
    run.end()
    assert calls / 20 < FOLLOWER_CALLS


def costs_at_the_end_of_a_log(length: int) -> dict[str, Work]:
    """What one more event costs behind so many, and what it costs to read on from there."""
    task = make_task(make_session())
    long_log(task, length)
    warning = BudgetWarning(step=1, which="steps", used=1, limit=12)
    acts: dict[str, Callable[[], object]] = {
        "append": lambda: events.append(task.pk, [warning]),
        "read on": lambda: events.page(task.pk, length - 5),
        "read on in the session": lambda: events.page_session(task.session_id, length - 5),
        "read back": lambda: events.page_session(task.session_id, before=length, limit=5),
        "greet": lambda: access.find_task(access.principal_of(task.created_by), task.pk),
    }
    found = {}
    with transaction.atomic():
        for name, act in acts.items():
            with counted() as work:
                act()
            found[name] = work
    return found


def check_logs(short: int, long: int) -> None:
    costs_at_the_end_of_a_log(short)  # what is looked up once per process is
    few, many = costs_at_the_end_of_a_log(short), costs_at_the_end_of_a_log(long)
    for name, work in many.items():
        assert work.statements == few[name].statements, name
        assert work.read <= few[name].read * 1.5 + 300, (name, str(few[name]), str(work))


@pytest.mark.django_db
def test_an_event_costs_the_same_in_a_long_log() -> None:
    check_logs(10, 10_000)


@pytest.mark.long
@pytest.mark.django_db
def test_an_event_costs_the_same_behind_a_hundred_thousand() -> None:
    check_logs(10, 100_000)


async def test_a_follower_that_does_not_read_costs_no_memory() -> None:
    """Two hundred stop after the greeting; then a megabyte is written and stored."""
    followers = 200
    world = World()
    run = world.task()
    run.begin()
    try:
        async with AsyncExitStack() as stack:
            chunks = [follow(run.source(), 0) for _ in range(followers)]
            for each in chunks:
                await stack.enter_async_context(aclosing(each))
                await anext(each)
            before = _allocated()
            for _ in range(2_000):
                run.delta("b", "x" * 512)
            run.commit(*run.reply())
            grown = _allocated() - before
    finally:
        tracemalloc.stop()
        run.end()
    shared = 6 * 1024 * 1024  # the text in the test, in its block, in its stored frame
    assert grown < shared + followers * 1024, grown


def _allocated() -> int:
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
