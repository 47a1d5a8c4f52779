"""Full tables, fast: many sessions, tasks and events, beside a few rows of somebody who has little.

`Warehouse.grow()` adds so many sessions at once, and what belongs to each. All rows of a table are
made by one statement inside the database, from a model instance that gives the constant columns.
Events have no payload and no hash: nobody checks a chain here, it is all about how much is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Model
from django.utils import timezone

from tasks import webhooks
from tasks.models import (
    Approval,
    Artifact,
    AuditEntry,
    Member,
    ModelUsage,
    Schedule,
    ScheduleTick,
    Session,
    Task,
    TaskEvent,
    Webhook,
    WebhookDelivery,
)
from tests.support.rows import make_session, make_task, make_user, make_workspace

_NUMBERS = """(WITH RECURSIVE count(n) AS (SELECT %s UNION ALL SELECT n + 1 FROM count WHERE n < %s)
    SELECT n FROM count) numbers"""
_SQL = {
    "sqlite": {
        "uuid": "lower(hex(randomblob(16)))",
        "moment": "strftime('%Y-%m-%d %H:%M:%f000', '{start}', -n || ' days')",
        "day": "date(parent.created_at)",
    },
    "postgresql": {
        "uuid": "gen_random_uuid()",
        "moment": "timestamptz '{start}' - n * interval '1 day'",
        "day": "parent.created_at::date",
    },
}


@dataclass
class Warehouse:
    """Alice owns nearly everything; Bob helps her; Charlie has three sessions of his own."""

    alice: User = field(default_factory=lambda: make_user("alice"))
    bob: User = field(default_factory=lambda: make_user("bob"))
    charlie: User = field(default_factory=lambda: make_user("charlie"))
    tasks: int = 1
    """Of each session."""
    events: int = 2
    """Of each task."""
    sessions: int = 0
    start: datetime = field(default_factory=lambda: timezone.now() - timedelta(days=1))
    """Each of Alice's sessions is a day older than the one before."""

    def __post_init__(self) -> None:
        self.desk = make_workspace(self.alice, name="desk")
        Member.objects.create(workspace=self.desk, user=self.bob, role=Member.Role.APPROVER)
        make_workspace(self.bob, name="bob's")
        self.schedule = Schedule.objects.create(
            owner=self.alice, workspace=self.desk, name="daily", goal="g", cron="0 7 * * *"
        )
        self.webhook = Webhook.objects.create(
            owner=self.alice, workspace=self.desk, name="issues", goal="g"
        )
        self.secret = webhooks.renew_secret(self.webhook, "alice")
        self.own = make_workspace(self.charlie, name="charlie's")
        self.task = self._few("completed")
        self._few("failed")
        _approval(self._few("waiting_approval"), status="pending").save()

    def _few(self, status: str) -> Task:
        task = make_task(make_session(self.own), status=status)
        long_log(task, self.events)
        return task

    def grow(self, sessions: int) -> None:
        words = _SQL[connection.vendor]
        numbers = (self.sessions + 1, self.sessions + sessions)
        self.sessions += sessions
        moment = words["moment"].format(start=f"{self.start:%Y-%m-%d %H:%M:%S}")
        dated = {"created_at": moment}
        session = Session(
            owner=self.alice,
            workspace=self.desk,
            title="quotes",
            last_position=self.tasks * self.events,
        )
        made = {"id": words["uuid"], **dated, "updated_at": moment}
        multiply(session, numbers, made)
        self._tasks(words)
        _events(self.events)
        entry = AuditEntry(by="alice", action="token.used", object_type="token", details="{}")
        multiply(entry, numbers, {"sequence": "n + 1000", **dated})
        tick = ScheduleTick(schedule=self.schedule, outcome="skipped")
        multiply(tick, numbers, {"due_at": moment, **dated})
        recent = {"created_at": moment.replace("day", "second")}
        multiply(WebhookDelivery(webhook=self.webhook, size=1, outcome="refused"), numbers, recent)
        analyse()

    def _tasks(self, words: dict[str, str]) -> None:
        """Of the sessions that have none, and what is kept of each beside its log."""
        empty = "parent.last_position > 0 AND NOT EXISTS (SELECT 1 FROM tasks_task t WHERE t.session_id = parent.id)"
        task = Task(
            goal="Compare the quotes", status="completed", trigger="api", created_by=self.alice
        )
        of_parent = {"created_at": "parent.created_at", "id": words["uuid"]}
        of_parent |= {"owner_id": "parent.owner_id", "workspace_id": "parent.workspace_id"}
        place = {"session_id": "parent.id", "first_position": f"1 + (n - 1) * {self.events}"}
        multiply(task, (1, self.tasks), of_parent | place, Session, empty)
        fresh = "parent.last_sequence = 0 AND parent.first_position > 0"
        of_task = {**of_parent, "task_id": "parent.id"}
        multiply(_approval(None), (1, 1), of_task, Task, fresh)
        file = {name: of_task[name] for name in ("id", "created_at", "task_id")}
        multiply(Artifact(path="a.md", size=1), (1, 1), file, Task, fresh)
        usage = ModelUsage(user=self.alice, model="small", calls=1)
        kept = {"task_id": "parent.id", "session_id": "parent.session_id", "day": words["day"]}
        multiply(usage, (1, 1), kept, Task, fresh)


