from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from io import StringIO

import msgspec
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import F, QuerySet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.events import BudgetWarning
from tasks import events
from tasks.chain import Chain, Head, compare, follow
from tasks.models import Session, Task, TaskEvent
from tasks.writer import writer
from tests.support.rows import make_session, make_task

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("stopped_writer"),
]


@pytest.fixture
def task():
    task = make_task()
    append(task, 6)
    task.refresh_from_db()
    return task


def append(task: Task, count: int) -> None:
    def command(step: int) -> None:
        event = BudgetWarning(step=step, which="steps", used=step, limit=12)
        events.append(task.pk, [event])

    for step in range(count):
        writer.run_sync(partial(command, step))


def verify(*arguments: str) -> str:
    out = StringIO()
    call_command("verify_log", *arguments, stdout=out)
    return out.getvalue()


def refused(*arguments: str) -> str:
    out = StringIO()
    with pytest.raises(CommandError) as caught:
        call_command("verify_log", *arguments, stdout=out)
    assert caught.value.returncode == 1
    return out.getvalue()


def stored(task: Task, sequence: int) -> QuerySet[TaskEvent]:
    return TaskEvent.objects.filter(task=task, sequence=sequence)


def test_it_works(task):
    assert f"task {task.pk}: 6 events, head {task.last_hash}" in verify(str(task.pk))
    assert "1 tasks, 6 events, 0 broken" in verify()


def test_empty_log_is_whole():
    assert "0 tasks, 0 events, 0 broken" in verify()
    assert "0 events, head -" in verify(str(make_task().pk))


def test_the_root_is_what_the_help_says(task):
    append(make_task(task.session), 2)
    heads = Task.objects.values_list("id", "last_sequence", "last_hash")
    lines = sorted(f"{task_id}:{sequence}:{digest}\n" for task_id, sequence, digest in heads)
    lines.append("audit:0:\n")
    root = hashlib.sha256("".join(lines).encode()).hexdigest()
    assert f"root {root}" in verify()


def test_unknown_task_is_a_usage_error():
    with pytest.raises(CommandError) as caught:
        verify("00000000-0000-0000-0000-000000000001")
    assert caught.value.returncode == 2


SWAP: list[str] = [
    f"UPDATE tasks_taskevent SET sequence = {new}, position = {new} WHERE sequence = {old}"
    for old, new in ((4, -4), (5, 4), (-4, 5))
]
MOVE: list[str] = [
    f"UPDATE tasks_taskevent SET sequence = {new}, position = {new} WHERE sequence = {old}"
    for old, new in ((4, -4), (5, 4), (6, 5), (-4, 6))
]
ADD = """
    INSERT INTO tasks_taskevent (task_id, session_id, sequence, position, type, payload, created_at, hash)
    SELECT task_id, session_id, 7, 7, type, payload, created_at, hash FROM tasks_taskevent
    WHERE sequence = 6"""


def _sql(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


TAMPERINGS: dict[str, tuple[Callable[[QuerySet[TaskEvent]], object], int]] = {
    "payload": (lambda found: found.update(payload='{"step":99}'), 4),
    "type": (lambda found: found.update(type="task_completed"), 4),
    "time": (lambda found: found.update(created_at=F("created_at") - timedelta(seconds=1)), 4),
    "microseconds": (
        lambda found: found.update(created_at=F("created_at") + timedelta(microseconds=1)),
        4,
    ),
    "hash": (lambda found: found.update(hash="0" * 64), 4),
    "deleted": (lambda found: found.delete(), 4),
    "sequence": (lambda found: found.update(sequence=-1), -1),
    "position": (lambda found: found.update(position=99), 5),
    "swapped with the next": (lambda found: _sql(*SWAP), 4),
    "moved to the end": (lambda found: _sql(*MOVE), 4),
    "added": (lambda found: _sql(ADD), 7),
}


"""How to tamper with row 4, and the sequence that is reported."""


@pytest.mark.parametrize("how", TAMPERINGS)
def test_tampered_row_is_named(task, how):
    tamper, reported = TAMPERINGS[how]
    tamper(stored(task, 4))
    assert f"task {task.pk}: sequence {reported} " in refused()


def test_moved_to_another_session(task):
    stored(task, 4).update(session=make_session())
    assert f"task {task.pk}: sequence 4" in refused()


def test_cut_at_the_end_is_seen_by_the_head(task):
    stored(task, 6).delete()
    assert "sequence 6 is missing at the end" in refused(str(task.pk))


def test_cut_together_with_the_head_changes_the_root(task):
    before = verify()
    stored(task, 6).delete()
    Session.objects.update(last_position=5)
    Task.objects.update(last_sequence=5, last_hash=stored(task, 5).get().hash)
    after = verify()
    assert after.partition("root")[2] != before.partition("root")[2]


def test_row_behind_the_head(task):
    Task.objects.update(last_sequence=5)
    assert "sequence 6 is behind the task's head" in refused(str(task.pk))


def test_wrong_head(task):
    Task.objects.update(last_hash="f" * 64)
    assert "sequence 6 is not the task's head" in refused(str(task.pk))


def test_gap_in_a_session_is_named(task):
    Session.objects.update(last_position=7)
    assert f"session {task.session_id}: position 7 is missing" in refused()


def test_other_key_fits_no_chain(task, settings):
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, audit_key=b"another")
    assert "sequence 1 does not match its hash" in refused(str(task.pk))


def fold(rows: list[events.Row], head: Head) -> str:
    chain = Chain()
    for row in rows:
        chain = follow(chain, row, str(head.session_id))
        if chain.problem:
            return chain.problem
    return compare(chain, head).problem


def tampered(rows: list[events.Row], data: st.DataObject) -> list[events.Row]:
    place = data.draw(st.integers(0, len(rows) - 1))
    match data.draw(st.sampled_from(["change", "delete", "swap", "double", "insert"])):
        case "delete":
            return rows[:place] + rows[place + 1 :]
        case "swap":
            other = data.draw(st.integers(0, len(rows) - 1).filter(lambda n: n != place))
            changed = list(rows)
            changed[place], changed[other] = rows[other], rows[place]
            return changed
        case "double":
            return [*rows[: place + 1], rows[place], *rows[place + 1 :]]
        case "insert":
            forged = msgspec.structs.replace(rows[place], payload='{"forged":true}')
            return [*rows[:place], forged, *rows[place:]]
        case _:
            return [*rows[:place], _changed(rows[place], data), *rows[place + 1 :]]


def _changed(row: events.Row, data: st.DataObject) -> events.Row:
    field = data.draw(
        st.sampled_from(["task_id", "sequence", "type", "payload", "created_at", "hash"])
    )
    old = getattr(row, field)
    new: object
    match old:
        case str():
            index = data.draw(st.integers(0, len(old) - 1))
            letter = data.draw(st.characters(codec="utf-8").filter(lambda new: new != old[index]))
            new = old[:index] + letter + old[index + 1 :]
        case int():
            new = old + data.draw(st.integers(-9, 9).filter(bool))
        case _:
            new = old + timedelta(milliseconds=data.draw(st.integers(-9999, 9999).filter(bool)))
    return msgspec.structs.replace(row, **{field: new})


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_tampering_goes_unnoticed(task, data):
    rows = events.page(task.pk)
    head = Head(task.last_sequence, task.last_hash, task.session_id)
    assert fold(rows, head) == ""
    assert fold(tampered(rows, data), head)
