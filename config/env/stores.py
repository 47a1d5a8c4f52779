"""What we lean on: the folder of our state, the database, Redis, and the mail server."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from config.env.reader import Reader

SCHEMES = ("sqlite", "postgres", "postgresql")
REDIS_SCHEMES = ("redis", "rediss", "unix")
SCALE_MODULES = ("psycopg", "psycopg_pool", "procrastinate", "channels_redis")
"""What the extra `scale` installs."""
MAIL_SECONDS = 10
POSTGRES_SOCKET = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""A database whose machine says nothing for about ten seconds is gone."""


def directory(path: Path, name: str) -> Path:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ImproperlyConfigured(
            f"{name}: cannot make the folder {path}: {error.strerror}."
        ) from error
    return path.resolve()


def existing(env: Reader, name: str) -> Path | None:
    """The real path of a folder that somebody made; None: the setting is empty."""
    if not env.text(name):
        return None
    path = env.path(name, "").resolve()
    if not path.is_dir():
        raise ImproperlyConfigured(f"{name}: there is no folder {path}; make it, or unset it.")
    return path


def database(env: Reader, var_dir: Path) -> dict[str, Any]:
    text = env.text("DATABASE_URL") or f"sqlite:///{var_dir / 'pilothouse.sqlite3'}"
    try:
        entry = env.db_url(text) if text.partition("://")[0] in SCHEMES else {}
    except ValueError:
        entry = {}
    match entry.get("ENGINE"):
        case "django.db.backends.sqlite3":
            return _sqlite(env, entry)
        case "django.db.backends.postgresql":
            return _postgres(entry)
        case _:
            raise ImproperlyConfigured(
                "DATABASE_URL: write postgres://user:password@host/name or sqlite:////a/path."
            )


def _postgres(entry: dict[str, Any]) -> dict[str, Any]:
    """What DATABASE_URL says about the connection wins."""
    return {
        **entry,
        "CONN_MAX_AGE": None,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {**POSTGRES_SOCKET, **entry.get("OPTIONS", {})},
    }


def _sqlite(env: Reader, entry: dict[str, Any]) -> dict[str, Any]:
    """WAL, and transactions that take the write lock at once: readers never wait for a writer."""
    if entry["NAME"] in ("", ":memory:"):
        raise ImproperlyConfigured(
            "DATABASE_URL: an SQLite database must be a file; write sqlite:////a/path."
        )
    path = env.root / entry["NAME"]
    _make_private(path)
    return {
        **entry,
        "NAME": str(path),
        "CONN_MAX_AGE": None,  # connections live as long as the few threads that use them
        "OPTIONS": {
            "timeout": 20,
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
            " PRAGMA foreign_keys=ON",
        },
    }


def _make_private(path: Path) -> None:
    """A new database is its owner's alone, whatever the folder is: sessions and all words are in it.
    What SQLite puts beside it gets the same permissions."""
    with suppress(OSError):  # it is there, or SQLite says what is wrong
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def redis_url(env: Reader, database: dict[str, Any]) -> str:
    """Scale-out, if there is one: it needs PostgreSQL and the extra `scale`."""
    text = env.text("REDIS_URL")
    if not text:
        return ""
    if text.partition("://")[0] not in REDIS_SCHEMES:
        raise ImproperlyConfigured("REDIS_URL: write redis://host:6379/0, or unset it.")
    if database["ENGINE"] != "django.db.backends.postgresql":
        raise ImproperlyConfigured(
            "REDIS_URL: several processes need PostgreSQL; write"
            " DATABASE_URL=postgres://user:password@host/name, or unset REDIS_URL."
        )
    missing = [name for name in SCALE_MODULES if find_spec(name) is None]
    if missing:
        raise ImproperlyConfigured(
            f"REDIS_URL: {', '.join(missing)} is not installed; install the extra `scale`."
        )
    return text


def email(env: Reader) -> dict[str, Any]:
    """Django's settings for what EMAIL_URL says; nothing is sent without a sender."""
    text, sender = env.text("EMAIL_URL"), env.text("PILOTHOUSE_MAIL_FROM")
    if sender and not text:
        raise ImproperlyConfigured(
            "PILOTHOUSE_MAIL_FROM: say how to send mail, too; write"
            " EMAIL_URL=smtp+tls://user:password@mail.example:587."
        )
    if not text:
        return {}
    if text.partition("://")[0] not in env.email_schemes:
        raise ImproperlyConfigured(
            "EMAIL_URL: write smtp+tls://user:password@mail.example:587, or smtp+ssl://…:465."
        )
    found = {name: value for name, value in env.email_url(text).items() if value is not None}
    return {"EMAIL_TIMEOUT": MAIL_SECONDS, **found}
