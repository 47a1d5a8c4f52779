"""One-time sign-in links."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from tasks.models import SignInLink
from tasks.signin import make_link
from tests.support.rows import make_user

pytestmark = pytest.mark.django_db


def signed_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def test_opening_a_link_shows_a_button_and_uses_nothing_up() -> None:
    link = make_link(make_user("alice", is_staff=True))
    client = Client()
    for _ in range(2):
        page = client.get(link)
        assert page.status_code == 200
        assert "alice" in page.content.decode()
        assert page["Referrer-Policy"] == "same-origin"
        assert "no-store" in page["Cache-Control"]
    assert not signed_in(client)


def test_the_button_signs_in_once() -> None:
    link = make_link(make_user("alice", is_staff=True))
    first, second = Client(), Client()
    answer = first.post(link)
    assert (answer.status_code, answer["Location"]) == (302, "/")
    assert signed_in(first)
    assert second.post(link).status_code == 404
    assert second.get(link).status_code == 404
    assert not signed_in(second)


def test_a_foreign_page_cannot_press_the_button() -> None:
    link = make_link(make_user("alice"))
    client = Client(enforce_csrf_checks=True)
    assert client.post(link).status_code == 403
    token = client.get(link).cookies["csrftoken"].value
    assert client.post(link, {"csrfmiddlewaretoken": token}).status_code == 302


def test_a_link_ends_after_ten_minutes_and_with_its_user() -> None:
    alice = make_user("alice")
    late, idle = make_link(alice), make_link(make_user("idle", is_active=False))
    SignInLink.objects.filter(user=alice).update(expires_at=timezone.now() - timedelta(seconds=1))
    for link in (late, idle, late + "x"):
        assert Client().get(link).status_code == 404
        assert Client().post(link).status_code == 404


def test_only_the_hash_is_stored() -> None:
    token = make_link(make_user()).rpartition("/")[2]
    assert token not in str(list(SignInLink.objects.values()))
