"""Schedules: goals that are asked for again and again by a cron line. Creates tasks, runs nothing.

The rules:

1. A due time makes at most one task, however many schedulers look and whenever they die: the claim
   is a row (schedule, due time), its task carries an idempotency key made of both.
2. While the last task of the schedule is open, a due time is skipped, and the skip is recorded.
3. After a pause of the scheduler one due time is caught up, the first that was missed; the others
   are not repeated. A clock that is set back repeats nothing.
4. Local times follow Debian's cron: a time that the spring night leaves out comes right after the
   gap, one that the autumn night has twice comes once; lines with `*` minutes or hours follow real
   time. Day of month and day of week together mean either, unless one of them begins with `*`.
5. Nobody watches: the mode is the server's for unattended tasks, or stricter, and writes wait.
6. An owner who is inactive or has lost the workspace pauses the schedule, with a reason.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from asgiref.sync import async_to_sync
from cronsim import CronSim, CronSimError
from django.db import IntegrityError, transaction
from django.utils import timezone

from tasks import audit, service, unattended, wiring
from tasks.commands import TaskRequest
from tasks.errors import Conflict, Invalid, ServiceError
from tasks.models import Schedule, ScheduleTick, Session, Task
from tasks.writer import writer

logger = logging.getLogger(__name__)

MAX_LINE = 100
TICKS_KEPT = timedelta(days=90)
"""What came of older due times is forgotten with the next one; their tasks stay."""
FIELDS = ("minute", "hour", "day of month", "month", "day of week")
_LARGEST = (59, 23, 31, 12, 7)
PREVIEWED = 3


# ── when ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Cron:
    """A checked cron line in a time zone."""

    line: str
    zone: tzinfo

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Due times later than `moment`, in UTC, each once."""
        last = moment.astimezone(UTC)
        for due in CronSim(self.line, moment.astimezone(self.zone)):
            found = due.astimezone(UTC)
            if found > last:  # two local times may be one moment, or an hour may come again
                last = found
                yield found

    def next(self, moment: datetime) -> datetime:
        """Raises Invalid when there is none."""
        found = next(self.after(moment), None)
        if found is None:
            raise _never(self.line)
        return found


def parse(line: str, zone: str) -> Cron:
    """Raises Invalid with a sentence for people."""
    cron = Cron(line=_checked_line(line), zone=zone_of(zone))
    cron.next(timezone.now())
    return cron


