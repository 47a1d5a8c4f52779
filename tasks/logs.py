"""Which task the current code works for, so that every log line can say so."""

from __future__ import annotations

from contextvars import ContextVar

task_id: ContextVar[str] = ContextVar("task_id", default="")
"""Set by whoever runs a task, in the run's own context; empty outside a run."""
