"""`?render=html`: what a page sees of a text that grows, and of the log."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import AsyncClient

from agent.events import (
    AgentCompleted,
    AssistantMessageAdded,
    ModelCallStarted,
    StoredEvent,
    TaskCompleted,
)
from streaming import rendering
from streaming.follow import follow
from streaming.growing import FRAME_BYTES
from streaming.rendering import Html
from streaming.source import CHUNK_BYTES, Source
from tasks import events
from tasks import render as renderer
from tasks.hub import hub
from tasks.render import Growth, render
from tasks.writer import writer
from tests.streaming.world import Client, Run, World, settle
from tests.support.people import bearer, make_house
from tests.support.sse import Event, Parser

pytestmark = pytest.mark.usefixtures("clean_hub")

PARAGRAPHS = [f"Paragraph {number} with **weight** and `code`.\n\n" for number in range(12)]
TEXT = "".join(PARAGRAPHS) + "| a | b |\n|---|--:|\n| 1 | 2 |\n\n- one\n- two\n\nEnd"


@dataclass
class Block:
    """What a page shows of a block, by the rules of docs/pages.md."""

    have: int = 0
    pieces: str = ""
    tail: str = ""

    def apply(self, payload: dict[str, Any]) -> None:
        if payload["from"] == 0:
            self.have, self.pieces = 0, ""
        assert payload["from"] == self.have, "the server knows what this page has"
        self.have, self.tail = payload["to"], payload["tail"]
        self.pieces += payload["html"]

    @property
    def html(self) -> str:
        return self.pieces + self.tail


@dataclass
class Page:
    """A reader of HTML."""

    source: Source
    cursor: int = 0
    events: list[Event] = field(default_factory=list)
    blocks: dict[str, Block] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stream = follow(self.source, self.cursor, dress=Html())
        self._moved = asyncio.Event()
        self.parser = Parser()
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for chunk in self._stream:
            for event in self.parser.feed(chunk):
                self._apply(event)
            self._moved.set()

    def _apply(self, event: Event) -> None:
        self.events.append(event)
        if event.type == "assistant_render":
            self.blocks.setdefault(event.payload["block_id"], Block()).apply(event.payload)
        elif event.type == "snapshot" and event.payload["kind"] == "text":
            assert event.payload["block_id"] not in self.blocks
            self.blocks[event.payload["block_id"]] = Block(tail=event.payload["html"])

    async def until(self, holds: Callable[[Page], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds(self):
                await self._moved.wait()
                self._moved.clear()

    def of(self, type_: str) -> list[Event]:
        return [event for event in self.events if event.type == type_]

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        await self._stream.aclose()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(rendering, "PACE_SECONDS", 0.01)  # five in a second would take seconds
    monkeypatch.setattr(rendering, "SHARE", 0)
    run = World().task()
    run.begin()
    run.commit(ModelCallStarted(step=1, model="m", attempt=1))
    return run


async def finish(run: Run, *pages: Page | Client) -> None:
    run.commit(*run.reply(), AgentCompleted(final_answer="x"), TaskCompleted())
    run.end()
    async with asyncio.timeout(10):
        await asyncio.gather(*(page.task for page in pages))


def shows(html: str, block_id: str = "a") -> Callable[[Page], bool]:
    return lambda page: block_id in page.blocks and page.blocks[block_id].html == html


async def test_a_page_watches_html_grow_and_gets_the_message_with_html(run: Run) -> None:
    page = Page(run.source())
    await settle()
    for start in range(0, len(TEXT), 37):
        run.delta("a", TEXT[start : start + 37])
        await asyncio.sleep(0.005)
    await page.until(shows(render(TEXT)))
    await finish(run, page)

    [message] = page.of("assistant_message")
    assert message.payload["html"] == render(TEXT)
    assert message.payload["text"] == TEXT
    assert len(page.of("assistant_render")) > 3
    assert page.of("assistant_delta") == page.of("snapshot") == []


async def test_settled_pieces_are_sent_once(run: Run) -> None:
    page = Page(run.source())
    await settle()
    for number, paragraph in enumerate(PARAGRAPHS):
        run.delta("a", paragraph)
        await page.until(shows(render("".join(PARAGRAPHS[: number + 1]))))
    await finish(run, page)

    sent = "".join(event.payload["html"] for event in page.of("assistant_render"))
    assert sent == page.blocks["a"].pieces
    assert all("Paragraph 0" not in e.payload["html"] for e in page.of("assistant_render")[3:])


async def test_who_comes_late_gets_a_snapshot_with_html_and_then_the_rest(run: Run) -> None:
    first = Page(run.source())
    await settle()
    run.delta("a", "".join(PARAGRAPHS[:5]))
    await first.until(shows(render("".join(PARAGRAPHS[:5]))))
    late = Page(run.source())
    await late.until(lambda page: bool(page.blocks))

    [snapshot] = late.of("snapshot")
    assert snapshot.payload["html"] == render("".join(PARAGRAPHS[:5]))
    assert snapshot.payload["text"] == "".join(PARAGRAPHS[:5])
    assert late.of("assistant_render") == []
    run.delta("a", "".join(PARAGRAPHS[5:]))
    await asyncio.gather(
        *(page.until(shows(render("".join(PARAGRAPHS)))) for page in (first, late))
    )
    await finish(run, first, late)


async def test_late_without_anybody_before_gets_the_snapshot_as_well(run: Run) -> None:
    run.delta("a", "**so far**")
    page = Page(run.source())
    await page.until(shows("<p><strong>so far</strong></p>\n"))
    assert [event.type for event in page.events][-1] == "snapshot"
    await finish(run, page)


async def test_all_readers_share_one_rendering(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    class Counted(Growth):
        def step(self, text: str) -> renderer.Step:
            steps.append(text)
            return super().step(text)

    monkeypatch.setattr(rendering, "Growth", Counted)  # to count
    pages = [Page(run.source()) for _ in range(10)]
    await settle()
    run.delta("a", "".join(PARAGRAPHS))
    await asyncio.gather(*(page.until(shows(render("".join(PARAGRAPHS)))) for page in pages))
    assert len(steps) == 1
    await finish(run, *pages)


async def test_the_plain_stream_beside_it_is_as_without_it(run: Run) -> None:
    alone = Client(run.source())
    page = Page(run.source())
    await settle()
    run.delta("a", "**bold**")
    run.delta("r", "hm", kind="reasoning")
    await page.until(lambda page: bool(page.of("reasoning_delta")))
    await page.until(shows("<p><strong>bold</strong></p>\n"))
    await settle()
    await finish(run, alone, page)

    kinds = {event.type for event in alone.reader.live}
    assert kinds == {"connected", "assistant_delta", "reasoning_delta"}
    assert all("html" not in event.payload for event in alone.reader.stored)
    assert page.of("assistant_message")[0].payload["html"] == "<p><strong>bold</strong></p>\n"


async def test_the_pace_is_kept(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "PACE_SECONDS", 60)
    page = Page(run.source())
    await settle()
    run.delta("a", "first")
    await page.until(shows("<p>first</p>\n"))
    for _ in range(50):
        run.delta("a", " more")
        await settle()
    assert len(page.of("assistant_render")) == 1
    await finish(run, page)
    assert page.of("assistant_message")[0].payload["html"] == f"<p>first{' more' * 50}</p>\n"


async def test_big_pieces_come_in_several_frames(run: Run) -> None:
    first = Page(run.source())
    await settle()
    whole = ""
    for number in range(12):
        whole += f"{number} {'word ' * 2000}\n\n"
        run.delta("a", f"{number} {'word ' * 2000}\n\n")
        await first.until(shows(render(whole)))
    late = Page(run.source())
    run.delta("a", "end")
    await late.until(shows(render(whole) + "<p>end</p>\n"))
    sizes = [len(event.payload["html"]) for event in late.of("assistant_render")]
    assert len(sizes) >= 2
    assert max(sizes) < FRAME_BYTES + 30_000
    await finish(run, first, late)


async def test_the_log_is_rendered_for_whoever_reads_it_again(run: Run) -> None:
    texts = [f"# {number}\n\n{'x ' * 4000}" for number in range(60)]
    run.commit(
        *(AssistantMessageAdded(step=1, block_id=str(n), text=t) for n, t in enumerate(texts))
    )
    page = Page(run.source())
    await finish(run, page)

    assert [event.payload["html"] for event in page.of("assistant_message")] == [
        render(text) for text in texts
    ]
    assert [event.id for event in page.events if event.id] == list(range(1, 65))
    assert sum(map(len, texts)) > 3 * CHUNK_BYTES


async def test_pages_get_heartbeats_with_the_newest_number(run: Run) -> None:
    page = Page(run.source(heartbeat=0.02))
    session = Page(run.world.session_source(heartbeat=0.02))
    await page.until(lambda page: len(page.of("heartbeat")) >= 2)
    await session.until(lambda page: bool(page.of("heartbeat")))

    assert page.of("heartbeat")[0].payload == {"last_sequence": 1}
    assert session.of("heartbeat")[0].payload == {"position": 1}
    assert "heartbeat" not in page.parser.comments
    await session.leave()
    await finish(run, page)


async def test_pages_come_and_go_while_text_is_written_and_all_end_right(run: Run) -> None:
    chance = random.Random(7)
    pages: list[Page] = []
    for start in range(0, len(TEXT), 11):
        run.delta("a", TEXT[start : start + 11])
        if chance.random() < 0.3:
            pages.append(Page(run.source()))
        if pages and chance.random() < 0.15:
            await pages.pop(0).leave()
        await asyncio.sleep(chance.choice([0, 0.002, 0.01]))
    await asyncio.gather(*(page.until(shows(render(TEXT))) for page in pages))
    await finish(run, *pages)

    assert pages
    assert all(page.of("assistant_message")[0].payload["html"] == render(TEXT) for page in pages)
    assert not hub.followed()[0]


# ── over HTTP ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("where", ["tasks", "sessions"])
async def test_streams_take_render_html_and_nothing_else(tmp_path: Path, where: str) -> None:
    house = await sync_to_async(make_house)(tmp_path / "desk")
    row = house.task if where == "tasks" else house.session
    headers = await sync_to_async(bearer)(house.alice)
    written: list[StoredEvent] = [
        AssistantMessageAdded(step=1, block_id="a", text="*hm*"),
        TaskCompleted(),
    ]
    await writer.run(partial(events.append, house.task.pk, written))
    client, path = AsyncClient(), f"/api/{where}/{row.pk}/stream"

    refused = await client.get(f"{path}?render=pdf", headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid")
    found = {}
    for query in ("", "?render=html"):
        response: Any = await client.get(path + query, headers=headers)
        stream: Any = aiter(response)
        parser = Parser()
        seen: list[Event] = []
        while not any(event.type == "assistant_message" for event in seen):
            seen += parser.feed(await anext(stream))
        await stream.aclose()
        found[query] = next(e.payload for e in seen if e.type == "assistant_message")
    await sync_to_async(writer.stop)()

    assert found["?render=html"] == found[""] | {"html": "<p><em>hm</em></p>\n"}
