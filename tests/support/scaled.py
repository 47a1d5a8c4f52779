"""The house of the whole-product tests in scale-out: two web processes, two workers.

Its people reach a different web process with every request, so that whatever a test does is done
through both. PostgreSQL and Redis are ours (`tests.support.services`).
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import httpx
import psycopg

from tests.support.daphne import Daphne, manage
from tests.support.e2e import DESKS, FURNISH, SETTINGS, House, Person
from tests.support.e2e_model import Model
from tests.support.services import Postgres, Redis
from tests.support.waiting import PATIENCE, happened

WORKER = [sys.executable, "manage.py", "worker"]
HELD_WORKER = [sys.executable, "-m", "tests.support.held"]
FRONT = {"PILOTHOUSE_TRUSTED_PROXIES": "127.0.0.1", "PILOTHOUSE_SIGN_IN_TRIES": "2"}
"""A proxy may stand before it; few tries, because each wrong password takes its time."""
MIGRATE = """
from django.core.management import call_command
call_command("migrate", verbosity=0, skip_checks=True)
"""
LOG_LINES = 60
ACCOUNT = {
    "open tasks": """
        SELECT id, status, run, lease_worker, lease_expires_at, cancel_requested_at, created_at
        FROM tasks_task WHERE status IN ('queued', 'running', 'waiting_approval')
        ORDER BY created_at""",
    "jobs that are not over, and the last ones": """
        SELECT j.id, j.task_name, j.status, j.worker_id, j.lock, j.args,
               (SELECT array_agg(e.type || ' ' || to_char(e.at, 'HH24:MI:SS.MS') ORDER BY e.at)
                FROM procrastinate_events e WHERE e.job_id = j.id)
        FROM procrastinate_jobs j
        WHERE j.status IN ('todo', 'doing') OR j.id > (SELECT max(id) - 10 FROM procrastinate_jobs)
        ORDER BY j.id""",
    "the queue's workers": """
        SELECT id, last_heartbeat, now() - last_heartbeat FROM procrastinate_workers""",
    "sessions of the database that do something or wait": """
        SELECT pid, application_name, state, wait_event_type, wait_event, pg_blocking_pids(pid),
               now() - state_change, left(query, 120)
        FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle'""",
}
"""What is asked of the database when a test has failed."""


class Services:
    """What scale-out stands on, and a database with people and desks to copy."""

    def __init__(self, state: Path) -> None:
        self.postgres, self.redis = Postgres(), Redis()
        self.state = state
        self.tokens: dict[str, str] = {}

    def furnish(self) -> None:
        env = self.env("template_house")
        self.postgres.run("CREATE DATABASE template_house")
        program = f"{MIGRATE}\nDESKS = {DESKS}\n{FURNISH}"
        output = manage(self.state, "shell", "-v0", "-c", program, env=env)
        self.tokens = json.loads(output.splitlines()[-1])

    def env(self, database: str) -> dict[str, str]:
        return {"DATABASE_URL": self.postgres.url(database), "REDIS_URL": self.redis.url}

    def copy(self, state: Path) -> str:
        """A house's own database and folders; the name of the database."""
        name = f"house_{uuid4().hex[:12]}"
        self.postgres.run(f"CREATE DATABASE {name} TEMPLATE template_house")
        shutil.copytree(self.state, state, dirs_exist_ok=True)
        before, after = str(self.state.resolve()), str(state.resolve())
        with psycopg.connect(self.postgres.url(name), autocommit=True) as connection:
            connection.execute(
                "UPDATE tasks_workspace SET root = replace(root, %s, %s)", [before, after]
            )
        return name

    def remove(self) -> None:
        self.postgres.remove()
        self.redis.remove()


class Worker(Daphne):
    """A worker process; there when it says so."""

    def __init__(
        self, state: Path, number: int, env: Mapping[str, str], command: list[str]
    ) -> None:
        super().__init__(state, env=env, command=command)
        self.log_file = state / f"worker-{number}.log"
        self._before = 0

    def launch(self) -> None:
        self._before = self.log_file.stat().st_size if self.log_file.exists() else 0
        super().launch()

    def answers(self) -> bool:
        return b"takes up to" in self.log_file.read_bytes()[self._before :]


class Fleet:
    """Stands where the embedded house has its one server."""

    def __init__(self, webs: list[Daphne], workers: list[Worker]) -> None:
        self.webs, self.workers = webs, workers

    @property
    def all(self) -> list[Daphne]:
        return [*self.webs, *self.workers]

    @property
    def url(self) -> str:
        return self.webs[0].url

    @property
    def port(self) -> int:
        return self.webs[0].port

    @property
    def log(self) -> str:
        return "".join(server.log for server in self.all)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for server in self.all:
                server.launch()
                stack.callback(server.__exit__)
            for server in self.all:
                server.wait_until_ready()
            self._held = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()


