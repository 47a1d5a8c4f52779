"""Whole-product tests: a real server, people with tokens, and clients that keep a record.

    async with house.person("alice") as alice:
        task = await alice.ask(house.desk(), "[A01/one] Read both files")
        async with alice.follow(task["id"]) as client:
            await client.end()
    await house.check(alice, task["id"], client)

`Follower` is a browser's EventSource: it opens the stream again with its cursor whenever it
breaks, for as long as the task lasts, and its `Reader` fails when an event is lost or comes twice.
`House.check` holds what must be true of every task after whatever happened to it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx

from tests.support.daphne import Daphne, manage, migrated
from tests.support.e2e_model import Model
from tests.support.sse import TERMINAL, Event, Parser, Reader, events
from tests.support.waiting import PATIENCE

DESKS = 120
CANARY = "sk-live-CANARY-7f3a"
SETTINGS = {
    "PILOTHOUSE_LLM_MODEL": "m",
    "PILOTHOUSE_LLM_API_KEY": CANARY,
    "PILOTHOUSE_SSE_HEARTBEAT_SECONDS": "0.5",
    "PILOTHOUSE_WATCH_SECONDS": "0.2",
    "PILOTHOUSE_LEASE_SECONDS": "2",
}
STATUS = {
    "task_completed": "completed",
    "task_failed": "failed",
    "task_cancelled": "cancelled",
    "budget_exceeded": "budget_exceeded",
}
ENDED = frozenset(STATUS.values())
FURNISH = """
import json
from pathlib import Path
from django.contrib.auth.models import User
from django.db import transaction
from tasks import access, workspaces
from tasks.conf import conf
from tasks.models import Member
people = {name: User.objects.create(username=name) for name in ("alice", "bob", "charlie", "dana")}
with transaction.atomic():
    for number in range(DESKS):
        folder = conf().workspaces_dir / f"desk{number:03}"
        folder.mkdir(parents=True)
        desk = workspaces.register(people["alice"], folder.name, folder)
        Member.objects.create(workspace=desk, user=people["bob"], role="approver")
    for name in ("charlie", "dana"):
        folder = conf().workspaces_dir / name
        folder.mkdir()
        workspaces.register(people[name], name, folder)
print(json.dumps({name: access.issue_token(user, "e2e") for name, user in people.items()}))
"""


# ── a server with people and desks ────────────────────────────────────────────────────────────


class Furnished:
    """A database with people, tokens and workspaces; made once, copied for every server."""

    def __init__(self, state: Path) -> None:
        self._state = state
        migrated(state)
        output = manage(state, "shell", "-v0", "-c", f"DESKS = {DESKS}\n{FURNISH}")
        self._tokens: dict[str, str] = json.loads(output.splitlines()[-1])

    def copy(self, state: Path) -> dict[str, str]:
        """Set `state` up; the tokens of the people."""
        shutil.copytree(self._state, state, dirs_exist_ok=True)
        with opened(state) as database:
            database.execute(
                "UPDATE tasks_workspace SET root = replace(root, ?, ?)",
                (str(self._state.resolve()), str(state.resolve())),
            )
        return self._tokens


@contextmanager
def opened(state: Path) -> Iterator[sqlite3.Connection]:
    """The database of a server, beside it; committed at the end."""
    database = sqlite3.connect(state / "db.sqlite3", timeout=20)
    database.row_factory = sqlite3.Row
    try:
        with database:
            yield database
    finally:
        database.close()


@dataclass(frozen=True)
class Desk:
    """A workspace of alice's where bob may decide; a.txt and b.txt lie on it."""

    id: str
    folder: Path

    def text(self, name: str) -> str | None:
        path = self.folder / name
        return path.read_text() if path.exists() else None


