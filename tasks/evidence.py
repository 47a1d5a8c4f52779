"""Do the rows say what the log says? The chain proves the events; people and the API read rows, and
who may approve is judged by them.

Every field of a row that an event reports is compared with the newest event that reports it, so an
edit behind the log's back is found and named.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.contrib.auth.models import AbstractBaseUser

from tasks.canonical import canonical_json
from tasks.events import wire_time
from tasks.models import Approval, AuditEntry, Task, TaskEvent, Tombstone

KINDS = ("approval_required", "approval_updated", "approval_resolved")
CLOCKS = timedelta(seconds=1)
"""The row and its event are of one moment, but older rows were dated a little earlier."""

_ASKED = (
    *("kind", "step", "tool_call_id", "capability", "risk", "arguments", "arguments_digest"),
    *("target_digest", "diff", "options", "reason", "rule"),
)
_OFFERED = ("scopes", "standing")
"""Older logs do not have them."""
_DECIDED = ("comment", "edited_arguments", "scope")
_EDITED = ("diff", "arguments_digest", "target_digest")
_UNANSWERED: dict[str, Any] = {
    "status": "pending",
    "resolved_by": None,
    "replaced_by": None,
    "edited_arguments": None,
    "comment": "",
    "answer": "",
    "scope": "once",
    "votes": [],
}


def problems(task_id: uuid.UUID) -> list[str]:
    """A sentence for each approval whose row differs from the log, and for a task that somebody else
    asked for. Beside a working server, too. Of a task whose events were pruned nothing can be said
    any more."""
    if Tombstone.objects.filter(task_id=task_id).exists():
        return []
    while True:
        before = _last_sequence(task_id)
        told, rows = _told(task_id), _rows(task_id)
        if _last_sequence(task_id) == before:
            return [*_asked_by_another(task_id), *_differences(told, rows)]


def _asked_by_another(task_id: uuid.UUID) -> Iterator[str]:
    """Who asked decides who else has to approve (`tasks.quorum`)."""
    first = TaskEvent.objects.filter(task_id=task_id, sequence=1, type="task_created")
    for text in first.values_list("payload", flat=True):
        told = msgspec.json.decode(text).get("by")
        user = Task.objects.select_related("created_by").get(pk=task_id).created_by
        if told and not _is_called(user, told):
            yield f"{user.get_username()} asked for it, says its row; the log says {told}"


def _last_sequence(task_id: uuid.UUID) -> int:
    return int(Task.objects.values_list("last_sequence", flat=True).get(pk=task_id))


def _rows(task_id: uuid.UUID) -> dict[str, Approval]:
    found = Approval.objects.filter(task_id=task_id).select_related("resolved_by")
    return {str(row.pk): row for row in found.order_by("created_at", "pk")}


class _Told:
    """What the log says of one approval."""

    def __init__(self) -> None:
        self.sequence = 0
        self.fields = dict(_UNANSWERED)

    def apply(self, sequence: int, kind: str, at: datetime, payload: dict[str, Any]) -> None:
        self.sequence = sequence
        match kind:
            case "approval_required":
                self.fields |= {name: payload[name] for name in _ASKED}
                self.fields |= {name: payload[name] for name in _OFFERED if name in payload}
                self.fields |= {"tool": payload["name"], "created_at": at}
                self.fields["expires_at"] = payload["expires_at"]
            case "approval_updated":
                self.fields["expires_at"] = payload["expires_at"]
                self.fields["votes"] = [vote["by"] for vote in payload["votes"]]
            case _:
                self._resolved(at, payload)

    def _resolved(self, at: datetime, payload: dict[str, Any]) -> None:
        status = payload["status"]
        self.fields["status"] = status
        if status != "cancelled":
            self.fields["resolved_at"] = at
        if status == "stale":
            self.fields["replaced_by"] = payload["replaced_by"]
        if status in ("approved", "rejected"):
            self.fields |= {name: payload[name] for name in _DECIDED}
            self.fields["answer"] = payload["answer"] or ""
            self.fields["resolved_by"] = payload["resolved_by"]
            if payload["edited_arguments"] is not None:
                self.fields |= {name: payload[name] for name in _EDITED}


def _told(task_id: uuid.UUID) -> dict[str, _Told]:
    told: dict[str, _Told] = {}
    found = TaskEvent.objects.filter(task_id=task_id, type__in=KINDS).order_by("sequence")
    for sequence, kind, at, text in found.values_list("sequence", "type", "created_at", "payload"):
        payload = msgspec.json.decode(text)
        told.setdefault(payload["approval_id"], _Told()).apply(sequence, kind, at, payload)
    return told


def _differences(told: dict[str, _Told], rows: dict[str, Approval]) -> Iterator[str]:
    for approval_id, each in told.items():
        row = rows.pop(approval_id, None)
        if row is None:
            yield f"approval {approval_id} is missing; the log has it at sequence {each.sequence}"
            continue
        wrong = [name for name, value in each.fields.items() if not _agrees(row, name, value)]
        if wrong:
            yield (
                f"approval {approval_id}: {', '.join(wrong)} differ"
                f"{'s' if len(wrong) == 1 else ''} from the log, sequence {each.sequence}"
            )
    for approval_id in rows:
        yield f"approval {approval_id} is not in the log"


def _agrees(row: Approval, name: str, told: Any) -> bool:
    match name:
        case "resolved_by":
            return _is_called(row.resolved_by, told)
        case "replaced_by":
            return bool(told == (str(row.replaced_by_id) if row.replaced_by_id else None))
        case "expires_at":
            return bool(told == (wire_time(row.expires_at) if row.expires_at else None))
        case "created_at" | "resolved_at":
            at = getattr(row, name)
            return at is not None and abs(at - told) <= CLOCKS
        case "votes":
            return bool([vote["by"] for vote in row.votes] == told)
        case _:
            return _same(getattr(row, name), told)


def _is_called(user: AbstractBaseUser | None, told: str | None) -> bool:
    """Somebody may have another name now: then the audit knows the old one."""
    if user is None or told is None:
        return user is None and told is None
    if user.get_username() == told:
        return True
    renamed = AuditEntry.objects.filter(
        object_type="user",
        object_id=str(user.pk),
        details__contains=f'"username":{canonical_json(told)}',
    )
    return renamed.exists()


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON; databases may write a number in another way."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, float) and isinstance(other, int):
        return _nearest(other) == one
    if isinstance(one, int) and isinstance(other, float):
        return _nearest(one) == other
    return bool(one == other)


def _nearest(number: int) -> float | None:
    """The double that a database wrote out as this number."""
    try:
        return float(number)
    except OverflowError:
        return None
