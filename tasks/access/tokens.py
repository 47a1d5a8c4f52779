"""API tokens: made once, found by their hash.

Finding one is a part of every request. It is one statement, and it never waits for the database's
writer: `last_used_at` is written at most once a minute, and not at all while somebody else writes.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, User
from django.db import OperationalError, connection, transaction
from django.utils import timezone

from tasks import audit
from tasks.access.principal import SCOPES
from tasks.access.rights import MAY_RESOLVE
from tasks.errors import Invalid
from tasks.models import ApiToken
from tasks.statements import Beside

PREFIX = "ph_"
RANDOM_BYTES = 32
TOKEN_USED_EVERY = timedelta(minutes=1)
"""How exact `last_used_at` is."""


@dataclass(frozen=True, kw_only=True)
class Bearer:
    """A good token and whose it is."""

    token: ApiToken
    username: str
    is_staff: bool
    resolves: bool
    """They hold the permission `tasks.resolve_approval`."""


def _find(column: str) -> Beside[ApiToken]:
    return Beside(
        ApiToken,
        "token",
        f"person.username, person.is_staff, person.is_superuser OR {MAY_RESOLVE}",
        f"""JOIN {User._meta.db_table} person ON person.id = token.user_id
        WHERE person.is_active AND token.revoked_at IS NULL AND token.{column} = %s""",
    )


_by_digest, _by_id = _find("digest"), _find("id")


def by_digest(digest: str) -> Bearer | None:
    """None when the token is unknown, expired or revoked, or its user deactivated."""
    return _good(_by_digest(digest))


def by_id(token_id: int) -> Bearer | None:
    return _good(_by_id(token_id))


def _good(found: Iterable[tuple[ApiToken, tuple[Any, ...]]]) -> Bearer | None:
    for token, (username, is_staff, resolves) in found:
        if token.expires_at is None or token.expires_at > timezone.now():
            return Bearer(
                token=token,
                username=username,
                is_staff=bool(is_staff),
                resolves=bool(resolves),
            )
    return None


def note_use(token: ApiToken) -> None:
    now = timezone.now()
    if token.last_used_at is not None and now - token.last_used_at < TOKEN_USED_EVERY:
        return
    try:
        with _without_waiting():
            ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
    except OperationalError:  # somebody is writing; the next request tries again
        return


@contextmanager
def _without_waiting() -> Iterator[None]:
    """SQLite has one lock for all writes: whoever only reads must not queue for it."""
    if connection.vendor != "sqlite":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout")
        (patience,) = cursor.fetchone()
        cursor.execute("PRAGMA busy_timeout = 0")
        try:
            yield
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {int(patience)}")


def issue_token(
    user: AbstractBaseUser,
    name: str = "",
    expires: datetime | None = None,
    scopes: Iterable[str] = SCOPES,
) -> str:
    """A new token. This is the only time that it can be read: the row keeps its hash."""
    wanted = set(scopes)
    if not wanted or not wanted <= set(SCOPES):
        raise Invalid("invalid", f"Scopes are some of {', '.join(SCOPES)}.")
    if expires is not None and expires <= timezone.now():
        raise Invalid("invalid", "A token must expire in the future.")
    token = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    with transaction.atomic():
        row = ApiToken.objects.create(
            user_id=user.pk,
            name=name,
            prefix=token[:10],
            digest=digest_of(token),
            scopes=[scope for scope in SCOPES if scope in wanted],
            expires_at=expires,
        )
        after = {"scopes": row.scopes, "expires_at": audit.moment_text(expires)}
        audit.record(_change("token.made", row, user.get_username(), after=after))
    return token


def revoke_token(token_id: int, by: str, owner_id: int | None = None) -> bool:
    """It stops working at once. False: there is no good token with this id (of this owner)."""
    with transaction.atomic():
        rows = ApiToken.objects.filter(pk=token_id, revoked_at=None)
        if owner_id is not None:
            rows = rows.filter(user_id=owner_id)
        row = rows.first()
        if row is None or not rows.update(revoked_at=timezone.now()):
            return False
        audit.record(_change("token.revoked", row, by, after={"revoked": True}))
    return True


def _change(action: str, row: ApiToken, by: str, after: dict[str, Any]) -> audit.Change:
    return audit.Change(
        action=action,
        by=by,
        object_type="token",
        object_id=str(row.pk),
        name=str(row),
        after={"owner": row.user_id, **after},
    )


def digest_of(token: str) -> str:
    """What the database knows of a token. 256 random bits need no salt, and an index finds it."""
    return hashlib.sha256(token.encode()).hexdigest()
