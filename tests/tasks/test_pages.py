"""The pages: who gets them, what they start from, and that nothing inline can run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from config.env import ROOT
from tasks.conf import conf
from tasks.told import told_in
from tests.support.people import House
from tests.support.rows import make_session, make_user

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("nothing_counted")]

PAGES = ("/", "/c/{session}", "/inbox", "/settings", "/workspaces/{workspace}")
POLICY = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
)


def browser(user: User, **options: Any) -> Client:
    client = Client(**options)
    client.force_login(user)
    return client


def boot_of(body: bytes) -> dict[str, Any]:
    found = re.search(rb'<script id="boot" type="application/json">(.*?)</script>', body, re.S)
    assert found
    return dict(json.loads(found[1]))


class Inline(HTMLParser):
    """What a strict policy would refuse."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        inline_script = tag == "script" and "src" not in named
        if tag == "style" or (inline_script and named.get("type") != "application/json"):
            self.found.append(tag)
        self.found += [name for name in named if name == "style" or name.startswith("on")]


# ── who ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_for_who_is_signed_in(house: House, path: str) -> None:
    path = path.format(session=house.session.pk, workspace=house.workspace.pk)
    answer = Client().get(path)
    assert (answer.status_code, answer["Location"]) == (302, f"/sign-in?next={path}")
    assert browser(house.alice).get(path).status_code == 200
    assert browser(house.alice).post(path).status_code == 405


def test_foreign_unknown_and_deleted_conversations_are_the_same_404_in_our_look(
    house: House,
) -> None:
    gone = make_session(house.workspace, hidden=True)
    charlie, alice = browser(house.charlie), browser(house.alice)
    answers = [
        charlie.get(f"/c/{house.session.pk}"),
        charlie.get("/c/6b1c0000-0000-4000-8000-000000000000"),
        charlie.get("/c/nonsense"),
        alice.get(f"/c/{gone.pk}"),
    ]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1
    assert b"app/app.css" in answers[0].content


@pytest.mark.parametrize(
    ("who", "role", "can_write", "can_decide"),
    [
        ("alice", "owner", True, True),
        ("bob", "member", True, False),
        ("vera", "viewer", False, False),
        ("dora", "approver", True, True),
    ],
)
def test_the_boot_object_says_what_the_reader_may(
    house: House, who: str, role: str, can_write: bool, can_decide: bool
) -> None:
    body = browser(getattr(house, who)).get(f"/c/{house.session.pk}").content
    boot = boot_of(body)

    assert boot["session"]["id"] == str(house.session.pk)
    assert boot["session"]["workspace"] == {
        "id": str(house.workspace.pk),
        "name": "desk",
        "role": role,
    }
    assert boot["session"]["can_write"] is can_write
    assert boot["session"]["can_decide"] is can_decide
    [workspace] = boot["workspaces"]
    assert (workspace["role"], workspace["can_write"]) == (role, can_write)
    assert boot["user"]["username"] == who
    assert boot["urls"]["admin"] is None


@pytest.mark.parametrize(("who", "offered"), [("alice", True), ("dora", False), ("bob", False)])
def test_a_conversation_is_handed_over_by_who_owns_it(
    house: House, who: str, offered: bool
) -> None:
    body = browser(getattr(house, who)).get(f"/c/{house.session.pk}").content
    assert (b'id="menu-handover"' in body) is offered


def test_the_boot_object_has_what_the_page_documents(house: House) -> None:
    page = (ROOT / "docs/pages.md").read_text("utf-8")
    example = re.search(r"## The boot object\n\n```json\n(.*?)```", page, re.S)
    assert example
    documented = json.loads(example[1])
    boot = boot_of(browser(house.alice).get(f"/c/{house.session.pk}").content)

    assert boot.keys() == documented.keys()
    for name in ("user", "csrf", "model", "limits", "session", "urls"):
        assert boot[name].keys() == documented[name].keys(), name
    assert boot_of(browser(house.alice).get("/").content)["session"] is None


@pytest.mark.parametrize(
    ("changes", "model"),
    [
        ({}, {"name": "", "demo": False, "configured": False, "default": ""}),
        (
            {"demo_model": True},
            {"name": "demo", "demo": True, "configured": True, "default": "demo"},
        ),
        (
            {"demo_model": True, "llm_base_url": "http://127.0.0.1:9/v1", "llm_model": "m"},
            {"name": "m", "demo": False, "configured": True, "default": "m"},
        ),
    ],
)
def test_the_page_says_which_model_plays(
    house: House, settings: Settings, changes: dict[str, Any], model: dict[str, Any]
) -> None:
    settings.PILOTHOUSE = replace(conf(), **changes)
    shown = boot_of(browser(house.alice).get("/").content)["model"]
    assert shown.pop("default_demo") == model["demo"]  # of a session that chose no model
    assert shown == model


@pytest.mark.parametrize("demo", [True, False])
def test_who_may_add_a_model_profile_is_led_to_where_that_is_done(
    house: House, settings: Settings, demo: bool
) -> None:
    settings.PILOTHOUSE = replace(conf(), demo_model=demo)
    way = reverse("admin:tasks_modelprofile_add")
    assert way not in browser(house.alice).get("/").content.decode()
    root = User.objects.create_superuser("root")
    assert way in browser(root).get("/").content.decode()


