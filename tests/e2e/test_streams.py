"""The streams as clients of every kind read them: many, late, slow, old, and shut out."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from tests.support.e2e import Follower, House, Person
from tests.support.e2e_model import Hold, words
from tests.support.sse import Event, Parser, Reader, open_stream
from tests.support.waiting import PATIENCE, happened

pytestmark = pytest.mark.e2e


# ── many and late ─────────────────────────────────────────────────────────────────────────────


async def test_b01_sixty_clients_at_random_moments_miss_nothing(
    house: House, alice: Person
) -> None:
    house.model.pace["B01"] = 0.25
    chance = random.Random()
    task = await alice.ask(house.desk(), "[B01] Say two hundred words")
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(alice.follow(task["id"]))

        async def join() -> Follower:
            await asyncio.sleep(chance.uniform(0, 2))
            seen = first.reader.ids[-1] if first.reader.ids else 0
            cursor = chance.choice([None, chance.randint(0, seen)])
            return await stack.enter_async_context(alice.follow(task["id"], cursor))

        clients = [first, *await asyncio.gather(*(join() for _ in range(60)))]
        await asyncio.gather(*(finished(client) for client in clients))
    answer = (await alice.task(task["id"]))["final_answer"]
    assert answer == "".join(f"w{number} " for number in range(200))
    await house.check(alice, task["id"], *(c for c in clients if c.reader.stored))
    watched = [text for client in clients if (text := watched_text(client))]
    assert len(watched) > 10, "they came while it was spoken"
    assert set(watched) == {answer}


def watched_text(client: Follower) -> str:
    """What it put together of a task with one message."""
    parts = [event.payload for event in client.reader.live if event.type != "connected"]
    return "".join(part.get("text") or part["delta"] for part in parts)


async def finished(client: Follower) -> None:
    """To the terminal event, or told that there is nothing left."""
    await happened(lambda: client.reader.ended or client.finished == 204)


async def test_b05_after_the_end_nobody_reconnects_for_ever(house: House, alice: Person) -> None:
    task = await alice.ask(house.desk(), "[B05] Say something")
    async with alice.follow(task["id"]) as client:
        await client.end()
    url = f"/api/tasks/{task['id']}/stream"
    last = str(client.reader.last_id)
    for _ in range(2):
        answer = await alice.http.get(url, headers={"Last-Event-ID": last})
        assert (answer.status_code, answer.content) == (204, b"")
    async with alice.follow(task["id"], client.reader.last_id) as again:
        await happened(lambda: again.finished == 204)
    assert again.connections == 0


async def test_a_session_stream_spans_its_tasks(house: House, alice: Person) -> None:
    name = house.model.script("span", ["One."])
    first = await alice.ask(house.desk(), f"[{name}] One")
    client = Follower(alice.http, f"/api/sessions/{first['session_id']}/stream", Reader())
    async with client:
        await client.seen("task_completed")
        second = await alice.ask(None, f"[{name}] Two", session_id=first["session_id"])
        client.drop()
        await client.seen("task_completed", 2)
    assert {event.task_id for event in client.reader.stored} == {first["id"], second["id"]}
    assert client.reader.ids == list(range(1, len(client.reader.ids) + 1))


# ── through old and odd clients ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("version", "more"), [("1.0", ""), ("1.1", "Accept-Encoding: gzip, br\r\n")]
)
async def test_b10_words_arrive_while_they_are_spoken(
    house: House, alice: Person, version: str, more: str
) -> None:
    """Nothing gathers the stream: half an answer is there while the model still pauses."""
    pause = Hold()
    name = f"b10-{version[-1]}"
    house.model.script(name, [*words(10), pause, *words(20)[10:]])
    task = await alice.ask(house.desk(), f"[{name}] Talk")
    head = raw_request(house, task["stream_url"], version, more)
    reader, writer = await asyncio.open_connection("127.0.0.1", house.server.port)
    try:
        writer.write(head)
        async with asyncio.timeout(PATIENCE):
            before = await reader.readuntil(b"w9 ")
            assert not pause.released.is_set()
            pause.release()
            rest = await reader.readuntil(b"event: task_completed")
    finally:
        writer.close()
        await writer.wait_closed()
    headers = before.partition(b"\r\n\r\n")[0].lower()
    assert b" 200 " in headers.splitlines()[0]
    assert b"x-accel-buffering: no" in headers
    assert b"cache-control: no-cache, no-transform" in headers
    assert b"content-encoding: identity" in headers
    assert before.count(b"event: assistant_delta") > 1
    assert b"w19 " in rest


def raw_request(house: House, path: str, version: str, more: str = "") -> bytes:
    token = house.tokens["alice"]
    return (
        f"GET {path} HTTP/{version}\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n{more}\r\n"
    ).encode()


async def test_b10_comments_keep_a_waiting_stream_alive(house: House, alice: Person) -> None:
    task = await alice.ask(house.desk(), "[C01/idle] Write it")
    parser = Parser()
    async with open_stream(alice.http, task["stream_url"], parser=parser) as received:
        async for event in received:
            if event.type == "approval_required":
                break
        reading = asyncio.create_task(_read_on(received))
        try:
            # `: connected` comes first; each heartbeat is one more.
            await happened(lambda: len(parser.comments) > 3)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
    assert parser.comments[0] == "connected"
    await alice.cancel(task["id"])


async def _read_on(received: AsyncIterator[Event]) -> list[str]:
    return [event.type async for event in received]


async def test_a_slow_reader_gets_everything(house: House, alice: Person) -> None:
    """More text than the line holds, for somebody who reads nothing until it is over."""
    pieces = ["0123456789abcdef" * 1024] * 128
    name = house.model.script("flood", pieces)
    task = await alice.ask(house.desk(), f"[{name}] Say two million letters")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    connection.settimeout(PATIENCE)
    try:
        connection.connect(("127.0.0.1", house.server.port))
        connection.sendall(raw_request(house, task["stream_url"], "1.0"))
        await alice.until(task["id"], "completed")
        body = await asyncio.to_thread(_slurp, connection)
    finally:
        connection.close()
    reader, parser = Reader(), Parser()
    for event in parser.feed(body.partition(b"\r\n\r\n")[2]):
        reader.apply(event)
    assert reader.ended
    assert (await alice.task(task["id"]))["final_answer"] == "".join(pieces)
    log = await alice.events(task["id"])
    assert [event.data for event in reader.stored] == log


def _slurp(connection: socket.socket) -> bytes:
    received = bytearray()
    while piece := connection.recv(65_536):
        received += piece
        if len(received) < 1_000_000:
            time.sleep(0.001)
    return bytes(received)


# ── shut out ──────────────────────────────────────────────────────────────────────────────────


async def test_f01_another_persons_ids_are_nobodys(house: House, alice: Person) -> None:
    task = await alice.ask(house.desk(), "[C01/foreign] Write it")
    async with alice.follow(task["id"]) as client:
        approval = await client.approval()
        last = client.reader.ids[-1]
    async with house.person("charlie") as charlie, house.person("") as nobody:
        unknown = "00000000-0000-4000-8000-000000000000"
        cases: list[tuple[str, str, Any]] = [
            ("GET", "/api/tasks/{task}", None),
            ("GET", "/api/tasks/{task}/events", None),
            ("GET", "/api/tasks/{task}/events/1", None),
            ("GET", "/api/tasks/{task}/stream", None),
            ("POST", "/api/tasks/{task}/cancel", {}),
            ("POST", "/api/tasks/{task}/retry", {}),
            ("POST", "/api/tasks/{task}/messages", {"text": "x", "delivery": "steer"}),
            ("GET", "/api/approvals/{approval}", None),
            ("POST", "/api/approvals/{approval}/resolve", {"decision": "approve"}),
            ("GET", "/api/sessions/{session}/stream", None),
            ("GET", "/api/stream/{session}", None),
            ("POST", "/api/tasks", {"goal": "x", "follow_up_of": "{task}"}),
            ("POST", "/api/tasks", {"goal": "x", "session_id": "{session}"}),
        ]
        ours = {"task": task["id"], "approval": approval, "session": task["session_id"]}
        for method, path, body in cases:
            for person in (charlie, nobody):
                answers = [
                    await _request(person, method, path, body, ids, last)
                    for ids in (ours, dict.fromkeys(ours, unknown))
                ]
                wanted = 404 if person is charlie else 401
                assert [a.status_code for a in answers] == [wanted] * 2, (path, person.name)
                assert answers[0].content == answers[1].content, path
        for listing in ("/api/tasks", "/api/approvals", "/api/sessions"):
            assert (await charlie.get(listing))["items"] == []
    assert (await alice.task(task["id"]))["last_sequence"] == last
    await alice.cancel(task["id"])


async def _request(
    person: Person, method: str, path: str, body: Any, ids: dict[str, str], last: int
) -> httpx.Response:
    filled = None if body is None else json.loads(_fill(json.dumps(body), ids))
    headers = {"Last-Event-ID": str(last)}
    return await person.http.request(method, _fill(path, ids), json=filled, headers=headers)


def _fill(text: str, ids: dict[str, str]) -> str:
    for name, value in ids.items():
        text = text.replace("{" + name + "}", value)
    return text


# ── shut out while reading ────────────────────────────────────────────────────────────────────


async def test_f01_a_revoked_token_ends_its_stream(house: House, alice: Person) -> None:
    made = await alice.post("/api/tokens", {"name": "phone", "scopes": ["read"]}, 201)
    task = await alice.ask(house.desk(), "[C01/revoked] Write it")
    headers = {"Authorization": f"Bearer {made['token']}"}
    async with httpx.AsyncClient(base_url=house.server.url, headers=headers) as phone:

        async def revoke() -> None:
            assert (await alice.http.delete(f"/api/tokens/{made['id']}")).status_code == 204

        await ends_when(revoke, phone, task["stream_url"])
        assert (await phone.get(task["stream_url"])).status_code == 401
    await alice.cancel(task["id"])


async def test_f01_a_deactivated_persons_stream_ends(house: House) -> None:
    async with house.person("dana") as dana:
        task = await dana.ask(None, "[C01/dana] Write it")

        async def deactivate() -> None:
            house.sql("UPDATE auth_user SET is_active = FALSE WHERE username = 'dana'")

        await ends_when(deactivate, dana.http, task["stream_url"])
        assert (await dana.http.get(task["stream_url"])).status_code == 401


async def test_f01_a_former_members_stream_ends(house: House, alice: Person, bob: Person) -> None:
    desk = house.desk()
    task = await alice.ask(desk, "[C01/former] Write it")

    async def remove() -> None:
        house.sql("DELETE FROM tasks_member WHERE workspace_id = ?", desk.id)

    await ends_when(remove, bob.http, task["stream_url"])
    assert (await bob.http.get(task["stream_url"])).status_code == 404
    await alice.cancel(task["id"])


async def ends_when(shut: Callable[[], Awaitable[None]], http: httpx.AsyncClient, url: str) -> None:
    """The stream of a task that waits ends within one heartbeat, and not before."""
    parser = Parser()
    async with asyncio.timeout(PATIENCE), open_stream(http, url, parser=parser) as received:
        async for event in received:
            if event.type == "approval_required":
                break
        reading = asyncio.create_task(_read_on(received))
        await happened(lambda: len(parser.comments) > 2)
        assert not reading.done()
        await shut()
        before = len(parser.comments)
        assert await reading == []
    assert len(parser.comments) <= before + 1
