"""Who is asking, and what they may see, change and decide.

`identify` finds the principal of a request: a bearer token, or Django's session cookie with its
CSRF check. The querysets are the only way from a principal to rows. What somebody may not see is
`NotFound`, exactly like what does not exist: unknown, malformed and foreign ids look the same.

1. The API's paths skip Django's session, auth and CSRF middleware (each is a thread hop); this
   module does their work in one hop.
2. A token has scopes: `read` (every GET), `write` (create, change, cancel, send), `approve`
   (decide approvals). A cookie has all three.
3. Nothing here waits for the database's writer: a token's `last_used_at` is written at most once
   a minute, and not at all while somebody else is writing.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any, NoReturn, TypeVar
from uuid import UUID

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import (
    BACKEND_SESSION_KEY,
    HASH_SESSION_KEY,
    SESSION_KEY,
    get_user_model,
    load_backend,
)
from django.contrib.auth.models import AbstractBaseUser, User
from django.contrib.sessions.backends.base import SessionBase
from django.core.exceptions import BadRequest, SuspiciousOperation, ValidationError
from django.db import OperationalError, connection
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest
from django.http.multipartparser import MultiPartParserError
from django.middleware.csrf import CsrfViewMiddleware
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from tasks.errors import Forbidden, Invalid, NotFound, NotIdentified
from tasks.models import ApiToken, Approval, Member, Session, Task, Workspace

SCOPES = ("read", "write", "approve")
TOKEN_PREFIX = "ph_"  # noqa: S105 - how every token begins, not a token
TOKEN_BYTES = 32
TOKEN_USED_EVERY = timedelta(minutes=1)
"""How exact `last_used_at` is."""

WRITERS = (Member.Role.MEMBER, Member.Role.APPROVER)
APPROVERS = (Member.Role.APPROVER,)
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})

Row = TypeVar("Row", Workspace, Session, Task, Approval)


@dataclass(frozen=True, kw_only=True)
class Principal:
    """Somebody who was identified, and by what."""

    user_id: int
    username: str
    is_staff: bool = False
    decides_everywhere: bool = False
    """Holds `tasks.resolve_approval`: decides, and so reads, whatever has an approval."""
    token_id: int | None = None
    token_expires_at: datetime | None = None
    scopes: frozenset[str] = frozenset(SCOPES)
    session_key: str | None = None
    """The cookie's, when that was it; looked at again while a stream is open."""

    def need(self, scope: str) -> None:
        if scope not in self.scopes:
            raise Forbidden("scope", f"This token does not have the scope {scope}.")


# ── who is asking ─────────────────────────────────────────────────────────────────────────────


async def identify(request: HttpRequest) -> Principal:
    """The request's principal. Raises NotIdentified, or Forbidden (csrf)."""
    return await sync_to_async(identify_now)(request)


def identify_now(request: HttpRequest) -> Principal:
    """`identify` for code that is in a thread already."""
    scheme, _, credential = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return _by_token(credential.strip())
    return _by_cookie(request)


async def still_valid(principal: Principal) -> bool:
    """Whether the principal would be identified again now: streams ask at every heartbeat."""
    return await sync_to_async(_still_valid)(principal)


def _still_valid(principal: Principal) -> bool:
    if principal.token_id is not None:
        return _good_tokens().filter(pk=principal.token_id).exists()
    user = _user_of_session(principal.session_key)
    return user is not None and user.pk == principal.user_id


def principal_of(user: AbstractBaseUser, **by: Any) -> Principal:
    """A user as a principal; `by` says what identified them."""
    assert isinstance(user, User)
    return Principal(
        user_id=user.pk,
        username=user.get_username(),
        is_staff=user.is_staff,
        decides_everywhere=user.has_perm("tasks.resolve_approval"),
        **by,
    )


def _by_token(token: str) -> Principal:
    row = _good_tokens().select_related("user").filter(digest=digest_of(token)).first()
    if row is None:
        raise NotIdentified("This token is unknown, expired or revoked.")
    _note_use(row)
    return principal_of(
        row.user,
        token_id=row.pk,
        token_expires_at=row.expires_at,
        scopes=frozenset(row.scopes) & frozenset(SCOPES),
    )


def _good_tokens() -> QuerySet[ApiToken]:
    unexpired = Q(expires_at=None) | Q(expires_at__gt=timezone.now())
    return ApiToken.objects.filter(unexpired, revoked_at=None, user__is_active=True)


def _note_use(token: ApiToken) -> None:
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


def _by_cookie(request: HttpRequest) -> Principal:
    key = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
    user = _user_of_session(key)
    if user is None:
        raise NotIdentified
    if request.method not in SAFE_METHODS:
        _check_csrf(request)
    return principal_of(user, session_key=key)


def _user_of_session(key: str | None) -> AbstractBaseUser | None:
    """`django.contrib.auth.get_user` without its writes: no cookie goes back from here."""
    if not key:
        return None
    session: SessionBase = import_module(settings.SESSION_ENGINE).SessionStore(key)
    path = str(session.get(BACKEND_SESSION_KEY))
    if path not in settings.AUTHENTICATION_BACKENDS or SESSION_KEY not in session:
        return None
    try:
        user_id = get_user_model()._meta.pk.to_python(session[SESSION_KEY])
    except ValidationError:
        return None
    user: AbstractBaseUser | None = load_backend(path).get_user(user_id)
    stored = session.get(HASH_SESSION_KEY, "")
    return user if user is not None and _hash_matches(user, stored) else None


