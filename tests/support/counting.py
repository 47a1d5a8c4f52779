"""What a piece of code costs, counted and never timed: statements, and how much the database read.

    with counted() as work:
        client.get("/api/tasks")
    assert work.statements < 10

On SQLite `read` is the number of steps of its virtual machine; on PostgreSQL the number of rows that
were fetched from tables, through an index or not. `scans()` looks at the plans.
"""

from __future__ import annotations

import gc
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from django.db import connection
from django.test.utils import CaptureQueriesContext

from tasks.writer import writer

STEPS = 100
_ROWS_READ = """
    SELECT coalesce(sum(seq_tup_read), 0) + coalesce(sum(idx_tup_fetch), 0)
    FROM pg_stat_xact_user_tables"""


@dataclass
class Work:
    """What was done between the beginning and the end of a block."""

    read: int = 0
    sql: list[str] = field(default_factory=list)

    @property
    def statements(self) -> int:
        return len(self.sql)

    def __str__(self) -> str:
        return f"{self.statements} statements, {self.read} read"


def scans(text: str) -> bool:
    """Whether a statement reads one of the large tables from end to end, without an index."""
    if not text.startswith(("SELECT", "WITH")):
        return False
    with connection.cursor() as cursor:
        cursor.execute(f"{_EXPLAIN[connection.vendor]} {text.replace('%', '%%')}")
        plan = [str(row[-1]) for row in cursor.fetchall()]
    return any(_SCAN[connection.vendor].search(line) for line in plan)


@contextmanager
def python_calls() -> Iterator[list[str]]:
    """The functions of Python that are called on this thread, by their qualified names. Garbage of
    whatever came before is not collected meanwhile: its finalizers would count."""
    names: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            names.append(frame.f_code.co_qualname)

    collects = gc.isenabled()
    gc.disable()
    sys.setprofile(note)
    try:
        yield names
    finally:
        sys.setprofile(None)
        if collects:
            gc.enable()


@contextmanager
def circles() -> Iterator[Counter[str]]:
    """Of our own classes, what is left behind meanwhile in circles of references: nothing but the
    collector finds it, and that comes late (`tasks.garbage`). Filled when the block has ended."""
    found: Counter[str] = Counter()
    collects = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        kinds = [type(each) for each in gc.garbage]
        found.update(kind.__qualname__ for kind in kinds if _OURS.match(kind.__module__))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        if collects:
            gc.enable()


@asynccontextmanager
async def written() -> AsyncIterator[list[str]]:
    """The statements about our tables that the writer executes meanwhile."""
    statements: list[str] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "tasks_" in sql:
            statements.append(sql)
        return execute(sql, params, many, context)

    await writer.run(lambda: connection.execute_wrappers.append(note))
    try:
        yield statements
    finally:
        await writer.run(lambda: connection.execute_wrappers.remove(note))


_OURS = re.compile(r"(agent|config|streaming|tasks)\b")
_LARGE = "tasks_(?:task|taskevent|session|approval|artifact|modelusage|auditentry|scheduletick|webhookdelivery)"
_EXPLAIN = {"sqlite": "EXPLAIN QUERY PLAN", "postgresql": "EXPLAIN"}
_SCAN = {
    "sqlite": re.compile(f"^SCAN {_LARGE}$"),
    "postgresql": re.compile(rf"Seq Scan on {_LARGE}\b"),
}


@contextmanager
def counted() -> Iterator[Work]:
    """Counts in this thread's connection, which must not end its transaction meanwhile."""
    work = Work()
    count = _sqlite if connection.vendor == "sqlite" else _postgresql
    with CaptureQueriesContext(connection) as captured, count(work):
        yield work
    work.sql = [query["sql"] for query in captured.captured_queries]


@contextmanager
def _sqlite(work: Work) -> Iterator[None]:
    connection.ensure_connection()
    driver: Any = connection.connection

    def step() -> int:
        work.read += STEPS
        return 0

    driver.set_progress_handler(step, STEPS)
    try:
        yield
    finally:
        driver.set_progress_handler(None, STEPS)


@contextmanager
def _postgresql(work: Work) -> Iterator[None]:
    before = _rows_read()
    try:
        yield
    finally:
        work.read = _rows_read() - before


def _rows_read() -> int:
    with connection.cursor() as cursor:
        cursor.execute(_ROWS_READ)
        return int(cursor.fetchone()[0])
