"""Whose session cookie it is: `django.contrib.auth.get_user()` without its writes, because no cookie
goes back from the API, and with statements made once.

Nothing is remembered between requests: who signs out, is deactivated or gets another password is
nobody at the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import (
    BACKEND_SESSION_KEY,
    HASH_SESSION_KEY,
    SESSION_KEY,
    get_user_model,
    load_backend,
)
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import AbstractBaseUser, User
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from tasks.statements import Rows

_session = Rows(Session, "WHERE session_key = %s AND expire_date > %s")
_user = Rows(User, "WHERE id = %s")


def user_of_session(key: str | None) -> AbstractBaseUser | None:
    if not key or "\0" in key:  # a cookie can spell it, and PostgreSQL refuses to look for it
        return None
    session = _stored(key)
    path = str(session.get(BACKEND_SESSION_KEY))
    if path not in settings.AUTHENTICATION_BACKENDS or SESSION_KEY not in session:
        return None
    try:
        user_id = get_user_model()._meta.pk.to_python(session[SESSION_KEY])
    except ValidationError:
        return None
    user = _user_by(load_backend(path), user_id)
    stored = session.get(HASH_SESSION_KEY, "")
    return user if user is not None and _hash_matches(user, stored) else None


def _stored(key: str) -> Mapping[str, Any]:
    """What the session holds; empty when it is unknown, expired or not signed by us."""
    store = import_module(settings.SESSION_ENGINE).SessionStore
    if store is not SessionStore:
        other: Mapping[str, Any] = store(key).load()
        return other
    row = _session.one(key, timezone.now())
    return {} if row is None else SessionStore(key).decode(row.session_data)


def _user_by(backend: Any, user_id: Any) -> AbstractBaseUser | None:
    if type(backend) is not ModelBackend:
        other: AbstractBaseUser | None = backend.get_user(user_id)
        return other
    user = _user.one(user_id)
    return user if user is not None and backend.user_can_authenticate(user) else None


def _hash_matches(user: AbstractBaseUser, stored: str) -> bool:
    """A changed password ends every session; a rotated secret key does not."""
    if constant_time_compare(stored, user.get_session_auth_hash()):
        return True
    return any(
        constant_time_compare(stored, candidate)
        for candidate in user.get_session_auth_fallback_hash()
    )
