"""What every test stands on: settings and a database of its own, whatever the shell exports."""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from channels.layers import channel_layers
from django.conf import settings
from django.contrib.auth.management import create_permissions
from django.contrib.contenttypes.management import create_contenttypes
from django.db import connection, connections
from django.db.models.signals import post_migrate
from pytest_django.plugin import DjangoDbBlocker

from tasks.conf import Conf
from tasks.counters import counters
from tasks.garbage import calm
from tests.support.clock import Clock
from tests.support.spread import Spread, in_order
from tests.support.template import template, template_on

MIGRATED = ("auth_permission", "django_content_type")
_home = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    """No test sees a model, a limit or a folder of the person who runs it."""
    home = Path(tempfile.mkdtemp(prefix="pilothouse-tests-"))
    config.stash[_home] = home
    settings.PILOTHOUSE = Conf(
        var_dir=home,
        audit_key=b"audit key of the tests, 32 bytes",
        secrets_key=b"secrets key of tests - 32 bytes!",
        signing_key=b"signing key of tests - 32 bytes!",
        workspaces_dir=home / "workspaces",
        watch_seconds=0.03,  # most tests have no consumer that would wake the runner
    )
    settings.WHITENOISE_AUTOREFRESH = True  # else each client looks at every static file first
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # 0.3 s less each


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[_home], ignore_errors=True)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    pytestconfig: pytest.Config, django_db_modify_db_settings_parallel_suffix: None
) -> None:
    """Each worker has a database of its own. On SQLite it is a file: the writer thread and the tests
    share it."""
    database = connections["default"].settings_dict
    if connections["default"].vendor == "sqlite":
        database["TEST"]["NAME"] = str(pytestconfig.stash[_home] / "test.sqlite3")
        shutil.copyfile(template(), database["TEST"]["NAME"])
    else:
        database["TEST"]["TEMPLATE"] = template_on(database)


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """The copy has its tables already."""
    return connections["default"].vendor == "sqlite"


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """What migrations put in stays from test to test: looking for it anew would take longer than
    most tests. PostgreSQL drops no database that a thread of ours is still connected to."""
    vars(connections["default"].ops)["sql_flush"] = _delete_rows
    assert post_migrate.disconnect(
        dispatch_uid=f"{create_permissions.__module__}.create_permissions"
    )
    assert post_migrate.disconnect(create_contenttypes)
    yield
    if connections["default"].vendor == "postgresql":
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )


def _delete_rows(style: object, tables: Iterable[str], **_options: bool) -> list[str]:
    """After a test a table holds a few rows: deleting them takes milliseconds, TRUNCATE of all
    tables half a second. Foreign keys are checked at COMMIT, so any order will do."""
    return [f'DELETE FROM "{table}"' for table in tables if table not in MIGRATED]


@pytest.fixture(autouse=True)
def _empty_channels() -> None:
    """Messages that nobody received belong to the test that sent them."""
    channel_layers.backends.clear()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is collected here is garbage: looking for some took a third of the time. From
    then on Python looks as often as in a server."""
    gc.disable()
    try:
        return (yield)
    finally:
        calm()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test of one database's ways is not part of a run on the other: left out, not skipped."""
    other = "sqlite" if connections["default"].vendor == "postgresql" else "postgresql"
    left_out = [item for item in items if item.get_closest_marker(f"only_{other}")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    in_order(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Spread | None:
    return Spread(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def nothing_counted() -> Iterator[None]:
    """Nobody has asked or guessed in this process yet."""
    counters.cache_clear()
    yield
    counters.cache_clear()
