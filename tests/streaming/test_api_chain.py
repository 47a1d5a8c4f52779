"""What stands before the API and its streams: every refusal, alike for both, and what a request costs."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from pytest_django import Settings

from agent.events import TaskCompleted, UserMessageAdded
from streaming.asgi.body import BodyLimit
from streaming.asgi.exchanges import OpenExchanges
from streaming.asgi.lanes import LaneHandler
from streaming.asgi.wire import Message
from tasks import events
from tasks.hub import hub
from tasks.models import Task
from tasks.writer import writer
from tests.support.people import House, bearer, make_house
from tests.support.rows import make_task

pytestmark = pytest.mark.django_db(transaction=True)

NOBODY = "00000000-0000-4000-8000-000000000000"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        return str(json.loads(self.body)["error"]["code"])


class Door:
    """The application as servers call it, but for what begins and ends with the process."""

    def __init__(self, token: dict[str, str]) -> None:
        self.handler = LaneHandler()
        self._app = OpenExchanges(BodyLimit(self.handler))
        self._token = token

    async def ask(
        self, method: str, path: str, body: bytes = b"", token: bool = True, **headers: str
    ) -> Answer:
        path, _, query = path.partition("?")
        named = {"host": "testserver"} | (self._token if token else {})
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "client": ("127.0.0.1", 1),
            "server": ("testserver", 80),
            "headers": [(name.lower().encode(), text.encode()) for name, text in named.items()],
        }
        sent: list[Message] = []
        inbox: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            return inbox.pop() if inbox else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        lines = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
        whole = b"".join(message.get("body", b"") for message in sent[1:])
        return Answer(sent[0]["status"], lines, whole)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return make_house(tmp_path / "desk")


@pytest.fixture
async def door(house: House, clean_hub: None) -> AsyncIterator[Door]:
    door = Door(await sync_to_async(bearer)(house.alice))
    yield door
    await door.handler.close(5)


@pytest.fixture
async def task(house: House) -> Task:
    task = await sync_to_async(make_task)(house.session, status=Task.Status.COMPLETED)
    await writer.run(partial(events.append, task.pk, [TaskCompleted()]))
    return task


SAFE = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cache-control": "private, no-store",
}

REFUSED: dict[str, tuple[int, str, dict[str, Any]]] = {
    "nobody": (401, "not_authenticated", {"token": False}),
    "a wrong token": (401, "not_authenticated", {"Authorization": "Bearer ph_wrong"}),
    "another scheme": (401, "not_authenticated", {"Authorization": "Basic YTpi"}),
    "a wrong cookie": (401, "not_authenticated", {"token": False, "Cookie": "sessionid=x"}),
    "a hostile cookie": (401, "not_authenticated", {"token": False, "Cookie": 'sessionid="\\000"'}),
    "a foreign host": (400, "bad_host", {"host": "evil.example"}),
    "a foreign host beside ours": (400, "bad_host", {"host": "testserver,evil.example"}),
    "no host at all": (400, "bad_host", {"host": ""}),
    "another method": (405, "method_not_allowed", {"method": "PUT"}),
    "an unknown task": (404, "not_found", {"id": NOBODY}),
    "no id": (404, "not_found", {"id": "nonsense"}),
    "too long a body": (413, "too_large", {"method": "POST", "body": b"x" * (2 * 1024 * 1024 + 1)}),
}


@pytest.mark.parametrize("where", ["/api/tasks/{id}", "/api/tasks/{id}/stream"])
@pytest.mark.parametrize("case", REFUSED)
async def test_a_refusal_is_the_same_of_an_operation_and_of_a_stream(
    door: Door, task: Task, where: str, case: str
) -> None:
    status, code, asked = REFUSED[case]
    asked = {"method": "GET", "id": str(task.pk)} | asked
    path = where.format(id=asked.pop("id"))
    answer = await door.ask(path=path, **asked)
    assert (answer.status, answer.code) == (status, code)
    assert answer.headers["content-type"] == "application/json"
    if case != "too long a body":  # refused before anything is read of its request
        assert SAFE.items() <= answer.headers.items()
    if status == 401:
        assert answer.headers["www-authenticate"] == "Bearer"
    if status == 405:
        assert answer.headers["allow"] == "GET"
    assert hub.is_empty()


@pytest.mark.parametrize("cursor", ["x", "-1", "1.5", "9" * 400])
async def test_a_cursor_that_is_none_is_refused(door: Door, task: Task, cursor: str) -> None:
    path = f"/api/tasks/{task.pk}/stream"
    for answer in (
        await door.ask("GET", f"{path}?after={cursor}"),
        await door.ask("GET", path, Last_Event_ID=cursor),
    ):
        assert (answer.status, answer.code) == (400, "invalid_cursor")
        assert SAFE.items() <= answer.headers.items()


@pytest.mark.parametrize("path", ["/apis", "/no-such-page"])
async def test_what_is_no_api_path_is_a_page_s_business(door: Door, path: str) -> None:
    answer = await door.ask("GET", path)
    assert answer.status == 404
    assert "script-src" in answer.headers["content-security-policy"]


async def test_a_cookie_needs_its_csrf_token_to_change_anything(
    door: Door, house: House, async_client: Any
) -> None:
    await async_client.aforce_login(house.alice)
    cookie = f"sessionid={async_client.cookies['sessionid'].value}"
    goal = json.dumps({"goal": "look"}).encode()
    refused = await door.ask("POST", "/api/tasks", goal, token=False, Cookie=cookie)
    assert (refused.status, refused.code) == (403, "csrf")
    secret = "a" * 32
    named = {"Cookie": f"{cookie}; csrftoken={secret}", "X-CSRFToken": secret}
    accepted = await door.ask("POST", "/api/tasks", goal, token=False, **named)
    assert accepted.status == 202


async def test_hsts_is_said_to_who_came_by_tls(door: Door, settings: Settings) -> None:
    settings.SECURE_HSTS_SECONDS = 60
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    plain = await door.ask("GET", "/healthz")
    assert "strict-transport-security" not in plain.headers
    tls = await door.ask("GET", "/healthz", X_Forwarded_Proto="https")
    assert tls.headers["strict-transport-security"] == "max-age=60"


async def test_an_answer_keeps_its_cookies_and_its_length(door: Door, task: Task) -> None:
    docs = await door.ask("GET", "/api/docs")
    assert docs.headers["set-cookie"].startswith("csrftoken=")
    text = "é" * 100_000
    said = UserMessageAdded(message_id="m", text=text, by="alice")
    await writer.run(partial(events.append, task.pk, [said]))
    told = await door.ask("GET", f"/api/tasks/{task.pk}/events?after=1")
    assert json.loads(told.body)["items"][0]["payload"]["text"] == text


LOOP_CALLS = {"create": 315, "read": 225, "stream": 265, "probe": 115}
"""At most, of functions of Python on the event loop, asyncio's own left out: another loop has none."""


async def test_what_a_request_costs_on_the_event_loop(door: Door, task: Task) -> None:
    goal = json.dumps({"goal": "look"}).encode()

    async def once(kind: str) -> Answer:
        match kind:
            case "create":
                return await door.ask("POST", "/api/tasks", goal, Content_Type="application/json")
            case "read":
                return await door.ask("GET", f"/api/tasks/{task.pk}")
            case "stream":
                return await door.ask("GET", f"/api/tasks/{task.pk}/stream?after=0")
            case _:
                return await door.ask("GET", "/healthz")

    calls = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        if event == "call":
            file = frame.f_code.co_filename
            calls += "/asyncio/" not in file and not file.endswith("selectors.py")

    for kind, most in LOOP_CALLS.items():
        assert (await once(kind)).status < 300  # what is made once is made
        calls = 0
        sys.setprofile(note)
        try:
            for _ in range(5):
                await once(kind)
        finally:
            sys.setprofile(None)
        assert calls / 5 < most, kind