class Turns(httpx.AsyncBaseTransport):
    """Each request to the next web process."""

    def __init__(self, webs: list[Daphne], limits: httpx.Limits) -> None:
        self._inner = httpx.AsyncHTTPTransport(limits=limits)
        self._ports = itertools.cycle([web.port for web in webs])

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.url = request.url.copy_with(port=next(self._ports))
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


class ScaledHouse(House):
    """Web processes and workers on one database, their model, their people."""

    server: Fleet  # type: ignore[assignment] # as far as tests of both houses use it

    def __init__(
        self,
        state: Path,
        services: Services,
        model: Model,
        *,
        env: Mapping[str, str] | None = None,
        webs: int = 2,
        workers: int = 2,
        held: bool = False,
    ) -> None:
        self.state, self.model, self.services = state, model, services
        self.database, self.tokens = services.copy(state), services.tokens
        self.env = (
            SETTINGS
            | FRONT
            | {"PILOTHOUSE_LLM_BASE_URL": model.base_url}
            | services.env(self.database)
            | ({"E2E_GATES": "1"} if held else {})
            | dict(env or {})
        )
        self._command = HELD_WORKER if held else WORKER
        self.server = Fleet(
            [self._web(number) for number in range(webs)],
            [self.worker(number) for number in range(workers)],
        )
        self._desks = iter(range(DESKS))

    def _web(self, number: int) -> Daphne:
        named = f"{self.env['DATABASE_URL']}?application_name=web{number}"
        web = Daphne(self.state, env=self.env | {"DATABASE_URL": named})
        web.log_file = self.state / f"web-{number}.log"
        return web

    def worker(self, number: int) -> Worker:
        """Another one, not started."""
        return Worker(self.state, number, self.env, self._command)

    async def check_nobody_is_left(self) -> None:
        """No task is open, and the queue is empty."""
        open_tasks = "status IN ('queued', 'running', 'waiting_approval')"
        assert self.sql(f"SELECT id, status FROM tasks_task WHERE {open_tasks}") == []

        def jobs() -> list[tuple[Any, ...]]:
            waiting = "status IN ('todo', 'doing') AND queue_name = 'runs'"
            return self.sql(f"SELECT id FROM procrastinate_jobs WHERE {waiting}")

        await happened(lambda: jobs() == [])

    def complete(self) -> None:
        """Whoever was killed is started again."""
        dead = [server for server in self.server.all if server.process.poll() is not None]
        for server in dead:
            server.launch()
        for server in dead:
            server.wait_until_ready()

    def worker_of(self, task: dict[str, Any]) -> Worker:
        """Who runs it now."""
        return self.worker_with(int(task["worker"].rpartition(":")[2]))

    def worker_with(self, pid: int) -> Worker:
        return next(worker for worker in self.server.workers if worker.pid == pid)

    @asynccontextmanager
    async def person_at(self, name: str, url: str) -> AsyncIterator[Person]:
        """Somebody who knows one web process, or what stands before them all."""
        headers = {"Authorization": f"Bearer {self.tokens[name]}"} if name else {}
        limits = httpx.Limits(max_connections=1000, max_keepalive_connections=5)
        async with httpx.AsyncClient(
            base_url=url, headers=headers, timeout=PATIENCE, limits=limits
        ) as http:
            yield Person(name, http)

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(
            self.services.postgres.url(self.database), autocommit=True
        ) as database:
            database.execute("SET TIME ZONE 'UTC'")
            cursor = database.execute(statement.replace("?", "%s").encode(), values)
            return cursor.fetchall() if cursor.description else []

    def id_in_database(self, identity: str) -> str:
        return identity

    def transport(self, limits: httpx.Limits) -> httpx.AsyncBaseTransport:
        return Turns(self.server.webs, limits)

    def account(self) -> list[tuple[str, str]]:
        """What a test that failed wants to know: the processes, the queue, the database."""
        processes = [
            f"{server.log_file.name}: pid {server.pid}, status {server.process.poll()}"
            for server in self.server.all
        ]
        tables = [
            (title, "\n".join(map(str, self.sql(statement))))
            for title, statement in ACCOUNT.items()
        ]
        logs = [
            (server.log_file.name, "\n".join(server.log.splitlines()[-LOG_LINES:]))
            for server in self.server.all
        ]
        return [("processes", "\n".join(processes)), *tables, *logs]

    def verify_log(self) -> str:
        output = manage(self.state, "verify_log", env=self.env)
        assert " 0 broken" in output
        return output


async def guess(somebody: Person, address: str = "") -> int:
    """The answer to a wrong password for charlie, from that address."""
    headers = {"X-Forwarded-For": address} if address else {}
    page = (await somebody.http.get("/sign-in", headers=headers)).text
    found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
    assert found is not None
    form = {"username": "charlie", "password": "?", "csrfmiddlewaretoken": found[1]}
    return (await somebody.http.post("/sign-in", data=form, headers=headers)).status_code