def zone_of(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        message = f"{name!r} is not a time zone; write one like UTC or Europe/Berlin."
        raise Invalid("time_zone", message, {"time_zone": message}) from None


def _checked_line(line: str) -> str:
    parts = line.split()
    if len(line) > MAX_LINE or "\n" in line or len(parts) != len(FIELDS):
        raise _bad(
            f"Write five fields on one line of at most {MAX_LINE} characters: "
            "minute, hour, day of month, month, day of week."
        )
    for name, part, largest in zip(FIELDS, parts, _LARGEST, strict=True):
        _check_steps(name, part, largest)
    line = " ".join(parts)
    try:
        CronSim(line, timezone.now())
    except CronSimError:
        raise _explained(parts) from None
    return line


def _check_steps(name: str, part: str, largest: int) -> None:
    """The library takes any step; one that is larger than the field is surely a mistake."""
    for term in part.split(","):
        step = term.partition("/")[2]
        if step.isascii() and step.isdigit() and int(step) > largest:
            raise _bad(f"The {name} {part!r} has a step of more than {largest}.")


def _explained(parts: list[str]) -> Invalid:
    """Which field is wrong; if none is, the date never comes."""
    for position, (name, part) in enumerate(zip(FIELDS, parts, strict=True)):
        alone = ["*"] * len(FIELDS)
        alone[position] = part
        try:
            CronSim(" ".join(alone), timezone.now())
        except CronSimError:
            return _bad(f"The {name} {part!r} is not valid.")
    return _never(" ".join(parts))


def _never(line: str) -> Invalid:
    return _bad(f"{line!r} names a date that never comes.")


def _bad(message: str) -> Invalid:
    return Invalid("cron", message, {"cron": message})


def previewed(schedule: Schedule) -> list[datetime]:
    """The next due times, for people. Empty when it is switched off."""
    if not schedule.enabled or schedule.next_due_at is None:
        return []
    cron = parse(schedule.cron, schedule.time_zone)
    later = cron.after(schedule.next_due_at)
    return [
        schedule.next_due_at,
        *(due for due, _ in zip(later, range(PREVIEWED - 1), strict=False)),
    ]


def plan(schedule: Schedule, now: datetime | None = None) -> None:
    """Set when it is due next: after every change, counted from now. Does not save."""
    cron = parse(schedule.cron, schedule.time_zone)
    schedule.cron = cron.line
    schedule.next_due_at = cron.next(now or timezone.now()) if schedule.enabled else None
    if schedule.enabled:
        schedule.paused_reason = ""


# ── claiming ──────────────────────────────────────────────────────────────────────────────────


def run_due(now: datetime | None = None) -> list[ScheduleTick]:
    """Make the tasks that are due. What became of each due time, also of those that another
    scheduler had claimed and left behind."""
    now = now or timezone.now()
    due = Schedule.objects.filter(enabled=True, next_due_at__lte=now).order_by("next_due_at")
    for schedule_id in list(due.values_list("pk", flat=True)):
        writer.run_sync(partial(_claim, schedule_id, now))
    claimed = ScheduleTick.objects.filter(outcome=ScheduleTick.Outcome.CLAIMED)
    return [
        _carry_out(tick_id)
        for tick_id in claimed.order_by("created_at", "pk").values_list("pk", flat=True)
    ]


def run_now(schedule_id: UUID, by: str) -> ScheduleTick:
    """One task at once, whatever the clock says; the same rules otherwise."""
    tick_id = writer.run_sync(partial(_claim_now, schedule_id, by))
    return _carry_out(tick_id)


def _claim(schedule_id: UUID, now: datetime) -> None:
    """Command: this due time is taken, by a row that can exist once."""
    schedule = Schedule.objects.select_for_update().filter(pk=schedule_id).first()
    if schedule is None or not schedule.enabled or schedule.next_due_at is None:
        return
    if schedule.next_due_at > now:
        return  # another scheduler got there first
    due = schedule.next_due_at
    try:
        following = parse(schedule.cron, schedule.time_zone).next(max(now, due))
    except Invalid as invalid:  # the time zone is gone from the system
        unattended.pause(schedule, invalid.message, next_due_at=None)
        return
    reason = unattended.why_not(schedule)
    if reason:
        unattended.pause(schedule, reason, next_due_at=None)
        return
    Schedule.objects.filter(pk=schedule.pk).update(next_due_at=following)
    past = ScheduleTick.objects.filter(schedule=schedule, due_at__lt=now - TICKS_KEPT)
    past.exclude(outcome=ScheduleTick.Outcome.CLAIMED).delete()
    try:
        with transaction.atomic():
            ScheduleTick.objects.create(schedule=schedule, due_at=due)
    except IntegrityError:
        logger.info("Schedule %s had its task for %s already.", schedule.pk, due)


def _claim_now(schedule_id: UUID, by: str) -> int:
    schedule = Schedule.objects.select_for_update().get(pk=schedule_id)
    reason = unattended.why_not(schedule)
    if reason:
        raise Conflict("schedule_paused", reason)
    audit.record(
        audit.Change(
            action="schedule.run_now",
            by=by,
            object_type="schedule",
            object_id=str(schedule.pk),
            name=schedule.name,
        )
    )
    return ScheduleTick.objects.create(schedule=schedule, due_at=timezone.now(), manual=True).pk


# ── carrying out ──────────────────────────────────────────────────────────────────────────────


def _carry_out(tick_id: int) -> ScheduleTick:
    """Make the task of a claimed tick. Two that do it at once make one task: same key."""
    tick = ScheduleTick.objects.select_related("schedule__session").get(pk=tick_id)
    try:
        created = async_to_sync(service.create)(_request(tick))
    except ServiceError as refusal:
        return _settle(tick, ScheduleTick.Outcome.SKIPPED, _reason(refusal))
    return _settle(
        tick,
        ScheduleTick.Outcome.CREATED,
        "",
        task_id=created.task_id,
        session_id=created.session_id,
    )


def _request(tick: ScheduleTick) -> TaskRequest:
    schedule = tick.schedule
    session = _session(schedule)
    key = f"schedule:{schedule.pk}:{tick.due_at.astimezone(UTC).isoformat()}"
    return TaskRequest(
        goal=schedule.goal,
        owner_id=schedule.owner_id,
        trigger=Task.Trigger.CRON,
        session_id=session,
        workspace_id=None if session else schedule.workspace_id,
        when_busy="reject",
        mode=wiring.mode_of(Task.Trigger.CRON, schedule.mode) if schedule.mode else "",
        idempotency_key=key,
        body_digest=key[-64:],  # the key is the identity, even if the goal was edited meanwhile
    )


def _session(schedule: Schedule) -> UUID | None:
    """Its own conversation; when somebody deleted it, or moved the schedule, a new one begins."""
    session: Session | None = schedule.session
    usable = session is not None and not session.hidden
    same = session is not None and session.workspace_id == schedule.workspace_id
    return session.pk if session is not None and usable and same else None


def _reason(refusal: ServiceError) -> str:
    if refusal.code == "session_busy":
        status = (refusal.details or {}).get("status", "open")
        return f"The last task is not finished ({status})."
    return refusal.message


def _settle(
    tick: ScheduleTick,
    outcome: ScheduleTick.Outcome,
    reason: str,
    *,
    task_id: UUID | None = None,
    session_id: UUID | None = None,
) -> ScheduleTick:
    def command() -> None:
        # Where two carried it out, the one that made or found the task is right.
        open_tick = ScheduleTick.objects.filter(pk=tick.pk, outcome=ScheduleTick.Outcome.CLAIMED)
        open_tick.update(outcome=outcome, reason=reason, task_id=task_id)
        if session_id is not None:
            Schedule.objects.filter(pk=tick.schedule_id).update(session_id=session_id)

    writer.run_sync(command)
    tick.refresh_from_db()
    return tick
