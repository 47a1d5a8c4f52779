"""Reads the environment, and `.env` in the project root, into typed values.

Every setting is known by name: a typo in a name or in a value stops the start with one sentence
that names the variable and says what to write. The environment wins over `.env`. Key files that
the environment does not replace are made once, whoever starts first.
"""

from __future__ import annotations

import base64
import difflib
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured

from tasks.conf import Conf

Network = IPv4Network | IPv6Network
ROOT = Path(__file__).resolve().parent.parent
MODES = ("ask", "deny", "read_only")
PROVIDERS = ("openai", "scripted")
SCHEMES = ("sqlite", "postgres", "postgresql")
REDIS_SCHEMES = ("redis", "rediss", "unix")
SCALE_MODULES = ("psycopg", "psycopg_pool", "procrastinate", "channels_redis")
"""What the extra `scale` installs."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
PREFIX = "PILOTHOUSE_"

KEY_BYTES = 32
MAIL_SECONDS = 10
_LIMITS: dict[str, tuple[type[int] | type[float], float]] = {
    "STEPS": (int, 1),
    "SECONDS": (float, 1),
    "TOKENS": (int, 1),
    "COST": (float, 0),
}
NUMBERS: dict[str, tuple[type[int] | type[float], float]] = {
    "MAX_AGENT_STEPS": (int, 1),
    "MAX_TASK_SECONDS": (float, 1),
    "MAX_TASK_TOKENS": (int, 1),
    "MAX_TASK_COST": (float, 0),
    **{
        f"MAX_{scope}_{which}": kind
        for scope in ("SESSION", "USER", "DAY")
        for which, kind in _LIMITS.items()
    },
    "APPROVAL_TTL_SECONDS": (float, 1),
    "REPEAT_LIMIT": (int, 0),
    "SHELL_SECONDS": (float, 1),
    "SHELL_MEMORY_MB": (int, 64),
    "LLM_CONNECT_SECONDS": (float, 0.1),
    "LLM_FIRST_BYTE_SECONDS": (float, 0.1),
    "LLM_IDLE_SECONDS": (float, 0.1),
    "LLM_ATTEMPTS": (int, 1),
    "LLM_CONTEXT_TOKENS": (int, 1000),
    "MAX_ACTIVE_RUNS": (int, 1),
    "MAX_QUEUED_PER_USER": (int, 1),
    "MAX_TASKS_PER_MINUTE": (int, 0),
    "SIGN_IN_TRIES": (int, 1),
    "SIGN_IN_PAUSE_SECONDS": (int, 1),
    "DRAIN_SECONDS": (float, 0),
    "LEASE_SECONDS": (float, 0.5),
    "WATCH_SECONDS": (float, 0.05),
    "SSE_HEARTBEAT_SECONDS": (float, 0.1),
    "DELTA_FLUSH_MS": (int, 0),
}
"""Numeric settings with their type and least value."""
WORDS = frozenset(
    {
        "APPROVER_GROUPS",
        "AUDIT_KEY",
        "BUDGET_ASKS",
        "DEMO_MODEL",
        "ENABLE_SHELL",
        "ENABLE_WEB",
        "HOST",
        "LLM_API_KEY",
        "LLM_BASE_URL",
        "LLM_MODEL",
        "LLM_PROVIDER",
        "LLM_STREAM",
        "MAIL_FROM",
        "MODE",
        "NOTIFY_KEY",
        "NOTIFY_PRIVATE",
        "NOTIFY_URL",
        "OTHER_APPROVER",
        "PORT",
        "PUBLIC_URL",
        "REMIND_AT",
        "SECRETS_KEY",
        "SHELL_UNSANDBOXED",
        "SIGNING_KEY",
        "TRUSTED_PROXIES",
        "TWO_APPROVERS",
        "UNATTENDED_MODE",
        "VAR_DIR",
        "WORKSPACES_DIR",
    }
)
"""The settings that are not numbers."""
NOT_YET = {
    "PILOTHOUSE_SKILLS_DIR": "skills are not in this version; unset it",
    "PILOTHOUSE_MCP_SERVERS": "MCP servers are not in this version; unset it",
}
"""Settings of the design that this version refuses rather than ignores."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What the settings module needs from outside."""

    conf: Conf
    secret_key: str
    debug: bool
    allowed_hosts: list[str]
    database: dict[str, Any]
    """A `DATABASES` entry."""
    email: dict[str, Any]
    """Django's `EMAIL_…` settings."""
    host: str
    """Where to listen."""
    port: int

    @property
    def https(self) -> bool:
        return self.conf.public_url.startswith("https://")


