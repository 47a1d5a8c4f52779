"""Tokens: who they are, what they are good for, and the command that makes them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from tasks import access
from tasks.errors import Forbidden, Invalid, NotIdentified
from tasks.models import ApiToken
from tests.support.people import House, make_house
from tests.support.requests import with_cookie, with_token

pytestmark = pytest.mark.django_db


def test_token_identifies_its_user(house: House) -> None:
    token = access.issue_token(house.alice, "ci")

    who = access.identify_now(with_token(token))

    assert (who.user_id, who.username, who.scopes) == (
        house.alice.pk,
        "alice",
        frozenset(access.SCOPES),
    )
    assert who.token_id == ApiToken.objects.get().pk


def test_token_is_stored_as_a_hash_only(house: House) -> None:
    token = access.issue_token(house.alice)

    row = ApiToken.objects.get()
    assert token.startswith("ph_")
    assert len(token) >= 46  # 256 bits
    assert token not in str(vars(row))
    assert token.startswith(row.prefix)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda row: ApiToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1)),
        lambda row: ApiToken.objects.update(revoked_at=timezone.now()),
        lambda row: User.objects.update(is_active=False),
        lambda row: row.delete(),
    ],
    ids=["expired", "revoked", "inactive user", "deleted"],
)
def test_spoilt_token_is_nobody_and_ends_streams(
    house: House, spoil: Callable[[ApiToken], object]
) -> None:
    token = access.issue_token(house.alice)
    who = access.identify_now(with_token(token))
    assert access.renewed_now(who)

    spoil(ApiToken.objects.get())

    with pytest.raises(NotIdentified):
        access.identify_now(with_token(token))
    assert not access.renewed_now(who)


def test_a_token_that_loses_a_scope_ends_its_streams(house: House) -> None:
    token = access.issue_token(house.alice)
    who = access.identify_now(with_token(token))

    ApiToken.objects.update(scopes=["write", "approve"])

    assert not access.renewed_now(who)
    assert access.renewed_now(access.identify_now(with_token(token)))


@pytest.mark.parametrize("token", ["", "ph_", "ph_unknown", "é", "x" * 10_000])
def test_unknown_token_is_nobody(house: House, token: str) -> None:
    with pytest.raises(NotIdentified):
        access.identify_now(with_token(token))


def test_bad_token_does_not_fall_back_to_the_cookie(house: House) -> None:
    with pytest.raises(NotIdentified):
        access.identify_now(with_cookie(house.alice, Authorization="Bearer ph_unknown"))


def test_token_with_few_scopes_is_refused_the_others(house: House) -> None:
    who = access.identify_now(with_token(access.issue_token(house.alice, scopes=["read"])))

    who.need("read")
    with pytest.raises(Forbidden) as refused:
        who.need("write")
    assert (refused.value.status, refused.value.code) == (403, "scope")


@pytest.mark.parametrize("scopes", [[], ["admin"], ["read", "admin"]])
def test_token_with_unknown_scopes_is_not_made(house: House, scopes: list[str]) -> None:
    with pytest.raises(Invalid):
        access.issue_token(house.alice, scopes=scopes)


def test_use_of_a_token_is_noted_once_a_minute(house: House) -> None:
    token = access.issue_token(house.alice)
    access.identify_now(with_token(token))
    first = ApiToken.objects.get().last_used_at
    access.identify_now(with_token(token))

    assert first is not None
    assert ApiToken.objects.get().last_used_at == first

    recent = timezone.now() - access.TOKEN_USED_EVERY * 0.9
    ApiToken.objects.update(last_used_at=recent)
    access.identify_now(with_token(token))
    assert ApiToken.objects.get().last_used_at == recent

    ApiToken.objects.update(last_used_at=first - access.TOKEN_USED_EVERY)
    access.identify_now(with_token(token))
    assert (ApiToken.objects.get().last_used_at or first) > first


@pytest.mark.django_db(transaction=True)
@pytest.mark.only_sqlite  # which has one lock for all writes
def test_token_is_good_while_somebody_else_is_writing(tmp_path: Path) -> None:
    token = access.issue_token(make_house(tmp_path).alice)
    other = sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    assert access.identify_now(with_token(token)).username == "alice"

    other.close()
    assert ApiToken.objects.get().last_used_at is None
    access.identify_now(with_token(token))
    assert ApiToken.objects.get().last_used_at is not None


# ── create_token ──────────────────────────────────────────────────────────────────────────────


def created(*arguments: str) -> str:
    out = StringIO()
    call_command("create_token", *arguments, stdout=out)
    return out.getvalue()


def test_create_token_prints_it_alone_on_the_last_line(house: House) -> None:
    token = created("alice", "--name", "laptop").splitlines()[-1]

    assert access.identify_now(with_token(token)).username == "alice"
    row = ApiToken.objects.get()
    assert (row.name, row.expires_at, row.scopes) == ("laptop", None, ["read", "write", "approve"])


def test_create_token_takes_scopes_and_days(house: House) -> None:
    created("alice", "--scopes", "read, write", "--expires", "30")

    row = ApiToken.objects.get()
    assert row.scopes == ["read", "write"]
    assert row.expires_at is not None
    assert timedelta(days=29) < row.expires_at - timezone.now() <= timedelta(days=30)


def test_create_token_takes_a_date(house: House) -> None:
    created("alice", "--expires", "2099-12-31")

    expires = ApiToken.objects.get().expires_at
    assert expires is not None
    assert expires.isoformat() == "2099-12-31T00:00:00+00:00"


@pytest.mark.parametrize(
    "arguments",
    [
        ("nobody",),
        ("alice", "--scopes", "admin"),
        ("alice", "--scopes", ""),
        ("alice", "--expires", "soon"),
        ("alice", "--expires", "2099-13-45"),
        ("alice", "--expires", "99999999999999"),
        ("alice", "--expires", "2001-01-01"),
        ("alice", "--expires", "0"),
    ],
)
def test_create_token_refuses(house: House, arguments: tuple[str, ...]) -> None:
    with pytest.raises(CommandError):
        created(*arguments)
    assert not ApiToken.objects.exists()
