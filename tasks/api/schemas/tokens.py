"""Bearer tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

from tasks.api.schemas.common import Strict, stamp
from tasks.models import ApiToken

Scope = Literal["read", "write", "approve"]


class TokenIn(Strict):
    name: str = Field("", max_length=100)
    scopes: list[Scope] | None = Field(None, min_length=1)
    """Default: what the caller has."""
    expires_in_days: int | None = Field(None, ge=1, le=36_500)


class TokenOut(BaseModel):
    id: int
    name: str
    prefix: str
    scopes: list[str]
    created_at: str | None
    expires_at: str | None
    last_used_at: str | None
    revoked_at: str | None

    @staticmethod
    def of(token: ApiToken) -> TokenOut:
        return TokenOut(
            id=token.pk,
            name=token.name,
            prefix=token.prefix,
            scopes=token.scopes,
            created_at=stamp(token.created_at),
            expires_at=stamp(token.expires_at),
            last_used_at=stamp(token.last_used_at),
            revoked_at=stamp(token.revoked_at),
        )


class NewTokenOut(TokenOut):
    token: str
    """Shown this once."""


class TokenList(BaseModel):
    items: Sequence[TokenOut]
    next: str | None
