"""Who is asking: a bearer token, or Django's session cookie with its CSRF check.

The paths of the API skip Django's session, auth and CSRF middleware (each is a thread hop); this
does their work in one hop.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, User
from django.core.exceptions import BadRequest, SuspiciousOperation
from django.http import HttpRequest
from django.http.multipartparser import MultiPartParserError
from django.middleware.csrf import CsrfViewMiddleware

from tasks import quorum
from tasks.access.principal import SAFE_METHODS, SCOPES, Principal
from tasks.access.rights import may_resolve
from tasks.access.signed_in import user_of_session
from tasks.access.tokens import by_digest, by_id, digest_of, note_use
from tasks.errors import Forbidden, NotIdentified
from tasks.lane import in_lane


async def identify(request: HttpRequest) -> Principal:
    """The request's principal. Raises NotIdentified, or Forbidden (csrf)."""
    return await in_lane(identify_now, request)


def identify_now(request: HttpRequest) -> Principal:
    """`identify` for code that is in a thread already."""
    scheme, _, credential = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme.lower() == "bearer":
        return _by_token(credential.strip())
    return _by_cookie(request)


async def renewed(principal: Principal) -> Principal | None:
    """The principal as it would be identified again now: streams ask at every heartbeat."""
    return await in_lane(renewed_now, principal)


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
    """A token that lost a scope is another one: who comes back is judged by what it has now."""
    if principal.token_id is not None:
        bearer = by_id(principal.token_id)
        return bearer is not None and principal.scopes.issubset(bearer.token.scopes)
    user = user_of_session(principal.session_key)
    return user is not None and user.pk == principal.user_id


def principal_of(user: AbstractBaseUser, **by: Any) -> Principal:
    """A user as a principal; `by` says what identified them."""
    assert isinstance(user, User)
    return Principal(
        user_id=user.pk,
        username=user.get_username(),
        is_staff=user.is_staff,
        decides_everywhere=user.is_superuser or may_resolve(user.pk),
        decides=quorum.rights_of(user.pk).patterns,
        **by,
    )


def _by_token(token: str) -> Principal:
    bearer = by_digest(digest_of(token))
    if bearer is None:
        raise NotIdentified("This token is unknown, expired or revoked.")
    row = bearer.token
    note_use(row)
    return Principal(
        user_id=row.user_id,
        username=bearer.username,
        is_staff=bearer.is_staff,
        decides_everywhere=bearer.resolves,
        decides=quorum.rights_of(row.user_id).patterns,
        token_id=row.pk,
        token_expires_at=row.expires_at,
        scopes=frozenset(row.scopes) & frozenset(SCOPES),
    )


def _by_cookie(request: HttpRequest) -> Principal:
    key = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
    user = user_of_session(key)
    if user is None:
        raise NotIdentified
    if request.method not in SAFE_METHODS:
        _check_csrf(request)
    return principal_of(user, session_key=key)


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