class House:
    """One server, its model, its people."""

    def __init__(
        self,
        state: Path,
        furnished: Furnished,
        model: Model,
        *,
        env: Mapping[str, str] | None = None,
        application: str = "config.asgi:application",
        command: list[str] | None = None,
    ) -> None:
        self.state, self.model = state, model
        self.tokens = furnished.copy(state)
        settings = SETTINGS | {"PILOTHOUSE_LLM_BASE_URL": model.base_url} | dict(env or {})
        self.server = Daphne(state, env=settings, application=application, command=command)
        self._desks = iter(range(DESKS))

    def desk(self) -> Desk:
        """A fresh one."""
        name = f"desk{next(self._desks):03}"
        ((identity, root),) = self.sql("SELECT id, root FROM tasks_workspace WHERE name = ?", name)
        folder = Path(root)
        for file, text in {"a.txt": "AAA", "b.txt": "BBB"}.items():
            (folder / file).write_text(text)
        return Desk(str(identity), folder)

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """In the server's database, behind its back."""
        with opened(self.state) as database:
            return [tuple(row) for row in database.execute(statement, values)]

    def id_in_database(self, identity: str) -> str:
        """As this database keeps it."""
        return identity.replace("-", "")

    def transport(self, limits: httpx.Limits) -> httpx.AsyncBaseTransport:
        """How its people reach it."""
        return httpx.AsyncHTTPTransport(limits=limits)

    @asynccontextmanager
    async def person(self, name: str) -> AsyncIterator[Person]:
        headers = {"Authorization": f"Bearer {self.tokens[name]}"} if name else {}
        limits = httpx.Limits(max_connections=200, max_keepalive_connections=5)
        async with httpx.AsyncClient(
            base_url=self.server.url,
            headers=headers,
            timeout=PATIENCE,
            transport=self.transport(limits),
        ) as http:
            yield Person(name, http)

    async def restart(self) -> None:
        """Start again after the process has ended."""
        await asyncio.to_thread(self.server.start)

    async def check(self, person: Person, task_id: str, *clients: Follower) -> list[dict[str, Any]]:
        """What holds for every task, whatever happened to it; its events."""
        log, task = await person.events(task_id), await person.task(task_id)
        assert [event["sequence"] for event in log] == list(range(1, task["last_sequence"] + 1))
        for client in clients:
            seen = [event.data for event in client.reader.stored]
            first = client.reader.stored[0].sequence if seen else 1
            assert _comparable(seen) == _comparable(log[first - 1 :])
        if task["status"] in STATUS.values():
            check_ended(log, task)
        check_journal(log)
        check_chain(self, task_id)
        return log

    def verify_log(self) -> str:
        output = manage(self.state, "verify_log")
        assert " 0 broken" in output
        return output

    def refusals(self) -> list[str]:
        """What the strict model had to refuse so far."""
        return [refusal for run in self.model.runs.values() for refusal in run.refusals]


