"""Another process that appends events to a task, on the database of the running test."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def start_appender(task_id: str, count: int) -> subprocess.Popen[str]:
    """It writes one line per acknowledged event: its sequence. The caller ends it."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.appender", task_id, str(count)],
        cwd=ROOT,
        env={**os.environ, **_environment()},
        stdout=subprocess.PIPE,
        text=True,
    )


def _environment() -> dict[str, str]:
    from django.db import connection

    from tasks.conf import conf

    database = connection.settings_dict
    if connection.vendor == "sqlite":
        url = f"sqlite:///{database['NAME']}"
    else:
        login = ":".join(filter(None, [database["USER"], database["PASSWORD"]]))
        host = f"{database['HOST']}:{database['PORT'] or 5432}"
        url = f"postgres://{login}@{host}/{database['NAME']}"
    return {
        "DATABASE_URL": url,
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "PILOTHOUSE_AUDIT_KEY": conf().audit_key.hex(),
        "PILOTHOUSE_VAR_DIR": str(conf().var_dir),
    }


def main(task_id: str, count: int) -> None:
    import django

    django.setup()

    from agent.events import BudgetWarning
    from tasks import events
    from tasks.writer import writer

    def command(step: int) -> events.Appended:
        event = BudgetWarning(step=step, which="steps", used=step, limit=count)
        return events.append(task_id, [event])

    for step in range(count):
        appended = writer.run_sync(partial(command, step))
        sys.stdout.write(f"{appended.last_sequence}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