def read(environ_: Mapping[str, str] = os.environ, root: Path = ROOT) -> Environment:
    """The whole configuration. Raises ImproperlyConfigured with one sentence."""
    env = _Reader(environ_, root)
    env.check_names()
    var_dir = _directory(env.path("PILOTHOUSE_VAR_DIR", "var"), "PILOTHOUSE_VAR_DIR")
    host, port = _address(env)
    public_url = _public_url(env, host, port)
    database = _database(env, var_dir)
    return Environment(
        conf=_conf(env, var_dir, public_url, _redis_url(env, database)),
        secret_key=env.text("SECRET_KEY") or key_file(var_dir / "secret.key", "SECRET_KEY"),
        debug=env.flag("DEBUG", False),
        allowed_hosts=_hosts(env, public_url),
        database=database,
        email=_email(env),
        host=host,
        port=port,
    )


def key_file(path: Path, name: str) -> str:
    """The key in the file, made now if there is none: 64 hex digits, readable by us alone.

    Two processes may start at once: each writes a whole file of its own and tries to link it to
    the name. The first link stands, and the loser reads the winner's key.
    """
    if not path.exists():
        _link_new_key(path, name)
    try:
        key = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ImproperlyConfigured(f"{name}: cannot read {path} ({error}).") from error
    if not re.fullmatch(r"[0-9a-f]{64}", key):
        raise ImproperlyConfigured(
            f"{name}: {path} does not hold 64 hexadecimal digits; restore it from a backup."
        )
    return key