def _comparable(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Streams cut large results; everything else is the same, field by field."""
    return [
        {**event, "payload": {**event["payload"], "content": ""}}
        if "content" in event["payload"] and len(str(event["payload"])) > 4000
        else event
        for event in log
    ]


def check_ended(log: list[dict[str, Any]], task: dict[str, Any]) -> None:
    ends = [event["type"] for event in log if event["type"] in TERMINAL]
    assert ends == [log[-1]["type"]]
    assert STATUS[ends[0]] == task["status"]
    asked = {e["payload"]["tool_call_id"] for e in log if e["type"] == "tool_call_requested"}
    settled = [e["payload"]["tool_call_id"] for e in log if e["type"] == "tool_call_finished"]
    assert sorted(settled) == sorted(asked), "every call has exactly one result"


def check_journal(log: list[dict[str, Any]]) -> None:
    """An effect begins only after an approval of its own, and each approval begins it once."""
    capability: dict[str, str] = {}
    allowed: Counter[str] = Counter()
    for event in log:
        payload = event["payload"]
        match event["type"]:
            case "tool_call_requested":
                capability[payload["tool_call_id"]] = payload["capability"]
            case "approval_resolved" if payload["status"] == "approved":
                allowed[payload["tool_call_id"]] += payload["answer"] != "done"
            case "tool_call_started" if not capability[payload["tool_call_id"]].endswith(":read"):
                assert allowed[payload["tool_call_id"]] > 0, "an effect without an approval"
                allowed[payload["tool_call_id"]] -= 1


def check_chain(house: House, task_id: str) -> None:
    """As docs/events.md tells a stranger to do it."""
    key = bytes.fromhex((house.state / "var" / "audit.key").read_text().strip())
    rows = house.sql(
        "SELECT sequence, type, payload, created_at, hash FROM tasks_taskevent"
        " WHERE task_id = ? ORDER BY sequence",
        house.id_in_database(task_id),
    )
    head = "0" * 64
    for sequence, type_, payload, created_at, digest in rows:
        day, _, clock = str(created_at).removesuffix("+00:00").partition(" ")
        stamp = f"{day}T{clock if '.' in clock else clock + '.000'}"[:23] + "Z"
        record = f'["{task_id}",{sequence},"{type_}","{stamp}",{payload}]'
        head = hmac.new(key, (head + record).encode(), hashlib.sha256).hexdigest()
        assert head == digest, f"sequence {sequence} does not match its hash"


# ── people ────────────────────────────────────────────────────────────────────────────────────


class Person:
    """Somebody with an API token."""

    def __init__(self, name: str, http: httpx.AsyncClient) -> None:
        self.name, self.http = name, http

    async def ask(self, desk: Desk | None, goal: str, **more: Any) -> dict[str, Any]:
        body = {"goal": goal} | ({"workspace_id": desk.id} if desk else {}) | more
        return await self.post("/api/tasks", body)

    async def post(self, path: str, body: Any = None, status: int = 202) -> dict[str, Any]:
        answer = await self.http.post(path, json=body)
        assert answer.status_code == status, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def get(self, path: str) -> dict[str, Any]:
        answer = await self.http.get(path)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def task(self, task_id: str) -> dict[str, Any]:
        return await self.get(f"/api/tasks/{task_id}")

    async def events(self, task_id: str) -> list[dict[str, Any]]:
        log: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            page = await self.get(f"/api/tasks/{task_id}/events?after={after}&limit=1000")
            log += page["items"]
            after = page["next"]
        return log

    async def until(self, task_id: str, *statuses: str) -> dict[str, Any]:
        """The task, as soon as it has one of these."""
        async with asyncio.timeout(PATIENCE):
            while True:
                task = await self.task(task_id)
                if task["status"] in statuses:
                    return task
                assert task["status"] not in ENDED, f"it is {task['status']}: {task['error']}"
                await asyncio.sleep(0.05)

    async def pending(self, task_id: str) -> list[dict[str, Any]]:
        found = await self.get(f"/api/approvals?status=pending&task_id={task_id}")
        items: list[dict[str, Any]] = found["items"]
        return items

    async def resolve(
        self, approval_id: str, decision: str = "approve", **more: Any
    ) -> httpx.Response:
        body = {"decision": decision, **more}
        return await self.http.post(f"/api/approvals/{approval_id}/resolve", json=body)

    async def approve(self, approval_id: str, **more: Any) -> dict[str, Any]:
        answer = await self.resolve(approval_id, "approve", **more)
        assert answer.status_code == 202, answer.text
        approval: dict[str, Any] = answer.json()["approval"]
        return approval

    async def cancel(self, task_id: str) -> dict[str, Any]:
        return await self.post(f"/api/tasks/{task_id}/cancel")

    def follow(self, task_id: str, last_event_id: int | None = None) -> Follower:
        reader = Reader(last_id=last_event_id)
        return Follower(self.http, f"/api/tasks/{task_id}/stream", reader)


class _Cut(Exception):
    """The stream ended and the task has not."""


@dataclass(eq=False)
class Follower:
    """Follows a task through cuts, crashes and restarts, until its end."""

    http: httpx.AsyncClient
    url: str
    reader: Reader = field(default_factory=Reader)
    connections: int = 0
    finished: int | None = None
    """204, once the server said that there is nothing left."""
    _heard: asyncio.Event = field(default_factory=asyncio.Event)
    _connection: asyncio.Task[None] | None = None
    _work: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._work = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._work is not None
        self._work.cancel()
        with suppress(asyncio.CancelledError):
            await self._work

    def drop(self) -> None:
        """The client's line breaks, now."""
        if self._connection is not None:
            self._connection.cancel()

    async def until(self, condition: Callable[[Reader], Any], seconds: float = PATIENCE) -> Any:
        """The first true answer of `condition`, looked at after every event."""
        assert self._work is not None
        async with asyncio.timeout(seconds):
            while not (answer := condition(self.reader)):
                if self._work.done():
                    await self._work
                    raise AssertionError(f"it ended before: {self.types}")
                self._heard.clear()
                await self._heard.wait()
        return answer

    async def seen(self, type_: str, number: int = 1) -> Event:
        """The event of that type, the first one unless told otherwise."""

        def find(reader: Reader) -> Event | None:
            found = [e for e in (*reader.stored, *reader.live) if e.type == type_]
            return found[number - 1] if len(found) >= number else None

        event: Event = await self.until(find)
        return event

    async def approval(self, number: int = 1) -> str:
        """The id of what is asked."""
        return str((await self.seen("approval_required", number)).payload["approval_id"])

    async def words(self, count: int) -> None:
        """So much of the open text has been seen."""
        await self.until(lambda reader: any(f"w{count - 1} " in t for t in texts(reader)))

    async def end(self, status: str = "completed") -> Event:
        event: Event = await self.until(lambda reader: reader.ended and reader.stored[-1])
        assert STATUS[event.type] == status, (event.type, event.payload)
        return event

    @property
    def _over(self) -> bool:
        """A session's stream goes on after the end of a task."""
        return self.reader.ended and "/sessions/" not in self.url

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.reader.stored]

    async def _follow(self) -> None:
        try:
            while not self._over and self.finished is None:
                self._connection = asyncio.create_task(self._once())
                try:
                    await asyncio.wait({self._connection})
                finally:
                    self._connection.cancel()
                if not self._connection.cancelled():
                    failure = self._connection.exception()
                    if failure is not None and not isinstance(failure, _Cut | httpx.TransportError):
                        raise failure
                await asyncio.sleep(0.05)
        finally:
            self._heard.set()

    async def _once(self) -> None:
        self.reader.open_blocks.clear()
        headers = {}
        if self.reader.last_id is not None:
            headers["Last-Event-ID"] = str(self.reader.last_id)
        async with self.http.stream("GET", self.url, headers=headers) as answer:
            if answer.status_code == 503:
                raise _Cut
            if answer.status_code == 204:
                self.finished = 204
                return
            assert answer.status_code == 200, (answer.status_code, await answer.aread())
            self.connections += 1
            async for event in events(answer.aiter_bytes(), Parser()):
                self.reader.apply(event)
                self._heard.set()


def texts(reader: Reader) -> list[str]:
    return list(reader.open_blocks.values())
