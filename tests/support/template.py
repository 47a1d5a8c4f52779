"""An empty database with all tables, migrated once for all tests and all processes.

Migrating takes seconds, and every worker of the tests and every server of theirs wants a database.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import django
import psycopg

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "pilothouse_template_"


@functools.cache
def template() -> Path:
    """SQLite's. Copy it. Another set of migrations, or another Django, has another one."""
    with _alone() as folder:
        made = folder / f"{_fingerprint()}.sqlite3"
        if not made.exists():
            _migrate(made)
    return made


def template_on(server: Mapping[str, Any]) -> str:
    """The name of PostgreSQL's, which takes the place of `template1`; those before it go."""
    name = f"{PREFIX}{_fingerprint()}"
    database = {
        "host": server["HOST"],
        "port": server["PORT"] or None,
        "user": server["USER"],
        "password": server["PASSWORD"],
    }
    with _alone(), psycopg.connect(**database, dbname=server["NAME"], autocommit=True) as admin:
        rows = admin.execute(
            "SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [PREFIX]
        )
        found = [row[0] for row in rows.fetchall()]
        if name not in found:
            for other in [*found, f"{PREFIX}unfinished"]:
                admin.execute(f'DROP DATABASE IF EXISTS "{other}"')
            admin.execute(f'CREATE DATABASE "{PREFIX}unfinished"')
            with tempfile.TemporaryDirectory() as home:
                url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{PREFIX}unfinished")
                _run_migrate(url.geturl(), Path(home))
            admin.execute(f'ALTER DATABASE "{PREFIX}unfinished" RENAME TO "{name}"')
    return name


@contextmanager
def _alone() -> Iterator[Path]:
    """Two workers begin at the same moment; the folder of what is made."""
    folder = Path(tempfile.gettempdir()) / f"pilothouse-template-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def _fingerprint() -> str:
    sources = [*ROOT.glob("tasks/migrations/*.py"), ROOT / "config" / "settings.py"]
    digest = hashlib.sha256(django.__version__.encode())
    for source in sorted(sources):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:20]


def _migrate(made: Path) -> None:
    with tempfile.TemporaryDirectory(dir=made.parent) as home:
        database = Path(home) / "db.sqlite3"
        _run_migrate(f"sqlite:///{database}", Path(home))
        database.replace(made)


def _run_migrate(url: str, home: Path) -> None:
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "DATABASE_URL": url,
        "PILOTHOUSE_VAR_DIR": str(home / "var"),
    }
    command = [sys.executable, "manage.py", "migrate", "--verbosity", "0", "--skip-checks"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
