"""The policy in force: made once, shown to everybody on the settings page and in the admin; and in
each session with its own modes and rules."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from tasks.conf import conf
from tasks.models import PolicyRule, Session
from tasks.policy_in_force import policy_in_force
from tests.support.rows import make_session, make_user, make_workspace

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


def asked(session: Session) -> dict[str, Any]:
    client = Client()
    client.force_login(session.owner)
    found: dict[str, Any] = client.get(f"/api/sessions/{session.pk}/policy").json()
    return found


def tool(policy: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in policy["tools"] if each["name"] == name)
    return found


@pytest.mark.parametrize(
    ("workspace_mode", "session_mode", "mode", "of"),
    [
        ("", "", "ask", "server"),
        ("deny", "", "deny", "workspace"),
        ("deny", "read_only", "read_only", "session"),
        ("deny", "deny", "deny", "workspace"),
    ],
)
def test_a_session_has_the_strictest_mode_and_says_whose_it_is(
    workspace_mode: str, session_mode: str, mode: str, of: str
) -> None:
    session = make_session(make_workspace(mode=workspace_mode), mode=session_mode)
    policy = asked(session)
    assert (policy["mode"], policy["mode_of"]) == (mode, of)
    write = tool(policy, "write_file")
    expected = ("ask", "default") if mode == "ask" else ("deny", "mode")
    assert (write["decision"], write["source"]) == expected
    assert (tool(policy, "read_file")["decision"], tool(policy, "read_file")["source"]) == (
        "allow",
        "default",
    )
    client = Client()
    client.force_login(session.owner)
    assert f"Mode: {mode}<" in client.get(f"/c/{session.pk}").content.decode()


def test_a_rule_about_a_whole_tool_counts_and_a_narrower_one_does_not() -> None:
    session = make_session()
    here = {"scope": "session", "session": session, "made_by": session.owner}
    whole = PolicyRule.objects.create(**here, decision="allow", tool="write_file")
    PolicyRule.objects.create(**here, decision="deny", tool="edit_file", path="invoices/**")
    elsewhere = make_session(session.workspace)
    policy = asked(session)
    write = tool(policy, "write_file")
    assert (write["decision"], write["source"], write["rule_id"]) == (
        "allow",
        "rule",
        str(whole.pk),
    )
    assert tool(policy, "edit_file")["source"] == "default"
    assert tool(asked(elsewhere), "write_file")["decision"] == "ask"


def test_a_session_s_policy_says_whose_yes_is_needed(settings: Settings) -> None:
    settings.PILOTHOUSE = replace(
        conf(),
        unattended_mode="read_only",
        approver_groups={"file:write": "operators"},
        two_approvers=("file:write",),
    )
    policy = asked(make_session())
    write = tool(policy, "write_file")
    assert (write["approvers"], write["another_person"], write["votes"]) == ("operators", False, 2)
    assert (policy["unattended_mode"], write["unattended"]) == ("read_only", "deny")
