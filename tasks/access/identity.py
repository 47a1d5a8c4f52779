"""Who is asking: a bearer token, or Django's session cookie with its CSRF check.

The paths of the API skip Django's session, auth and CSRF middleware (each is a thread hop); this
does their work in one hop.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any, NoReturn

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import (
    BACKEND_SESSION_KEY,
    HASH_SESSION_KEY,
    SESSION_KEY,
    get_user_model,
    load_backend,
)
from django.contrib.auth.models import AbstractBaseUser, Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.contrib.sessions.backends.base import SessionBase
from django.core.exceptions import BadRequest, SuspiciousOperation, ValidationError
from django.db import connection
from django.http import HttpRequest
from django.http.multipartparser import MultiPartParserError
from django.middleware.csrf import CsrfViewMiddleware
from django.utils.crypto import constant_time_compare

from tasks import quorum
from tasks.access.principal import SAFE_METHODS, SCOPES, Principal
from tasks.access.tokens import by_digest, by_id, digest_of, note_use
from tasks.errors import Forbidden, NotIdentified


async def identify(request: HttpRequest) -> Principal:
    """The request's principal. Raises NotIdentified, or Forbidden (csrf)."""
    return await sync_to_async(identify_now)(request)


def identify_now(request: HttpRequest) -> Principal:
    """`identify` for code that is in a thread already."""
    scheme, _, credential = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return _by_token(credential.strip())
    return _by_cookie(request)


async def renewed(principal: Principal) -> Principal | None:
    """The principal as it would be identified again now: streams ask at every heartbeat."""
    return await sync_to_async(renewed_now)(principal)


def renewed_now(principal: Principal) -> Principal | None:
    """`renewed` for code that is in a thread already. Who had no right beyond roles has none to
    lose, and costs no query more."""
    if not _still_valid(principal):
        return None
    if not (principal.decides_everywhere or principal.decides):
        return principal
    now = principal_of(User.objects.get(pk=principal.user_id))
    return replace(principal, decides_everywhere=now.decides_everywhere, decides=now.decides)


def _still_valid(principal: Principal) -> bool:
    if principal.token_id is not None:
        return by_id(principal.token_id) is not None
    user = _user_of_session(principal.session_key)
    return user is not None and user.pk == principal.user_id


def principal_of(user: AbstractBaseUser, **by: Any) -> Principal:
    """A user as a principal; `by` says what identified them."""
    assert isinstance(user, User)
    return Principal(
        user_id=user.pk,
        username=user.get_username(),
        is_staff=user.is_staff,
        decides_everywhere=user.is_superuser or _may_resolve(user.pk),
        decides=quorum.rights_of(user.pk).patterns,
        **by,
    )


def _by_token(token: str) -> Principal:
    row = by_digest(digest_of(token))
    if row is None:
        raise NotIdentified("This token is unknown, expired or revoked.")
    note_use(row)
    person = vars(row)
    return Principal(
        user_id=row.user_id,
        username=person["person_name"],
        is_staff=bool(person["person_is_staff"]),
        decides_everywhere=bool(person["person_is_superuser"]) or _may_resolve(row.user_id),
        decides=quorum.rights_of(row.user_id).patterns,
        token_id=row.pk,
        token_expires_at=row.expires_at,
        scopes=frozenset(row.scopes) & frozenset(SCOPES),
    )


def _may_resolve(user_id: int) -> bool:
    """`has_perm("tasks.resolve_approval")` of Django's own backend, in one statement: every request
    asks."""
    with connection.cursor() as cursor:
        cursor.execute(_MAY_RESOLVE, [user_id, user_id])
        return cursor.fetchone() is not None


_MAY_RESOLVE = f"""
    SELECT 1 FROM {Permission._meta.db_table} permission
    JOIN {ContentType._meta.db_table} kind ON kind.id = permission.content_type_id
    WHERE kind.app_label = 'tasks' AND permission.codename = 'resolve_approval' AND (
        permission.id IN (
            SELECT permission_id FROM {User.user_permissions.through._meta.db_table}
            WHERE user_id = %s)
        OR permission.id IN (
            SELECT granted.permission_id FROM {Group.permissions.through._meta.db_table} granted
            JOIN {User.groups.through._meta.db_table} membership
            ON membership.group_id = granted.group_id
            WHERE membership.user_id = %s))"""  # noqa: S608 - names of tables


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
