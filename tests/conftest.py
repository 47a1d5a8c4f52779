"""What every test stands on: settings and a database of its own, whatever the shell exports."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connections

from tasks.conf import Conf

_home = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    """No test sees a model, a limit or a folder of the person who runs it."""
    home = Path(tempfile.mkdtemp(prefix="pilothouse-tests-"))
    config.stash[_home] = home
    settings.PILOTHOUSE = Conf(
        var_dir=home,
        audit_key=b"audit key of the tests, 32 bytes",
        workspaces_dir=home / "workspaces",
    )


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[_home], ignore_errors=True)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(pytestconfig: pytest.Config) -> None:
    """An SQLite test database is a file: the writer thread and the tests share it."""
    database = connections["default"].settings_dict
    if database["ENGINE"].endswith("sqlite3"):
        database["TEST"]["NAME"] = str(pytestconfig.stash[_home] / "test.sqlite3")
