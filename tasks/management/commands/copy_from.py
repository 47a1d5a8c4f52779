"""`copy_from`: everything of another database into this one, e.g. from SQLite to PostgreSQL.

Rows are copied as they are, keys and hashes included, in one transaction: afterwards the log has
the same root as before. This database must be migrated and empty, and both at rest: the locks of
their servers are held meanwhile, so that none runs and none starts.
"""

from __future__ import annotations

import os
import socket
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import environ
from django.apps import apps
from django.contrib.auth.models import User
from django.core.management.base import CommandError
from django.core.management.color import no_style
from django.db import connections, transaction
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import Model

from tasks import server_lock
from tasks.management.people import in_words
from tasks.management.unchecked import UncheckedCommand

OLD, NEW = "old", "default"
ROWS = 500


class Command(UncheckedCommand):
    help = "Copy all rows of another database into this empty one. No server may run on either."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("url", help="the other database, as DATABASE_URL names it")

    def handle(self, *_args: Any, url: str, **_options: Any) -> None:
        with in_words(), _connected(url), _at_rest(OLD), _at_rest(NEW):
            _refuse_unlike()
            if User.objects.exists():
                raise CommandError("This database has users already; copy into an empty one.")
            with transaction.atomic(using=NEW):
                copied = _copy_all()
        self.stdout.write(f"{copied} rows copied. Compare the root of `verify_log` on both sides.")


@contextmanager
def _connected(url: str) -> Iterator[None]:
    """Under the alias OLD."""
    known = url.partition("://")[0] in environ.Env.DB_SCHEMES
    try:
        entry: dict[str, Any] = environ.Env.db_url_config(url) if known else {}
    except ValueError as error:
        raise CommandError(f"{url} is not a database URL: {error}") from error
    if not entry.get("NAME"):
        raise CommandError(
            f"{url} is not a database URL; write e.g. sqlite:////srv/var/db.sqlite3."
        )
    if entry["ENGINE"].endswith("sqlite3") and not Path(entry["NAME"]).is_file():
        raise CommandError(f"There is no file {entry['NAME']}.")
    connections.databases[OLD] = connections.configure_settings({OLD: entry, NEW: {}})[OLD]
    try:
        yield
    finally:
        connections[OLD].close()
        del connections[OLD], connections.databases[OLD]


@contextmanager
def _at_rest(alias: str) -> Iterator[None]:
    """The database's servers are stopped, and stay so."""
    try:
        lock = server_lock.alone(alias, f"{socket.gethostname()}:{os.getpid()}")
    except server_lock.ServerLockedError as error:
        raise CommandError(str(error)) from error
    try:
        yield
    finally:
        lock.release()


def _refuse_unlike() -> None:
    """Both sides must have been migrated by this version."""
    sides = [
        {
            key
            for key in MigrationRecorder(connections[alias]).applied_migrations()
            if key[0] in _ours()
        }
        for alias in (OLD, NEW)
    ]
    if sides[0] != sides[1]:
        raise CommandError(
            "The two databases are of different versions: run migrate on both first."
        )


def _ours() -> set[str]:
    return {model._meta.app_label for model in _models()}


def _models() -> list[type[Model]]:
    """Everything that is a table of Django's making."""
    return [
        model
        for model in apps.get_models(include_auto_created=True)
        if model._meta.managed and not model._meta.proxy
    ]


def _copy_all() -> int:
    """Foreign keys are checked at COMMIT, so any order will do."""
    models = _models()
    with connections[NEW].cursor() as cursor:
        for model in models:  # what migrate made has other keys here
            table = connections[NEW].ops.quote_name(model._meta.db_table)
            cursor.execute(f"DELETE FROM {table}")  # noqa: S608 - the name is a model's
        copied = sum(_copy(model) for model in models)
        for statement in connections[NEW].ops.sequence_reset_sql(no_style(), models):
            cursor.execute(statement)
    return copied


def _copy(model: type[Model]) -> int:
    copied = 0
    for batch in _batches(model):
        model._base_manager.using(NEW).bulk_create(batch)
        copied += len(batch)
    return copied


def _batches(model: type[Model]) -> Iterator[list[Model]]:
    batch: list[Model] = []
    for row in model._base_manager.using(OLD).order_by("pk").iterator(ROWS):
        batch.append(row)
        if len(batch) == ROWS:
            yield batch
            batch = []
    if batch:
        yield batch
