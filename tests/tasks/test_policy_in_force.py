"""The policy in force: made once, shown to everybody on the settings page and in the admin."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from tasks.conf import conf
from tasks.policy_in_force import policy_in_force
from tests.support.rows import make_user

pytestmark = pytest.mark.django_db


def page(url: str) -> dict[str, str]:
    """The text of the row of each tool."""
    client = Client()
    client.force_login(make_user("admin", is_staff=True, is_superuser=True))
    body = client.get(url).content.decode()
    rows = re.findall(r"<tr\b.*?</tr>", body, re.S)
    texts = {row: re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", row)) for row in rows}
    return {
        tool.name: next(texts[row] for row in rows if f"<code>{tool.name}</code>" in row)
        for tool in policy_in_force().tools
    }


def test_watched_and_unattended_calls_are_judged_by_their_own_mode(settings: Settings) -> None:
    settings.PILOTHOUSE = replace(conf(), mode="ask", unattended_mode="read_only")
    tools = {tool.name: tool for tool in policy_in_force().tools}
    write, read = tools["write_file"], tools["read_file"]
    assert (write.watched.decision, write.unattended.decision) == ("ask", "deny")
    assert (read.watched.decision, read.unattended.decision) == ("allow", "allow")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (
            "/settings",
            (
                "Only members of operators approve it.",
                "Whoever asked for the task does not approve it.",
                "Two people must approve it.",
            ),
        ),
        (
            reverse("admin:tasks_approval_policy"),
            ("Members of operators alone.", "Not whoever asked for the task.", "Two people."),
        ),
    ],
)
def test_both_pages_say_whose_yes_a_tool_needs(
    settings: Settings, url: str, told: tuple[str, ...]
) -> None:
    settings.PILOTHOUSE = replace(
        conf(),
        approver_groups={"file:write": "operators"},
        other_approver=("write",),
        two_approvers=("file:write",),
    )
    shown = page(url)
    assert [words for words in told if words not in shown["write_file"]] == []
    assert [words for words in told if words in shown["read_file"]] == []