def _hash_matches(user: AbstractBaseUser, stored: str) -> bool:
    """A changed password ends every session; a rotated secret key does not."""
    accepted = [user.get_session_auth_hash(), *user.get_session_auth_fallback_hash()]
    return any(constant_time_compare(stored, candidate) for candidate in accepted)


class _Csrf(CsrfViewMiddleware):
    """Django's own check; a refusal is an error of ours instead of its page."""

    def _reject(self, request: HttpRequest, reason: str) -> NoReturn:
        raise Forbidden("csrf", reason)


def _no_response(request: HttpRequest) -> NoReturn:
    raise AssertionError("the check never goes on to a view")


def _check_csrf(request: HttpRequest) -> None:
    try:
        _Csrf(_no_response).process_view(request, _no_response, (), {})
    except (MultiPartParserError, SuspiciousOperation, BadRequest) as error:
        # The check looks for a token in forms too, and this form cannot be read.
        raise Forbidden("csrf", "The form cannot be read.") from error


# ── what they may see ─────────────────────────────────────────────────────────────────────────


def visible_workspaces(
    principal: Principal, roles: Iterable[str] = Member.Role
) -> QuerySet[Workspace]:
    """Their own, and those in which they have one of `roles`."""
    memberships = Member.objects.filter(user_id=principal.user_id, role__in=list(roles))
    return Workspace.objects.filter(
        Q(owner_id=principal.user_id) | Q(pk__in=memberships.values("workspace_id"))
    )


def visible_sessions(principal: Principal, roles: Iterable[str] = Member.Role) -> QuerySet[Session]:
    """Sessions that they own or that are in such a workspace. A deleted session is nobody's."""
    return Session.objects.filter(_reach(principal, roles, ""), hidden=False)


def visible_tasks(principal: Principal, roles: Iterable[str] = Member.Role) -> QuerySet[Task]:
    reach = _reach(principal, roles, "session__")
    if principal.decides_everywhere and roles is Member.Role:
        reach |= Q(Exists(Approval.objects.filter(task=OuterRef("pk"))))
    return Task.objects.filter(reach, session__hidden=False).select_related("session")


def visible_approvals(
    principal: Principal, roles: Iterable[str] = Member.Role
) -> QuerySet[Approval]:
    rows = Approval.objects.filter(task__session__hidden=False).select_related("task")
    if principal.decides_everywhere:
        return rows
    return rows.filter(_reach(principal, roles, "task__session__"))


def _reach(principal: Principal, roles: Iterable[str], prefix: str) -> Q:
    # A subquery, not a join: a join would repeat a session for every member of its workspace.
    workspaces = visible_workspaces(principal, roles).values("pk")
    return Q(**{f"{prefix}owner_id": principal.user_id}) | Q(
        **{f"{prefix}workspace_id__in": workspaces}
    )


def parse_id(value: object, what: str) -> UUID:
    """An id from a path or a body. What is not one names nothing."""
    try:
        return value if isinstance(value, UUID) else UUID(str(value))
    except ValueError:
        raise NotFound(what) from None


def find(rows: QuerySet[Row], row_id: object, what: str) -> Row:
    """The one of `rows` with this id. For code in threads; the functions below are for the loop."""
    row = rows.filter(pk=parse_id(row_id, what)).first()
    if row is None:
        raise NotFound(what)
    return row


async def visible_workspace(principal: Principal, workspace_id: object) -> Workspace:
    return await _find(visible_workspaces(principal), workspace_id, "workspace")


async def visible_session(principal: Principal, session_id: object) -> Session:
    return await _find(visible_sessions(principal), session_id, "session")


async def visible_task(principal: Principal, task_id: object) -> Task:
    return await _find(visible_tasks(principal), task_id, "task")


async def visible_approval(principal: Principal, approval_id: object) -> Approval:
    return await _find(visible_approvals(principal), approval_id, "approval")


async def _find(rows: QuerySet[Row], row_id: object, what: str) -> Row:
    return await sync_to_async(find)(rows, row_id, what)


# ── what they may change and decide ───────────────────────────────────────────────────────────


async def usable_workspace(principal: Principal, workspace_id: object) -> Workspace:
    """One in which they may begin a session."""
    return await _find(visible_workspaces(principal, WRITERS), workspace_id, "workspace")


async def writable_session(principal: Principal, session_id: object) -> Session:
    """One that they may change and send to; one that they may only read is NotFound as well."""
    return await _find(visible_sessions(principal, WRITERS), session_id, "session")


async def writable_task(principal: Principal, task_id: object) -> Task:
    return await _find(visible_tasks(principal, WRITERS), task_id, "task")


async def decidable_approval(principal: Principal, approval_id: object) -> Approval:
    """One that they may decide: the owner, an approver, or a holder of the permission."""
    principal.need("approve")
    return await _find(visible_approvals(principal, APPROVERS), approval_id, "approval")


async def may_write(principal: Principal, session: Session) -> bool:
    return await visible_sessions(principal, WRITERS).filter(pk=session.pk).aexists()


async def may_approve(principal: Principal, approval: Approval) -> bool:
    if "approve" not in principal.scopes:
        return False
    return await visible_approvals(principal, APPROVERS).filter(pk=approval.pk).aexists()


# ── tokens ────────────────────────────────────────────────────────────────────────────────────


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
    token = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    ApiToken.objects.create(
        user_id=user.pk,
        name=name,
        prefix=token[:10],
        digest=digest_of(token),
        scopes=[scope for scope in SCOPES if scope in wanted],
        expires_at=expires,
    )
    return token


def digest_of(token: str) -> str:
    """What the database knows of a token. 256 random bits need no salt, and an index finds it."""
    return hashlib.sha256(token.encode()).hexdigest()
