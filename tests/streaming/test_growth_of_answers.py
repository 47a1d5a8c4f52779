"""A token costs the same in a long answer as in a short one, an event in a long log as in a short
one, and a follower that does not read costs nothing.

Counted: calls of functions, bytes on the wire, what the database reads, allocated memory.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
import tracemalloc
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
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
from tests.support.sse import Parser

TOKEN = "0000 "
READ = 50
"""Tokens that arrive together."""


@pytest.fixture
def house(tmp_path: Path) -> House:
    return make_house(tmp_path / "desk")


@dataclass
class Calls:
    """Calls of functions on this thread, Python's and C's, and what came of them."""

    made: int = 0
    streams: list[bytes] = field(default_factory=list)
    """All that each follower was sent."""
    answer: str = ""

    def __enter__(self) -> Calls:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        self.made += event in ("call", "c_call")

    @property
    def sent(self) -> int:
        """Bytes, to the follower that got most."""
        return max(map(len, self.streams))


Chunks = AsyncGenerator[bytes, None]
Read = Callable[[Chunks], Coroutine[None, None, bytes]]


async def received(chunks: Chunks) -> bytes:
    async with aclosing(chunks):
        return b"".join([chunk async for chunk in chunks])


def tokens_read_together(read: int = READ) -> bytes:
    """One piece of a reply."""
    return "".join(f"data: {json.dumps(delta(f'{n:04d} '))}\n\n" for n in range(read)).encode()


def answer_of(tokens: int) -> Scene:
    piece = tokens_read_together()

    async def play(request: Request) -> None:
        await request.head(200, SSE)
        for _ in range(tokens // READ):
            await request.chunk(piece)
        await request.events(delta("", "stop"), "[DONE]")
        await request.end()

    return play


async def cost_of_an_answer(house: House, settings: Any, scene: Scene, *readers: Read) -> Calls:
    """A whole run with one answer, followed by so many."""
    with serving(ProviderServer(answer=scene)) as server:
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
                reading = [asyncio.create_task(read(follow(source, 0))) for read in readers]
                runner.wake(str(created.task_id))
                calls.streams = await asyncio.gather(*reading)
            calls.answer = (await house.until(created.task_id, "completed", 60)).final_answer
    return calls


@pytest.mark.django_db(transaction=True)
async def test_what_is_read_together_is_one_frame(house: House, settings: Any) -> None:
    """However many deltas it is: nobody could have shown the first before the last was there."""
    tokens = 4 * READ
    piece = tokens_read_together(tokens)
    listening, shown = threading.Event(), threading.Event()

    async def play(request: Request) -> None:
        await request.head(200, SSE)
        await asyncio.to_thread(listening.wait)  # who comes late gets a snapshot
        await request.chunk(piece)
        await asyncio.to_thread(shown.wait)  # with the end at hand there might be no delta at all
        await request.events(delta("", "stop"), "[DONE]")
        await request.end()

    async def read(chunks: Chunks) -> bytes:
        sent = b""
        try:
            async with aclosing(chunks):
                async for chunk in chunks:
                    listening.set()
                    sent += chunk
                    if b"%04d " % (tokens - 1) in chunk:
                        shown.set()
        finally:
            listening.set()
            shown.set()
        return sent

    calls = await cost_of_an_answer(house, settings, play, read)
    (frame,) = [each for each in Parser().feed(calls.streams[0]) if each.type == "assistant_delta"]
    assert frame.payload["delta"] == calls.answer
    assert len(calls.answer) == tokens * len(TOKEN)


async def compare(house: House, settings: Any, short: int, long: int) -> None:
    few = await cost_of_an_answer(house, settings, answer_of(short), received, received)
    many = await cost_of_an_answer(house, settings, answer_of(long), received, received)
    assert [len(calls.answer) // len(TOKEN) for calls in (few, many)] == [short, long]
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


FOLLOWER_CALLS = 26
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
