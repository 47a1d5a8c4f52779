"""Letting go of what is old, so that nothing grows for ever, and proving that nothing else is gone.

`prune()` deletes the events of tasks in sessions that nobody has touched for so long; `erase()` those
of deleted sessions, with every word that was said in them. The task's row stays, with the number
and the hash of its last event; a tombstone says that the events before it are gone on purpose, and
an audit entry, in the chain of the audit, repeats it. `verify_log` compares the three.

A session goes as a whole or not at all: while something in it is open, or a younger fork continues
it, perhaps over other forks, its history counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from uuid import UUID

from django.db import connection
from django.db.models import Exists, OuterRef, QuerySet
from django.db.models.expressions import RawSQL

from tasks import audit, events, keeping, rules
from tasks.audit import Change
from tasks.models import (
    AguiRun,
    AguiThread,
    Approval,
    Artifact,
    AuditEntry,
    PolicyRule,
    Session,
    Task,
    Tombstone,
)
from tasks.writer import writer

PRUNED, ERASED = "log.pruned", "log.erased"
CHUNK = 1000


def old(before: datetime) -> QuerySet[Task]:
    """Tasks whose events may go: of sessions that rest since then."""
    tasks = Task.objects.filter(session__updated_at__lt=before, tombstone=None)
    return _resting(tasks).exclude(session__in=_continued(before))


def deleted() -> QuerySet[Task]:
    """Tasks of sessions that were deleted, and not erased yet."""
    hidden = Task.objects.filter(session__hidden=True).exclude(tombstone__erased=True)
    return _resting(hidden).exclude(session__in=_continued())


def _continued(since: datetime | None = None) -> RawSQL:
    """Sessions whose history another one goes on with, over any number of forks; with `since`, one
    that was touched since then."""
    young, values = "", []
    if since is not None:
        young, values = "AND s.updated_at >= %s", [connection.ops.adapt_datetimefield_value(since)]
    return RawSQL(_CONTINUED.format(young=young), values)  # noqa: S611 - our own text


_ORIGIN = f"""
    {Session._meta.db_table} s JOIN {Task._meta.db_table} t ON t.id = s.forked_from_id"""
_CONTINUED = f"""
    WITH RECURSIVE back(id) AS (
        SELECT t.session_id FROM {_ORIGIN} WHERE NOT s.hidden {{young}}
        UNION SELECT t.session_id FROM {_ORIGIN} JOIN back ON back.id = s.id)
    SELECT id FROM back"""  # noqa: S608 - names of tables


def _resting(tasks: QuerySet[Task]) -> QuerySet[Task]:
    unfinished = Task.objects.filter(session=OuterRef("session"), status__in=Task.OPEN)
    return tasks.exclude(Exists(unfinished)).order_by("pk")


def prune(before: datetime, by: str = audit.NOBODY) -> Iterator[tuple[UUID, int]]:
    """One task after the other, each in a command of its own: its id and how many events went."""
    for task_id in old(before).values_list("pk", flat=True).iterator(CHUNK):
        gone = writer.run_sync(partial(_prune, task_id, before, by))
        if gone:
            keeping.forget(task_id)
        yield task_id, gone


def erase(by: str = audit.NOBODY) -> Iterator[tuple[UUID, int]]:
    """The same for everything that belongs to deleted sessions, words included."""
    for task_id in deleted().values_list("pk", flat=True).iterator(CHUNK):
        gone = writer.run_sync(partial(_erase, task_id, by))
        keeping.forget(task_id)
        yield task_id, gone
    writer.run_sync(_untitle)


def _prune(task_id: UUID, before: datetime, by: str) -> int:
    """Command. Nothing goes when somebody came back to the session meanwhile."""
    task = _locked(task_id)
    if not old(before).filter(pk=task_id).exists():
        return 0
    return _bury(task, PRUNED, by)


def _erase(task_id: UUID, by: str) -> int:
    """Command."""
    task = _locked(task_id)
    if not deleted().filter(pk=task_id).exists():
        return 0
    Artifact.objects.filter(task=task).delete()
    Approval.objects.filter(task=task).update(
        arguments={},
        edited_arguments=None,
        diff="",
        options=[],
        standing="",
        reason="",
        votes=[],
        comment="",
        answer="",
    )
    _forget_rules(task, by)
    _forget_names(task.session_id)
    Task.objects.filter(pk=task_id).update(goal="", final_answer="", error=None)
    Session.objects.filter(pk=task.session_id).update(title="")
    return _bury(task, ERASED, by)


def _forget_rules(task: Task, by: str) -> None:
    """What answers to its cards left: they stop to count, and say nothing any more."""
    left = PolicyRule.objects.filter(made_from__task=task)
    for rule in left:
        rules.revoke(rule, by)
    left.update(path="", host="", digest="", note="")


def _forget_names(session_id: UUID) -> None:
    """What clients called it."""
    AguiRun.objects.filter(thread__session_id=session_id).delete()
    AguiThread.objects.filter(session_id=session_id).delete()


def _untitle() -> None:
    """Command: deleted sessions in which nothing was ever asked have a title all the same."""
    asked = Task.objects.filter(session=OuterRef("pk"))
    Session.objects.filter(~Exists(asked), hidden=True).exclude(title="").update(title="")


def _locked(task_id: UUID) -> Task:
    """The session's row after the task's, as everywhere: nobody comes back between look and deed."""
    task = Task.objects.select_for_update(of=("self",)).get(pk=task_id)
    Session.objects.select_for_update(of=("self",)).get(pk=task.session_id)
    return task


def _bury(task: Task, action: str, by: str) -> int:
    gone = task.last_sequence - _gone_before(task)
    events.forget(task.pk)
    stone = {
        "sequence": task.last_sequence,
        "hash": task.last_hash,
        "erased": action == ERASED,
    }
    Tombstone.objects.update_or_create(task=task, defaults=stone)
    audit.record(
        Change(action=action, by=by, object_type="task", object_id=str(task.pk), after=stone)
    )
    return gone


def _gone_before(task: Task) -> int:
    before = Tombstone.objects.filter(task=task).values_list("sequence", flat=True).first()
    return before or 0


# ── checking ──────────────────────────────────────────────────────────────────────────────────


def unexplained() -> Iterator[UUID]:
    """Tasks with a tombstone that the audit does not know: somebody else made it."""
    told = AuditEntry.objects.filter(action__in=[PRUNED, ERASED]).order_by("sequence")
    known = {
        (entry.object_id, sequence, hash_)
        for entry in told.iterator(CHUNK)
        for sequence, hash_ in [audit.values_of(entry, "sequence", "hash")]
    }
    stones = Tombstone.objects.order_by("pk").values_list("task_id", "sequence", "hash")
    for task_id, sequence, hash_ in stones.iterator(CHUNK):
        if (str(task_id), sequence, hash_) not in known:
            yield task_id
