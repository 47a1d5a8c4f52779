"""Signing in with a name and a password: our own page, few tries, one door."""

from __future__ import annotations

import threading
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client

from tests.support import guessing
from tests.support.people import make_house

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("nothing_counted")]


@pytest.fixture
def member(tmp_path: Path) -> User:
    alice = make_house(tmp_path / "desk").alice
    alice.set_password("correct horse")
    alice.save()
    return alice


def sign_in(client: Client, password: str = "correct horse", **more: str) -> Any:
    return client.post("/sign-in", {"username": "alice", "password": password, **more})


def test_a_local_account_signs_in_and_out(member: User) -> None:
    client = Client()
    assert client.get("/sign-in").status_code == 200
    answer = sign_in(client)
    assert (answer.status_code, answer["Location"]) == (302, "/")
    assert client.get("/").status_code == 200
    assert client.get("/sign-in")["Location"] == "/"  # nothing to do there

    assert client.get("/sign-out").status_code == 405
    assert client.post("/sign-out")["Location"] == "/sign-in"
    assert client.get("/").status_code == 302


@pytest.mark.parametrize(
    ("asked", "led"),
    [("/inbox", "/inbox"), ("https://evil.example/", "/"), ("//evil.example", "/"), ("", "/")],
)
def test_signing_in_leads_to_our_own_pages_only(member: User, asked: str, led: str) -> None:
    assert sign_in(Client(), next=asked)["Location"] == led


def test_a_wrong_password_says_so_and_keeps_the_way(member: User) -> None:
    answer = sign_in(Client(), "wrong", next="/inbox")
    assert answer.status_code == 200
    assert b"This name and password do not belong together." in answer.content
    assert b'name="next" value="/inbox"' in answer.content


def test_guessing_is_slowed_down_for_one_name_and_not_for_others(member: User) -> None:
    client = Client()
    for _ in range(5):
        assert sign_in(client, "wrong").status_code == 200
    paused = sign_in(client)
    assert (paused.status_code, paused["Retry-After"]) == (429, "300")
    assert client.get("/").status_code == 302

    bob = User.objects.get(username="bob")
    bob.set_password("another")
    bob.save()
    answer = Client().post("/sign-in", {"username": "bob", "password": "another"})
    assert answer.status_code == 302
    elsewhere = Client(REMOTE_ADDR="192.0.2.7")
    assert sign_in(elsewhere).status_code == 302


def test_a_name_in_other_letters_is_the_same_name(member: User, settings: Any) -> None:
    """The form reads full-width letters as the plain ones, so each spelling would be more tries."""
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, sign_in_tries=2)

    def guess(name: str, password: str = "wrong") -> int:
        return int(Client().post("/sign-in", {"username": name, "password": password}).status_code)

    assert guess("\uff41lice", "correct horse") == 302
    assert [guess(name) for name in ("alice", "\uff41lice", "a\uff4cice")] == [200, 200, 429]


def test_a_count_that_runs_out_at_that_moment_is_no_error(member: User, settings: Any) -> None:
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, sign_in_pause_seconds=0)
    assert [sign_in(Client(), "wrong").status_code for _ in range(7)] == [200] * 7


@pytest.mark.django_db(transaction=True)
def test_of_many_guesses_at_once_no_more_are_looked_at_than_one_after_the_other(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, sign_in_tries=2)
    settings.AUTHENTICATION_BACKENDS = ["tests.support.guessing.SlowBackend"]
    crowd = guessing.Crowd(8)
    monkeypatch.setattr(guessing, "crowd", crowd)
    answers: list[int] = []

    def guess() -> None:
        answers.append(sign_in(Client(), "wrong").status_code)
        if answers[-1] == 429:
            crowd.arrive()
        connections.close_all()  # this thread's own

    threads = [threading.Thread(target=guess) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200] * 2 + [429] * 6
    assert crowd.looked_at == 2


def test_who_was_turned_away_and_who_was_right_count_for_nobody(
    member: User, settings: Any
) -> None:
    """Else whoever keeps trying one name would close the door for all names of the address."""
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, sign_in_tries=1)
    assert [sign_in(Client()).status_code for _ in range(12)] == [302] * 12
    assert sign_in(Client(), "wrong").status_code == 200
    assert [sign_in(Client()).status_code for _ in range(12)] == [429] * 12
    answer = Client().post("/sign-in", {"username": "bob", "password": "wrong"})
    assert answer.status_code == 200


def test_whoever_guesses_elsewhere_locks_nobody_out(member: User, settings: Any) -> None:
    """All come through one proxy, whose word is believed; what they claim themselves is not."""
    proxies = (ip_network("127.0.0.1"),)
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, trusted_proxies=proxies, sign_in_tries=2)

    def from_(address: str, password: str = "wrong") -> int:
        claimed = {"X-Forwarded-For": f"198.51.100.7, {address}"}
        return int(sign_in(Client(headers=claimed), password).status_code)

    assert [from_("203.0.113.9") for _ in range(3)] == [200, 200, 429]
    assert from_("203.0.113.10", "correct horse") == 302
    assert [from_(f"2001:db8::{number}") for number in range(3)] == [200, 200, 429]
    assert from_("2001:db8:0:1::1", "correct horse") == 302


def test_the_admin_has_no_door_of_its_own(member: User) -> None:
    answer = Client().get("/admin/", follow=True)
    assert answer.redirect_chain[-1][0] == "/sign-in?next=%2Fadmin%2F"
    guess = Client().post("/admin/login/", {"username": "alice", "password": "secret"})
    assert (guess.status_code, guess["Location"]) == (302, "/sign-in")
    client = Client()
    assert sign_in(client, next="/admin/")["Location"] == "/admin/"
    assert client.get("/admin/", follow=True).status_code == 403


def test_success_forgives_the_failures_before_it(member: User) -> None:
    for _ in range(3):
        for _ in range(4):
            sign_in(Client(), "wrong")
        assert sign_in(Client()).status_code == 302
