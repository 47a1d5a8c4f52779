"""Which schedule or webhook a task comes from, by name: for lists of what nobody typed."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from tasks.models import ScheduleTick, Task, WebhookDelivery


def names_of(tasks: Iterable[Task]) -> dict[UUID, str]:
    """Of those that have one; two questions at most, and none about tasks that people asked for."""
    asked: dict[str, set[UUID]] = {Task.Trigger.CRON: set(), Task.Trigger.WEBHOOK: set()}
    for task in tasks:
        asked.get(task.trigger, set()).add(task.pk)
    names: dict[UUID, str] = {}
    if schedules := asked[Task.Trigger.CRON]:
        ticks = ScheduleTick.objects.filter(task__in=schedules)
        names.update(ticks.values_list("task_id", "schedule__name"))
    if webhooks := asked[Task.Trigger.WEBHOOK]:
        deliveries = WebhookDelivery.objects.filter(task__in=webhooks)
        names.update(deliveries.values_list("task_id", "webhook__name"))
    return names
