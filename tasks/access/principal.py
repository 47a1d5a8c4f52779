"""Somebody who was identified. A token has scopes; a cookie has all of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tasks.errors import Forbidden

SCOPES = ("read", "write", "approve")
"""Every GET; create, change, cancel, send; decide approvals."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


@dataclass(frozen=True, kw_only=True)
class Principal:
    """Who, and by what."""

    user_id: int
    username: str
    is_staff: bool = False
    decides_everywhere: bool = False
    """Holds `tasks.resolve_approval`: decides, and so reads, whatever has an approval."""
    decides: frozenset[str] = frozenset()
    """Capabilities of the approver groups that they are in: these they decide in every workspace."""
    token_id: int | None = None
    token_expires_at: datetime | None = None
    scopes: frozenset[str] = frozenset(SCOPES)
    session_key: str | None = None
    """The cookie's, when that was it; looked at again while a stream is open."""

    def need(self, scope: str) -> None:
        if scope not in self.scopes:
            raise Forbidden("scope", f"This token does not have the scope {scope}.")
