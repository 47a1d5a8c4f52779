"""Log lines of a run carry its task id."""

from __future__ import annotations

import logging

from tasks.logs import task_id


class TaskFilter(logging.Filter):
    """Adds `task` to each record: ` task=…` inside a run, else nothing."""

    def filter(self, record: logging.LogRecord) -> bool:
        current = task_id.get()
        record.task = f" task={current}" if current else ""
        return True
