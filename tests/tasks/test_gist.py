"""What tells the deliveries of one webhook apart, for people who look at a list of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tasks.gist import MAX_CHARS, gist
from tasks.models import Session, Webhook
from tests.support.webhooks import make_webhook, send, token

DEEP = "[" * 100_000
WIDE = json.dumps({"items": [{"n": n} for n in range(5000)]})


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"action": "opened", "issue": {"title": "Dark mast light"}}, "opened: Dark mast light"),
        ({"repository": {"name": "boats"}, "issue": {"title": "Leak"}}, "Leak"),
        ({"a": {"b": {"title": "deep"}}, "c": {"title": "less deep"}}, "less deep"),
        ({"status": "firing", "alerts": [{"annotations": {"summary": "Hot"}}]}, "firing: Hot"),
        ([{"message": "in a list"}], "in a list"),
        ({"title": "  two\n lines "}, "two"),
        ({"title": "", "name": "named"}, "named"),
        ({"title": {"no": "text"}, "n": 7}, ""),
        ({"action": "closed", "draft": True, "issue": {"number": 7}}, "closed: 7"),
        ("Build 1042 failed.", "Build 1042 failed."),
        (1042, "1042"),
        (None, ""),
        (True, ""),
    ],
)
def test_it_says_what_happened_to_what(data: Any, said: str) -> None:
    assert gist(json.dumps(data)) == said


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("\n\n  Build  1042 failed.\nmore", "Build 1042 failed."),
        ("", ""),
        (DEEP, DEEP[: MAX_CHARS - 1] + "…"),
        (WIDE, ""),
        ('{"title": "half \\ud800 a pair, no \\u0000"}', "half \ufffd a pair, no \ufffd"),
        ('{"title": "left \\u202e right"}', "left <202E> right"),
        (json.dumps({"title": "x" * 500}), "x" * (MAX_CHARS - 1) + "…"),
    ],
)
def test_it_is_one_line_whatever_was_sent(data: str, said: str) -> None:
    assert gist(data) == said


@pytest.mark.django_db(transaction=True)
def test_a_sender_neither_breaks_a_title_nor_ends_its_quotes(nothing_counted: None) -> None:
    webhook, secret = make_webhook(goal="Sort this " * 20)
    body = json.dumps({"title": "\ud800” done: “" + "x" * 200}).encode()
    assert send(webhook, token(secret), body).status_code == 202
    (title,) = Session.objects.values_list("title", flat=True)
    assert title.endswith('…: “\ufffd" done: "' + "x" * 69 + "…”")
    assert len(title) <= 200


@pytest.mark.django_db(transaction=True)
def test_sessions_of_one_webhook_are_told_apart(nothing_counted: None) -> None:
    webhook, secret = make_webhook()
    for body in (b'{"title": "Leak"}', b'{"title": "Smoke"}', b"[]"):
        assert send(webhook, token(secret), body).status_code == 202
    titles = set(Session.objects.values_list("title", flat=True))
    assert titles == {"Sort this issue: “Leak”", "Sort this issue: “Smoke”", "Sort this issue"}
    assert Webhook.objects.get().goal == "Sort this issue"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("goal", ["Say what the build said.", "What broke?", "查。"])
def test_no_colon_stands_behind_the_end_of_a_sentence(nothing_counted: None, goal: str) -> None:
    webhook, secret = make_webhook(goal=goal)
    assert send(webhook, token(secret), b'{"title": "Leak"}').status_code == 202
    assert Session.objects.get().title == f"{goal} “Leak”"
