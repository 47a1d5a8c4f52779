"""Reads the environment, and `.env` in the project root, into typed values.

Every setting is known by name: a typo in a name or in a value stops the start with one sentence
that names the variable and says what to write. The environment wins over `.env`. Key files that
the environment does not replace are made once, whoever starts first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from config.env import approvals, keys, names, network, servers, stores
from config.env.keys import key_file as key_file
from config.env.names import NUMBERS as NUMBERS
from config.env.names import PREFIX
from config.env.names import WORDS as WORDS
from config.env.reader import Reader
from tasks.conf import Conf

ROOT = Path(__file__).resolve().parent.parent.parent
MODES = ("ask", "deny", "read_only")
MAIL_LANGUAGES = ("en", "zh-hans")
PROVIDERS = ("openai", "scripted")


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
    env = Reader(environ_, root)
    names.check(env.values)
    var_dir = stores.directory(env.path("PILOTHOUSE_VAR_DIR", "var"), "PILOTHOUSE_VAR_DIR")
    host, port = network.address(env)
    public_url = network.public_url(env, host, port)
    database = stores.database(env, var_dir)
    return Environment(
        conf=_conf(env, var_dir, public_url, stores.redis_url(env, database)),
        secret_key=env.text("SECRET_KEY") or keys.key_file(var_dir / "secret.key", "SECRET_KEY"),
        debug=env.flag("DEBUG", False),
        allowed_hosts=network.hosts(env, public_url),
        database=database,
        email=stores.email(env),
        host=host,
        port=port,
    )


def _conf(env: Reader, var_dir: Path, public_url: str, redis_url: str) -> Conf:
    numbers = {
        name.lower(): value
        for name, (kind, least) in NUMBERS.items()
        if (value := env.number(PREFIX + name, kind, least)) is not None
    }
    built = Conf(
        var_dir=var_dir,
        audit_key=keys.hex_key(env, var_dir / "audit.key", "PILOTHOUSE_AUDIT_KEY"),
        secrets_key=keys.hex_key(env, var_dir / "secrets.key", "PILOTHOUSE_SECRETS_KEY"),
        signing_key=keys.hex_key(env, var_dir / "signing.key", "PILOTHOUSE_SIGNING_KEY"),
        variables=env.values,
        workspaces_dir=env.path("PILOTHOUSE_WORKSPACES_DIR", str(var_dir / "workspaces")),
        skills_dir=stores.existing(env, "PILOTHOUSE_SKILLS_DIR"),
        public_url=public_url,
        trusted_proxies=network.proxies(env, public_url),
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
        mcp_servers=servers.mcp_servers(env, "PILOTHOUSE_MCP_SERVERS", var_dir),
        shell_unsandboxed=env.flag("PILOTHOUSE_SHELL_UNSANDBOXED", False),
        mode=env.choice("PILOTHOUSE_MODE", MODES, "ask"),
        unattended_mode=env.choice("PILOTHOUSE_UNATTENDED_MODE", MODES, "ask"),
        approver_groups=approvals.groups(env, "PILOTHOUSE_APPROVER_GROUPS"),
        other_approver=approvals.capabilities(env, "PILOTHOUSE_OTHER_APPROVER"),
        two_approvers=approvals.capabilities(env, "PILOTHOUSE_TWO_APPROVERS"),
        remind_at=approvals.moments(env, "PILOTHOUSE_REMIND_AT"),
        mail_from=env.text("PILOTHOUSE_MAIL_FROM"),
        mail_language=env.choice("PILOTHOUSE_MAIL_LANGUAGE", MAIL_LANGUAGES, "en"),
        notify_url=env.url("PILOTHOUSE_NOTIFY_URL"),
        notify_key=keys.webhook_key(env, "PILOTHOUSE_NOTIFY_KEY"),
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