def multiply(
    row: Model,
    numbers: tuple[int, int],
    made: dict[str, str],
    parent: type[Model] | None = None,
    where: str = "",
) -> None:
    """`row` once for each number, or for each number and each row of `parent`; `made` has the
    columns that are SQL over `n` and `parent`."""
    stored = [f for f in row._meta.concrete_fields if not f.generated]
    fields = [f for f in stored if not (f.primary_key and f.column not in made)]
    chosen, values = [], []
    for each in fields:
        column = str(each.column)
        chosen.append(made.get(column, "%s"))
        if column not in made:
            values.append(each.get_db_prep_save(each.pre_save(row, True), connection))
    source = "" if parent is None else f" CROSS JOIN {parent._meta.db_table} parent"
    columns = ", ".join(f'"{each.column}"' for each in fields)
    condition = f" WHERE {where}" if where else ""
    with connection.cursor() as cursor:
        chosen = [text.replace("%", "%%") if text != "%s" else text for text in chosen]
        cursor.execute(
            f"INSERT INTO {row._meta.db_table} ({columns}) SELECT {', '.join(chosen)}"
            f" FROM {_NUMBERS}{source}{condition}",
            [*values, *numbers],
        )


def _events(count: int) -> None:
    """So many for each task that has a place in its session and no event yet."""
    made = {
        "task_id": "parent.id",
        "session_id": "parent.session_id",
        "sequence": "n",
        "position": "parent.first_position + n - 1",
        "created_at": "parent.created_at",
    }
    row = TaskEvent(type="model_call_finished", payload="{}")
    fresh = "parent.last_sequence = 0 AND parent.first_position > 0"
    multiply(row, (1, count), made, Task, fresh)
    Task.objects.filter(last_sequence=0, first_position__gt=0).update(last_sequence=count)


def _approval(task: Task | None, status: str = "approved") -> Approval:
    return Approval(
        task=task,
        kind="call",
        step=1,
        tool_call_id="call-1",
        tool="write_file",
        capability="file:write",
        risk="medium",
        arguments={},
        status=status,
    )


def long_log(task: Task, count: int) -> None:
    """A task without events, alone in its session, gets so many."""
    Task.objects.filter(pk=task.pk).update(first_position=1)
    _events(count)
    Session.objects.filter(pk=task.session_id).update(last_position=count)
    task.refresh_from_db()


def analyse() -> None:
    """What PostgreSQL's autovacuum does by itself once a table has grown; nobody does it on SQLite.

    Before that a grown table counts as empty, and one index is as good to the planner as another.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