def _link_new_key(path: Path, name: str) -> None:
    try:
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # mode 0600
        try:
            with os.fdopen(handle, "w", encoding="ascii") as file:
                file.write(secrets.token_hex(KEY_BYTES) + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.link(draft, path)
        except FileExistsError:
            pass  # another process got there first; its key is the key
        finally:
            Path(draft).unlink()
    except OSError as error:
        raise ImproperlyConfigured(f"{name}: cannot make {path} ({error}).") from error


_LINE = re.compile(r"\s*(?:export\s+)?(?P<name>[A-Za-z_]\w*)\s*=\s*(?P<value>.*?)\s*")
_REMARK = re.compile(r"""(?P<value>"[^"]*"|'[^']*'|[^"'].*?|)(?:\s+|^)\#.*""")


def _assignments(file: Path) -> Iterator[str]:
    """NAME=value lines, without remarks. A line that sets nothing is a typo, not left out."""
    for number, line in enumerate(file.read_text(encoding="utf-8-sig").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise ImproperlyConfigured(
                f".env, line {number}: write NAME=value, or # before a remark."
            )
        remark = _REMARK.fullmatch(found["value"])
        yield f"{found['name']}={remark['value'] if remark else found['value']}"


class _Reader:
    """Typed access to one environment; every complaint names its variable."""

    def __init__(self, environ_: Mapping[str, str], root: Path) -> None:
        class Merged(environ.Env):  # type: ignore[misc] # the library is untyped
            ENVIRON = dict(environ_)  # its class attribute; never the process's own

        if (root / ".env").is_file():
            Merged.read_env(StringIO("\n".join(_assignments(root / ".env"))))
        self.root = root
        self.values: dict[str, str] = Merged.ENVIRON
        self.db_url: Callable[..., dict[str, Any]] = Merged.db_url_config
        self.email_url: Callable[..., dict[str, Any]] = Merged.email_url_config
        self.email_schemes = frozenset(Merged.EMAIL_SCHEMES)

    def check_names(self) -> None:
        for name in sorted(self.values):
            if self.values[name] and name in NOT_YET:
                raise ImproperlyConfigured(f"{name}: {NOT_YET[name]}.")
            if name.startswith(PREFIX) and name not in NOT_YET:
                _known(name)

    def text(self, name: str, default: str = "") -> str:
        return self.values.get(name, "").strip() or default

    def path(self, name: str, default: str) -> Path:
        return self.root / Path(self.text(name, default)).expanduser()

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name).lower()
        if text in ("1", "true", "yes", "on"):
            return True
        if text in ("0", "false", "no", "off"):
            return False
        if text:
            raise ImproperlyConfigured(f"{name}: write 1 or 0, not {text!r}.")
        return default

    def words(self, name: str) -> list[str]:
        """What stands between commas."""
        return [word.strip() for word in self.text(name).split(",") if word.strip()]

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        text = self.text(name, default)
        if text not in choices:
            allowed = ", ".join(choices[:-1]) + f" or {choices[-1]}"
            raise ImproperlyConfigured(f"{name}: write {allowed}, not {text!r}.")
        return text

    def number(self, name: str, kind: type[int] | type[float], least: float) -> float | None:
        text = self.text(name)
        if not text:
            return None
        noun = "a whole number" if kind is int else "a number"
        try:
            value = kind(text)
        except ValueError:
            raise ImproperlyConfigured(f"{name}: write {noun}, not {text!r}.") from None
        if not least <= value < float("inf"):
            raise ImproperlyConfigured(f"{name}: write {noun} of at least {least:g}, not {text!r}.")
        return value

    def url(self, name: str, default: str = "") -> str:
        text = self.text(name, default).rstrip("/")
        if not text:
            return ""
        try:
            parts = urlsplit(text)
            good = parts.scheme in ("http", "https") and bool(parts.hostname)
            _ = parts.port
        except ValueError:
            good = False
        if not good:
            raise ImproperlyConfigured(
                f"{name}: write a URL like https://host.example, not {text!r}."
            )
        return text


def _known(name: str) -> None:
    suffixes = WORDS | NUMBERS.keys()
    if name.removeprefix(PREFIX) in suffixes:
        return
    near = difflib.get_close_matches(name.removeprefix(PREFIX), suffixes, n=1)
    hint = f"; did you mean {PREFIX}{near[0]}?" if near else "; .env.example lists all of them."
    raise ImproperlyConfigured(f"{name}: there is no such setting{hint}")


def _conf(env: _Reader, var_dir: Path, public_url: str, redis_url: str) -> Conf:
    numbers = {
        name.lower(): value
        for name, (kind, least) in NUMBERS.items()
        if (value := env.number(PREFIX + name, kind, least)) is not None
    }
    built = Conf(
        var_dir=var_dir,
        audit_key=_hex_key(env, var_dir / "audit.key", "PILOTHOUSE_AUDIT_KEY"),
        secrets_key=_hex_key(env, var_dir / "secrets.key", "PILOTHOUSE_SECRETS_KEY"),
        signing_key=_hex_key(env, var_dir / "signing.key", "PILOTHOUSE_SIGNING_KEY"),
        variables=env.values,
        workspaces_dir=env.path("PILOTHOUSE_WORKSPACES_DIR", str(var_dir / "workspaces")),
        public_url=public_url,
        trusted_proxies=_proxies(env, public_url),
        redis_url=redis_url,
        llm_provider=env.choice("PILOTHOUSE_LLM_PROVIDER", PROVIDERS, "openai"),
        llm_base_url=env.url("PILOTHOUSE_LLM_BASE_URL"),
        llm_api_key=env.text("PILOTHOUSE_LLM_API_KEY"),
        llm_model=env.text("PILOTHOUSE_LLM_MODEL"),
        llm_stream=env.flag("PILOTHOUSE_LLM_STREAM", True),
        demo_model=env.flag("PILOTHOUSE_DEMO_MODEL", False),
        budget_asks=env.flag("PILOTHOUSE_BUDGET_ASKS", False),
        enable_shell=env.flag("PILOTHOUSE_ENABLE_SHELL", False),
        enable_web=env.flag("PILOTHOUSE_ENABLE_WEB", False),
        shell_unsandboxed=env.flag("PILOTHOUSE_SHELL_UNSANDBOXED", False),
        mode=env.choice("PILOTHOUSE_MODE", MODES, "ask"),
        unattended_mode=env.choice("PILOTHOUSE_UNATTENDED_MODE", MODES, "ask"),
        approver_groups=_groups(env, "PILOTHOUSE_APPROVER_GROUPS"),
        other_approver=_capabilities(env, "PILOTHOUSE_OTHER_APPROVER"),
        two_approvers=_capabilities(env, "PILOTHOUSE_TWO_APPROVERS"),
        remind_at=_moments(env, "PILOTHOUSE_REMIND_AT"),
        mail_from=env.text("PILOTHOUSE_MAIL_FROM"),
        notify_url=env.url("PILOTHOUSE_NOTIFY_URL"),
        notify_key=_webhook_key(env, "PILOTHOUSE_NOTIFY_KEY"),
        notify_private=env.flag("PILOTHOUSE_NOTIFY_PRIVATE", False),
        given=frozenset(
            name
            for name, value in env.values.items()
            if value.strip() and (name.startswith(PREFIX) or name == "REDIS_URL")
        ),
        **numbers,  # type: ignore[arg-type] # NUMBERS has the type of each field
    )
    if built.llm_base_url and not built.llm_model:
        raise ImproperlyConfigured(
            "PILOTHOUSE_LLM_MODEL: name the model to ask for at PILOTHOUSE_LLM_BASE_URL."
        )
    if built.notify_url and not built.notify_key:
        raise ImproperlyConfigured(
            "PILOTHOUSE_NOTIFY_URL: what is sent there must be signed; write PILOTHOUSE_NOTIFY_KEY,"
            " whsec_ and the base64 of random bytes (openssl rand -base64 33)."
        )
    return built


def _moments(env: _Reader, name: str) -> tuple[float, ...]:
    if not env.text(name):
        return (0.5,)
    try:
        moments = tuple(float(word) for word in env.words(name) if word != "never")
    except ValueError:
        moments = (0.0,)
    if not all(0 < moment < float("inf") for moment in moments):
        raise ImproperlyConfigured(
            f"{name}: write never, or parts of the time (0.5) and seconds (600), with commas."
        )
    return moments


def _webhook_key(env: _Reader, name: str) -> bytes:
    text = env.text(name)
    try:
        key = base64.b64decode(text.removeprefix("whsec_"), validate=True)
    except ValueError:
        key = b""
    if text and not 24 <= len(key) <= 64:
        raise ImproperlyConfigured(
            f"{name}: write whsec_ and the base64 of 24 to 64 random bytes (openssl rand -base64 33)."
        )
    return key


def _email(env: _Reader) -> dict[str, Any]:
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


def _capabilities(env: _Reader, name: str) -> tuple[str, ...]:
    return tuple(_capability(name, word) for word in env.words(name))


def _groups(env: _Reader, name: str) -> dict[str, str]:
    """`shell:execute=operators, network=security`"""
    groups: dict[str, str] = {}
    for word in env.words(name):
        capability, _, group = (part.strip() for part in word.partition("="))
        if not group:
            raise ImproperlyConfigured(f"{name}: write capability=group, not {word!r}.")
        groups[_capability(name, capability)] = group
    return groups


def _capability(name: str, text: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]*(:[a-z][a-z0-9_]*)*", text):
        raise ImproperlyConfigured(
            f"{name}: write capabilities like shell:execute or write, not {text!r}."
        )
    return text


def _hex_key(env: _Reader, path: Path, name: str) -> bytes:
    text = env.text(name)
    if text and not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise ImproperlyConfigured(f"{name}: write 64 hexadecimal digits (openssl rand -hex 32).")
    return bytes.fromhex(text or key_file(path, name))


def _address(env: _Reader) -> tuple[str, int]:
    name = "PILOTHOUSE_PORT" if env.text("PILOTHOUSE_PORT") else "PORT"
    port = env.text(name, "8000")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ImproperlyConfigured(f"{name}: write a port number, not {port!r}.")
    return env.text("PILOTHOUSE_HOST", "127.0.0.1"), int(port)


def _public_url(env: _Reader, host: str, port: int) -> str:
    """Where browsers find us; by default, where `make run` listens."""
    reachable = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104 - compared, not bound
    bracketed = f"[{reachable}]" if ":" in reachable else reachable
    url = env.url("PILOTHOUSE_PUBLIC_URL", f"http://{bracketed}:{port}")
    if url.startswith("http://") and urlsplit(url).hostname not in LOOPBACK:
        raise ImproperlyConfigured(
            "PILOTHOUSE_PUBLIC_URL: plain http is for loopback only; write the https:// address"
            " under which people reach this server."
        )
    return url


def _proxies(env: _Reader, public_url: str) -> tuple[Network, ...]:
    """With an https address there is a proxy in front, by default on this machine."""
    name = "PILOTHOUSE_TRUSTED_PROXIES"
    default = "127.0.0.0/8,::1" if public_url.startswith("https://") else ""
    found = []
    for text in filter(None, map(str.strip, env.text(name, default).split(","))):
        try:
            found.append(ip_network(text))
        except ValueError:
            message = f"{name}: write addresses or networks like 10.0.0.0/8, not {text!r}."
            raise ImproperlyConfigured(message) from None
    return tuple(found)


def _hosts(env: _Reader, public_url: str) -> list[str]:
    text = env.text("ALLOWED_HOSTS")
    if text:
        return [host.strip() for host in text.split(",") if host.strip()]
    host = urlsplit(public_url).hostname or ""
    own = f"[{host}]" if ":" in host else host
    return sorted({"localhost", "127.0.0.1", "[::1]", own})


def _database(env: _Reader, var_dir: Path) -> dict[str, Any]:
    text = env.text("DATABASE_URL") or f"sqlite:///{var_dir / 'pilothouse.sqlite3'}"
    try:
        entry = env.db_url(text) if text.partition("://")[0] in SCHEMES else {}
    except ValueError:
        entry = {}
    match entry.get("ENGINE"):
        case "django.db.backends.sqlite3":
            return _sqlite(env, entry)
        case "django.db.backends.postgresql":
            return {**entry, "CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True}
        case _:
            raise ImproperlyConfigured(
                "DATABASE_URL: write postgres://user:password@host/name or sqlite:////a/path."
            )


def _redis_url(env: _Reader, database: dict[str, Any]) -> str:
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


def _sqlite(env: _Reader, entry: dict[str, Any]) -> dict[str, Any]:
    """WAL, and transactions that take the write lock at once: readers never wait for a writer."""
    if entry["NAME"] in ("", ":memory:"):
        raise ImproperlyConfigured(
            "DATABASE_URL: an SQLite database must be a file; write sqlite:////a/path."
        )
    return {
        **entry,
        "NAME": str(env.root / entry["NAME"]),
        "CONN_MAX_AGE": None,  # connections live as long as the few threads that use them
        "OPTIONS": {
            "timeout": 20,
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
            " PRAGMA foreign_keys=ON",
        },
    }


def _directory(path: Path, name: str) -> Path:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ImproperlyConfigured(f"{name}: cannot make the folder {path} ({error}).") from error
    return path.resolve()
