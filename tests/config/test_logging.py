from __future__ import annotations

import logging
from contextvars import copy_context

from config.logging import BriefFilter, TaskFilter
from tasks.logs import task_id


def line() -> str:
    record = logging.LogRecord("tasks.runner", logging.INFO, "", 0, "hello", None, None)
    assert TaskFilter().filter(record)
    return logging.Formatter("{name}{task} {message}", style="{").format(record)


def test_a_line_of_a_run_carries_its_task_id():
    context = copy_context()
    context.run(task_id.set, "abc")
    assert context.run(line) == "tasks.runner task=abc hello"


def test_a_line_outside_a_run_carries_none():
    assert line() == "tasks.runner hello"


def test_a_lost_server_is_one_line():
    record = logging.LogRecord("channels_redis.pubsub", logging.ERROR, "", 0, "Lost", None, None)
    error = ConnectionError("refused")
    record.exc_info = (ConnectionError, error, None)
    assert BriefFilter().filter(record)
    assert logging.Formatter("{message}", style="{").format(record) == "Lost: refused"
