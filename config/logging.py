"""Log lines of a run carry its task id; a lost Redis is one line, not a page."""

from __future__ import annotations

import logging

from tasks.logs import task_id


class TaskFilter(logging.Filter):
    """Adds `task` to each record: ` task=…` inside a run, else nothing."""

    def filter(self, record: logging.LogRecord) -> bool:
        current = task_id.get()
        record.task = f" task={current}" if current else ""
        return True


class BriefFilter(logging.Filter):
    """For a library that logs a traceback each second while a server is away: the error's words."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1] is not None:
            record.msg, record.args = "%s: %s", (record.getMessage(), record.exc_info[1])
            record.exc_info = record.exc_text = None
        return True
