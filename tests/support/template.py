"""An empty SQLite database with all tables, migrated once for all tests and all processes.

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
from pathlib import Path

import django

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def template() -> Path:
    """Copy it. Another set of migrations, or another Django, has another one."""
    folder = Path(tempfile.gettempdir()) / f"pilothouse-template-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    made = folder / f"{_fingerprint()}.sqlite3"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two workers begin at the same moment
        if not made.exists():
            _migrate(made)
    return made


def _fingerprint() -> str:
    sources = [*ROOT.glob("tasks/migrations/*.py"), ROOT / "config" / "settings.py"]
    digest = hashlib.sha256(django.__version__.encode())
    for source in sorted(sources):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:20]


def _migrate(made: Path) -> None:
    with tempfile.TemporaryDirectory(dir=made.parent) as home:
        database = Path(home) / "db.sqlite3"
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "DATABASE_URL": f"sqlite:///{database}",
            "PILOTHOUSE_VAR_DIR": str(Path(home) / "var"),
        }
        command = [sys.executable, "manage.py", "migrate", "--verbosity", "0", "--skip-checks"]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
        database.replace(made)