def test_the_token_of_the_boot_object_lets_the_api_be_used(house: House) -> None:
    client = browser(house.alice, enforce_csrf_checks=True)
    csrf = boot_of(client.get("/").content)["csrf"]
    refused = client.post("/api/sessions", {}, content_type="application/json")
    made = client.post(
        "/api/sessions",
        {},
        content_type="application/json",
        headers={csrf["header"]: csrf["token"]},
    )
    assert (refused.status_code, made.status_code) == (403, 201)


def test_hostile_titles_and_names_do_not_leave_their_place(house: House) -> None:
    hostile = "</script><script>document.title='XSS'</script><!--"
    house.session.title = hostile
    house.session.save()
    User.objects.filter(pk=house.alice.pk).update(first_name=hostile)
    body = browser(house.alice).get(f"/c/{house.session.pk}").content

    assert boot_of(body)["session"]["title"] == hostile
    assert hostile.encode() not in body
    assert Inline(body.decode()).found == []


# ── what a page may do ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", [*PAGES, "/sign-in", "/sign-in/x", "/nowhere", "/admin/login/"])
def test_every_page_comes_with_the_strict_policy_and_nothing_inline(
    house: House, path: str
) -> None:
    client = Client() if "sign-in" in path or "admin" in path else browser(house.alice)
    answer = client.get(path.format(session=house.session.pk, workspace=house.workspace.pk))
    policy = answer["Content-Security-Policy"].split("; ")

    assert set(POLICY) <= set(policy)
    assert "unsafe" not in answer["Content-Security-Policy"]
    assert Inline(answer.content.decode()).found == []
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Referrer-Policy"] in ("same-origin", "no-referrer")
    assert "camera=()" in answer["Permissions-Policy"]


@pytest.mark.parametrize("path", ["/admin/", "/admin/tasks/", "/admin/auth/user/"])
def test_the_admin_is_the_same(path: str) -> None:
    root = make_user("root", is_staff=True, is_superuser=True)
    answer = browser(root).get(path, follow=True)
    assert set(POLICY) <= set(answer["Content-Security-Policy"].split("; "))
    assert Inline(answer.content.decode()).found == []


def test_json_and_the_docs_of_the_api_have_a_policy_too(house: House) -> None:
    client = browser(house.alice)
    docs, data = client.get("/api/docs"), client.get("/api/sessions")
    assert set(POLICY) <= set(docs["Content-Security-Policy"].split("; "))
    assert Inline(docs.content.decode()).found == []
    assert data["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"


def test_pages_are_not_kept_by_caches(house: House) -> None:
    assert "no-store" in browser(house.alice).get("/")["Cache-Control"]


def test_a_broken_page_and_a_stale_form_have_our_look(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = browser(house.alice, enforce_csrf_checks=True).post("/sign-out")
    assert stale.status_code == 403
    assert b"This form is out of date" in stale.content

    def broken(*_: object) -> None:
        raise RuntimeError("bug")

    monkeypatch.setattr("tasks.pages.views.boot", broken)  # a bug, made here
    client = browser(house.alice, raise_request_exception=False)
    answer = client.get("/")
    assert answer.status_code == 500
    assert b"Something broke on the server" in answer.content
    assert b"RuntimeError" not in answer.content


# ── words ─────────────────────────────────────────────────────────────────────────────────────


def test_the_language_comes_from_the_browser_until_somebody_chooses(house: House) -> None:
    client = browser(house.alice, headers={"accept-language": "zh-CN,zh;q=0.9"})
    assert b'<html lang="zh-Hans"' in client.get("/").content
    assert boot_of(client.get("/").content)["language"] == "zh-Hans"

    answer = client.post("/language", {"language": "en", "next": "/settings"})
    assert (answer.status_code, answer["Location"]) == (302, "/settings")
    page = client.get("/").content
    assert b'<html lang="en"' in page
    assert boot_of(page)["strings"] == {}
    assert "default: file:write asks" in client.get("/settings").content.decode()

    client.post("/language", {"language": ""})
    assert b'<html lang="zh-Hans"' in client.get("/").content
    because = told_in("zh-Hans", "default: file:write asks")
    assert because != "default: file:write asks"
    assert because in client.get("/settings").content.decode()


def test_the_settings_write_durations_as_people_do(house: House, settings: Settings) -> None:
    limits: dict[str, Any] = {"max_task_seconds": 1800, "approval_ttl_seconds": 5405.0}
    settings.PILOTHOUSE = replace(conf(), **limits)
    page = browser(house.alice).get("/settings").content.decode()
    assert re.findall(r'"num">([^<]* (?:min|s))<', page) == ["30 min", "1 h 30 min"]


@pytest.mark.parametrize("target", ["//evil.example", "https://evil.example", "javascript:1", ""])
def test_choosing_a_language_never_leads_away(target: str) -> None:
    assert Client().post("/language", {"language": "en", "next": target})["Location"] == "/"


def test_an_unknown_language_changes_nothing() -> None:
    answer = Client().post("/language", {"language": "../../etc"})
    assert django_settings.LANGUAGE_COOKIE_NAME not in answer.cookies


def test_the_theme_is_there_before_the_scripts(house: House) -> None:
    client = browser(house.alice)
    client.cookies["theme"] = "dark"
    assert b'data-theme="dark"' in client.get("/").content
    client.cookies["theme"] = '"><script>'
    assert b'data-theme="auto"' in client.get("/").content
