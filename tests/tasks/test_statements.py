"""Statements that are made once say what the ORM would say."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import (
    IntegrityError,
    OperationalError,
    ProgrammingError,
    connection,
    connections,
    transaction,
)
from django.db.models import DateTimeField, F, Model

from tasks.conversions import Storer
from tasks.driver import database
from tasks.models import ModelProfile, PolicyRule, Session, Task, Workspace
from tasks.statements import Beside, Insert, New, Prepared, Rows, Slot, Sql, fetch, key_of, update
from tests.support.counting import counted, python_calls
from tests.support.people import make_approval
from tests.support.rows import make_session, make_task, make_user, make_workspace

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 1, 31, 9, 30, 0, 123000, tzinfo=UTC)


def fields(row: Model) -> dict[str, Any]:
    return {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}


def test_a_row_is_the_one_of_the_orm() -> None:
    task = make_task(limits={"steps": 3}, cost="1.250000", lease_expires_at=NOW, status="queued")
    rows: list[Model] = [
        task,
        make_approval(task),
        task.session,
        task.session.workspace,
        ModelProfile.objects.create(name="m", base_url="http://h/v1", model="m", price_input="0.5"),
        PolicyRule.objects.create(
            decision="ask", capability="file:write", scope="global", made_by=task.created_by
        ),
    ]
    for row in rows:
        found = Rows(type(row), "WHERE id = %s").get(row.pk)
        assert fields(found) == fields(type(row)._default_manager.get(pk=row.pk))
        assert not found._state.adding


def test_what_is_not_there() -> None:
    rows = Rows(Task, "WHERE id = %s")
    assert rows.one(make_session().pk) is None
    with pytest.raises(Task.DoesNotExist):
        rows.get(make_session().pk)


def test_a_new_row_is_the_one_of_its_model() -> None:
    session = make_session()
    fixed = {"id": session.pk, "created_at": NOW}
    given: list[tuple[type[Model], dict[str, Any]]] = [
        (Task, fixed | {"session": session, "goal": "ü", "trigger": "api", "created_by_id": 7}),
        (Session, fixed | {"workspace": session.workspace, "owner_id": 7, "updated_at": NOW}),
        (ModelProfile, fixed | {"name": "m", "price_input": "0.5"}),
    ]
    for model, values in given:
        new, expected = New(model)(**values), model(**values)
        assert fields(new) == fields(expected)
        assert new._state.adding
        for name, value in values.items():
            assert getattr(new, name) is value
    one, other = New(Task)(goal="a"), New(Task)(goal="b")
    assert one.pk != other.pk
    assert one.limits is not other.limits


def test_an_insert_is_the_one_of_the_orm() -> None:
    session = make_session()
    new = Task(
        session=session,
        owner_id=session.owner_id,
        workspace_id=session.workspace_id,
        goal="ü",
        trigger=Task.Trigger.API,
        limits={"steps": 1},
        created_by_id=session.owner_id,
    )
    stored = Insert(Task)(new)
    assert not stored._state.adding
    assert fields(Task.objects.get(pk=new.pk)) == fields(new)
    stored.goal = "changed"
    stored.save()  # an UPDATE, not a second row
    assert Task.objects.count() == 1


def test_an_update_takes_values_expressions_and_texts_of_ours() -> None:
    task = make_task(run=3, last_sequence=7)
    changes = {
        "run": Sql("run + 1"),
        "compacted_at": F("last_sequence"),
        "usage": {"a": 1},
        "finished_at": NOW,
        "status": Task.Status.COMPLETED,
    }
    assert update(Task, changes, "id = %s AND status = %s", task.pk, Task.Status.RUNNING) == 0
    assert update(Task, changes, "id = %s AND status = %s", task.pk, Task.Status.QUEUED) == 1
    task.refresh_from_db()
    assert (task.run, task.compacted_at, task.usage, task.finished_at, task.status) == (
        *(4, 7, {"a": 1}, NOW),
        "completed",
    )


def test_a_prepared_query_is_given_other_values_each_time() -> None:
    session = make_session()
    tasks = [make_task(session, created_at=NOW + timedelta(hours=hour)) for hour in range(3)]
    prepared = Prepared(
        lambda: (
            Task.objects.filter(created_at__gte=Slot(0, DateTimeField()))
            .order_by("created_at")
            .values_list("pk")
        )
    )
    found = [
        [key_of(key) for (key,) in prepared(NOW + timedelta(hours=hour), most)]
        for hour, most in ((1, 9), (0, 2), (3, 9))
    ]
    assert found == [
        [tasks[1].pk, tasks[2].pk],
        [tasks[0].pk, tasks[1].pk],
        [],
    ]


def test_a_row_stands_beside_further_columns() -> None:
    task = make_task()
    with_owner = Beside(
        Task,
        "t",
        "s.owner_id, NULL",
        "JOIN tasks_session s ON s.id = t.session_id WHERE t.id = %s",
    )
    ((row, further),) = with_owner(task.pk)
    assert fields(row) == fields(Task.objects.get(pk=task.pk))
    assert further == (task.session.owner_id, None)


def test_who_watches_sees_every_statement() -> None:
    make_workspace(name="desk")
    with counted() as work:
        fetch("SELECT name FROM tasks_workspace WHERE name = %s AND name <> '100%%'", "desk")
        update(Workspace, {"name": "attic"}, "name = %s", "desk")
    ours = [text.split()[0] for text in work.sql if "tasks_workspace" in text]
    assert ours == ["SELECT", "UPDATE"]
    assert Workspace.objects.get().name == "attic"


def test_what_the_database_refuses_is_an_error_of_django() -> None:
    make_workspace(name="desk", root="/one")
    with pytest.raises(IntegrityError), transaction.atomic():
        update(Workspace, {"name": None}, "name = %s", "desk")
    unknown = OperationalError if connection.vendor == "sqlite" else ProgrammingError
    with pytest.raises(unknown), transaction.atomic():
        fetch("SELECT nothing FROM nowhere")
    transaction.set_rollback(True)
    with pytest.raises(transaction.TransactionManagementError):
        fetch("SELECT 1")
    transaction.set_rollback(False)


async def test_the_event_loop_asks_no_database() -> None:
    with pytest.raises(SynchronousOnlyOperation):
        fetch("SELECT 1")


@pytest.mark.only_sqlite
def test_a_statement_is_one_call_of_the_driver() -> None:
    """Django's cursor takes more than forty."""
    fetch("SELECT name FROM tasks_workspace WHERE name = %s", "desk")
    calls: list[str] = []

    def note(frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            calls.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        fetch("SELECT name FROM tasks_workspace WHERE name = %s", "desk")
    finally:
        sys.setprofile(None)
    assert len(calls) < 20, calls


def test_values_are_parameters() -> None:
    make_workspace(make_user("o'hara"), name="100%; --")
    found = fetch("SELECT name FROM tasks_workspace WHERE name = %s", "100%; --")
    assert found == [("100%; --",)]
    assert [row.name for row in Rows(Workspace, "WHERE name = %s")("100%; --")] == ["100%; --"]


def test_what_is_stored_as_it_is_is_handed_to_no_function() -> None:
    of_task = {field.name: field for field in Task._meta.concrete_fields}
    fields = [of_task[name] for name in ("goal", "trigger", "steps", "error", "started_at")]
    store, db = Storer(fields), database()
    values = ("Compare", "api", 3, None, None)
    assert store(db, values) == list(values)
    with python_calls() as names:
        store(db, values)
    assert len([name for name in names if "Storer" not in name]) <= 2, names  # the block's own end
    told: tuple[Any, ...] = ("Compare", Task.Trigger.API, 3, {}, NOW)
    pairs = zip(fields, told, strict=True)
    assert store(db, told) == [field.get_db_prep_save(value, db) for field, value in pairs]


def test_a_thread_has_its_own_connection() -> None:
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(lambda: database() is connections["default"]).result()
        theirs = thread.submit(database).result()
    assert database() is connections["default"]
    assert theirs is not database()
