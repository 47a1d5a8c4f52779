"""The product's settings as one typed value; `config.env` reads it from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings

from agent.mcp.declared import Server


@dataclass(frozen=True, kw_only=True)
class Conf:
    """Field names are the environment's, without the `PILOTHOUSE_` prefix and in lower case."""

    var_dir: Path
    """State that is not the database: audit key, locks, workspaces."""
    audit_key: bytes = field(repr=False)
    """HMAC key of the hash chains."""
    workspaces_dir: Path
    skills_dir: Path | None = None
    """Skills of the server, for every workspace; None: there are none."""
    secrets_key: bytes = field(default=b"", repr=False)
    """Seals the keys of model profiles: 32 bytes."""
    signing_key: bytes = field(default=b"", repr=False)
    """Ed25519 seed that signs exports: 32 bytes."""
    variables: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """The whole environment and `.env`: model profiles may name a key in it."""
    public_url: str = "http://127.0.0.1:8000"
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    """Whose X-Forwarded-For is believed."""
    redis_url: str = field(default="", repr=False)
    """Set: scale-out. Web processes and workers share PostgreSQL and this Redis."""

    llm_provider: str = "openai"
    """openai or scripted"""
    llm_base_url: str = ""
    llm_api_key: str = field(default="", repr=False)
    llm_model: str = ""
    llm_stream: bool = True
    llm_connect_seconds: float = 10
    llm_first_byte_seconds: float = 120
    llm_idle_seconds: float = 60
    llm_attempts: int = 5
    """How often a model that fails for a moment is asked in one step."""
    llm_context_tokens: int | None = None
    """What the model can read; None: about 100,000."""
    demo_model: bool = False
    """With no other model: play the scripted demo."""

    max_agent_steps: int = 12
    max_task_seconds: float = 300
    max_task_tokens: int | None = None
    max_task_cost: float | None = None
    max_session_steps: int | None = None
    """A session over all its tasks."""
    max_session_seconds: float | None = None
    max_session_tokens: int | None = None
    max_session_cost: float | None = None
    max_user_steps: int | None = None
    """One person within a day."""
    max_user_seconds: float | None = None
    max_user_tokens: int | None = None
    max_user_cost: float | None = None
    max_day_steps: int | None = None
    """Everybody together within a day."""
    max_day_seconds: float | None = None
    max_day_tokens: int | None = None
    max_day_cost: float | None = None
    budget_asks: bool = False
    """A used-up limit of a task or session becomes a question to a person."""

    mode: str = "ask"
    """ask, deny or read_only: for chat, api and command"""
    unattended_mode: str = "ask"
    """The same for cron."""
    approval_ttl_seconds: float = 1800
    approver_groups: Mapping[str, str] = field(default_factory=dict)
    """Capability, or its last segment → the Django group whose members approve it."""
    other_approver: tuple[str, ...] = ()
    """Capabilities that whoever asked for the task does not approve."""
    two_approvers: tuple[str, ...] = ()
    """Capabilities that need two people's yes."""
    remind_at: tuple[float, ...] = (0.5,)
    """When people are reminded of a question: below 1 a part of the time it waits, else seconds."""
    mail_from: str = ""
    """Sender of mails about what waits; empty: no mails."""
    mail_language: str = "en"
    """Of all mails, as Django names it: who gets them is not there to say."""
    notify_url: str = field(default="", repr=False)
    """Where a webhook says that something waits; empty: nowhere. It may have a secret in its path."""
    notify_key: bytes = field(default=b"", repr=False)
    """Signs the webhook."""
    notify_private: bool = False
    """The webhook's address may be one of a private network."""
    repeat_limit: int = 6
    """So many identical calls in a row become a question; 0 = off."""

    enable_shell: bool = False
    """There is a tool run_command."""
    shell_seconds: float = 60
    shell_memory_mb: int = 2048
    shell_unsandboxed: bool = False
    """Run commands even where there is no sandbox."""
    enable_web: bool = False
    """There is a tool fetch_url."""
    mcp_servers: Mapping[str, Server] = field(default_factory=dict)
    """The MCP servers that there are, by name; a workspace may use those that it names, too."""

    undo_days: int = 30
    """How long what files held before a call is kept, so that it can be undone."""
    undo_mb: int = 1024
    """Megabytes of it, over all tasks; 0: nothing is kept."""

    max_active_runs: int = 256
    max_queued_per_user: int = 100
    max_tasks_per_minute: int = 1200
    """That one person may ask for over the API or the chat; 0 = no limit."""
    max_deliveries_per_minute: int = 60
    """That one webhook takes; 0 = no limit."""
    sign_in_tries: int = 5
    """Wrong passwords for one name from one address, then a pause."""
    sign_in_pause_seconds: int = 300
    drain_seconds: float = 5
    lease_seconds: float = 6
    watch_seconds: float = 0.5

    sse_heartbeat_seconds: float = 15
    delta_flush_ms: int = 40

    given: frozenset[str] = frozenset()
    """Names of the variables that somebody set; everything else is a default."""

    @property
    def scale_out(self) -> bool:
        """Tasks are run by worker processes; embedded, the one server runs them itself."""
        return bool(self.redis_url)

    @property
    def origin(self) -> str:
        """Scheme, host and port of `public_url`."""
        parts = urlsplit(self.public_url)
        return f"{parts.scheme}://{parts.netloc}"


def conf() -> Conf:
    """The settings in force."""
    return settings.PILOTHOUSE
