"""What would happen to a call, and why: the command, the admin's form, past calls judged again;
and the admin's pages of rules."""

from __future__ import annotations

import json
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agent.events import ToolCallRequested
from tasks import events
from tasks.models import AuditEntry, PolicyRule, Task
from tasks.writer import writer
from tests.support.people import House
from tests.support.rows import make_user

pytestmark = pytest.mark.django_db(transaction=True)


def requested(task: Task, path: str, decision: str = "ask", name: str = "write_file") -> None:
    event = ToolCallRequested(
        step=1,
        tool_call_id=f"c{path}",
        block_id="b",
        index=0,
        name=name,
        arguments={"path": path, "content": "x"} if name == "write_file" else {"path": path},
        capability="file:write" if name == "write_file" else "file:read",
        risk="medium",
        decision=decision,
        rule="default",
    )
    writer.run_sync(partial(events.append, task.pk, [event]))


def policy_test(*words: str) -> tuple[int, str]:
    out, status = StringIO(), 0
    try:
        call_command("policy_test", *words, stdout=out)
    except SystemExit as end:
        status = int(str(end.code))
    return status, out.getvalue()


WRITE = ("--tool", "write_file", "--arguments")


# ── the command ───────────────────────────────────────────────────────────────────────────────


def test_the_command_says_what_would_happen_and_every_step_to_it(house: House) -> None:
    PolicyRule.objects.create(
        scope="global", decision="allow", path="notes/**", made_by=house.alice, note="notes"
    )
    arguments = '{"path": "notes/a.md", "content": "x"}'
    assert policy_test("--workspace", "desk", *WRITE, arguments) == (
        0,
        "allow: A global rule “notes” allows it.\n"
        "  global rule “notes” allows file:write\n"
        "  default: file:write asks\n",
    )
    status, said = policy_test("--workspace", "desk", *WRITE, '{"path": "b.md", "content": "x"}')
    assert (status, said.splitlines()[0]) == (
        1,
        "ask: write_file has an effect, so a person decides.",
    )
    status, said = policy_test("--workspace", "desk", "--mode", "read_only", *WRITE, arguments)
    assert said.startswith("deny: write_file changes something")
    status, said = policy_test("--workspace", "desk", *WRITE, '{"path": "../x", "content": "x"}')
    assert said.startswith("deny: Refused by workspace policy")
    assert "guard: refused" in said
    assert not PolicyRule.objects.get().used


def test_the_guard_has_its_word_where_there_is_no_rule(house: House) -> None:
    arguments = '{"path": "../x"}'
    said = policy_test("--workspace", "desk", "--tool", "read_file", "--arguments", arguments)[1]
    assert said.startswith("deny: Refused by workspace policy")


def test_a_tool_that_is_not_there_is_named_and_not_judged(house: House) -> None:
    wanted = r"^There is no tool writefile in the workspace desk: .*\bwrite_file\b"
    with pytest.raises(CommandError, match=wanted):
        policy_test("--workspace", "desk", "--tool", "writefile", "--arguments", "{}")


def test_past_calls_are_judged_under_a_changed_set(house: House, tmp_path: Path) -> None:
    for path in ("a.md", "drafts/b.md"):
        requested(house.task, path)
    requested(house.task, "c.md", "allow", "read_file")
    assert policy_test("--replay") == (0, "1 tasks, 3 calls, 0 would change\n")
    changed = tmp_path / "rules.json"
    changed.write_text(json.dumps([{"decision": "allow", "path": "drafts/**", "note": "drafts"}]))
    status, said = policy_test("--replay", "--rules", str(changed))
    assert status == 1
    assert "write_file drafts/b.md" in said
    assert "ask -> allow (global rule “drafts” allows file:write)" in said
    assert said.endswith("1 tasks, 3 calls, 1 would change\n")
    PolicyRule.objects.create(scope="global", decision="deny", made_by=house.alice)
    assert policy_test("--replay", "--rules", str(changed))[1].endswith("3 would change\n")
    only = policy_test("--replay", "--rules", str(changed), "--only", "--all")[1]
    assert only.endswith("3 calls, 1 would change\n")
    assert len(only.splitlines()) == 4
    assert policy_test("--replay", "--task", str(house.task.pk), "--last", "5")[0] == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Say which call"),
        (("--workspace", "nowhere", "--tool", "x"), "no workspace called nowhere"),
        (("--tool", "x", "--arguments", "{"), "not JSON"),
        (("--tool", "x", "--arguments", "[]"), "must be a JSON object"),
        (("--replay", "--rules", "/nowhere.json"), "^/nowhere.json cannot be read: No such file"),
        (("--tool", "x", "--session", "6f4f3bd2-4d5e-4b3e-9f7e-000000000000"), "no session"),
    ],
)
def test_the_command_refuses_in_words(house: House, words: tuple[str, ...], said: str) -> None:
    with pytest.raises(CommandError, match=said) as refused:
        policy_test(*words)
    assert refused.value.returncode == 2


def test_patterns_of_a_file_are_read_as_those_of_the_form(house: House, tmp_path: Path) -> None:
    requested(house.task, "reports/may.md")
    file = tmp_path / "rules.json"
    file.write_text(json.dumps([{"decision": "deny", "path": "./reports/"}]))
    assert policy_test("--replay", "--rules", str(file))[1].endswith("1 would change\n")
    for wrong in ({"path": "."}, {"host": "http://x.org"}, {"command": "'"}):
        file.write_text(json.dumps([{"decision": "allow", **wrong}]))
        with pytest.raises(CommandError, match="Rule 1, "):
            policy_test("--replay", "--rules", str(file))


@pytest.mark.parametrize("text", ["{", "{}", '[{"decision": "maybe"}]', '[{"verdict": "deny"}]'])
def test_a_file_that_holds_no_rules_is_refused(house: House, tmp_path: Path, text: str) -> None:
    file = tmp_path / "rules.json"
    file.write_text(text)
    with pytest.raises(CommandError, match="These are no rules"):
        policy_test("--replay", "--rules", str(file))


# ── the admin ─────────────────────────────────────────────────────────────────────────────────


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def admin(house: House) -> Client:
    return signed_in(make_user("root", is_staff=True, is_superuser=True))


def form(**fields: Any) -> dict[str, Any]:
    empty = dict.fromkeys(
        (
            *("note", "workspace", "session", "task", "capability", "tool", "path", "host"),
            *("command", "expires_at_0", "expires_at_1", "max_uses"),
        ),
        "",
    )
    return {**empty, "decision": "ask", "scope": "global", "priority": "0", "enabled": "on", **fields}  # fmt: skip


ADD = "/admin/tasks/policyrule/add/"


def test_an_administrator_writes_a_rule_and_the_audit_says_so(admin: Client, house: House) -> None:
    page = admin.post(ADD, form(note="reports", decision="allow", path="./reports//", final="on"))
    assert page.status_code == 302, page.content.decode()
    rule = PolicyRule.objects.get()
    assert (rule.path, rule.final, rule.made_by.username) == ("reports/**", True, "root")
    entry = AuditEntry.objects.get(action="rule.made")
    assert (entry.by, entry.object_id) == ("root", str(rule.pk))
    admin.post(f"/admin/tasks/policyrule/{rule.pk}/change/", form(enabled=""))
    assert AuditEntry.objects.filter(action="rule.changed").exists()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"scope": "workspace"}, "Say which workspace."),
        ({"scope": "workspace", "final": "on"}, "Only a global rule can be final."),
        ({"command": "git 'log"}, "A quotation mark is not closed."),
        ({"path": "notes/../secrets/**"}, "A rule sees where a path leads"),
        ({"path": "."}, "Write ** for everything"),
        ({"path": "./."}, "Write ** for everything"),
        ({"host": "."}, "A host is a name"),
        ({"host": "https://example.com"}, "A host is a name"),
        ({"host": "example.com:443"}, "A host is a name"),
        ({"command": "''"}, "This names no command"),
        ({"decision": "maybe"}, "maybe is not one of the available choices."),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_beside_its_field(
    admin: Client, fields: dict[str, Any], said: str
) -> None:
    assert said in admin.post(ADD, form(**fields)).content.decode()
    assert not PolicyRule.objects.exists()


@pytest.mark.parametrize(
    ("field", "written", "stored"),
    [
        ("path", "./a//b/./c.md", "a/b/c.md"),
        ("path", "reports/", "reports/**"),
        ("path", "/", "**"),
        ("host", "::1", "::1"),
        ("host", "*.B\u00fccher.Example.", "*.xn--bcher-kva.example"),
        ("host", "Stra\u00dfe.example", "xn--strae-oqa.example"),
    ],
)
def test_a_pattern_is_stored_as_what_it_is_held_against_is_spelt(
    admin: Client, field: str, written: str, stored: str
) -> None:
    admin.post(ADD, form(decision="deny", **{field: written}))
    assert getattr(PolicyRule.objects.get(), field) == stored


def test_a_rule_has_one_place(admin: Client, house: House) -> None:
    said = admin.post(ADD, form(workspace=str(house.workspace.pk))).content.decode()
    assert "A global rule has no workspace." in said


def test_what_a_card_left_can_be_switched_off_and_not_rewritten(
    admin: Client, house: House
) -> None:
    rule = PolicyRule.objects.create(
        scope="workspace",
        workspace=house.workspace,
        decision="allow",
        path="a.txt",
        made_by=house.alice,
        made_from=house.approval,
    )
    page = f"/admin/tasks/policyrule/{rule.pk}/change/"
    assert "answering this approval" in admin.get(page).content.decode()
    admin.post(page, {"path": "**", "decision": "allow", "priority": "9"})
    rule.refresh_from_db()
    assert (rule.path, rule.priority, rule.enabled) == ("a.txt", 0, False)
    assert admin.post(f"/admin/tasks/policyrule/{rule.pk}/delete/").status_code == 403


def test_who_may_only_look_neither_writes_nor_is_shut_out(house: House) -> None:
    viewer = make_user("looker", is_staff=True)
    viewer.user_permissions.add(
        *Permission.objects.filter(codename__in=["view_policyrule", "add_policyrule"])
    )
    client = signed_in(viewer)
    assert client.get("/admin/tasks/policyrule/").status_code == 200
    assert client.get(ADD).status_code == 403
    assert client.get(reverse("admin:tasks_policyrule_explain")).status_code == 200
    nobody = signed_in(make_user("nobody", is_staff=True))
    assert nobody.get(reverse("admin:tasks_policyrule_explain")).status_code == 403


def test_the_form_explains_a_call_and_counts_a_draft(admin: Client, house: House) -> None:
    draft = PolicyRule.objects.create(
        scope="global", decision="deny", tool="write_file", enabled=False, made_by=house.alice
    )
    asked = {
        "workspace": str(house.workspace.pk),
        "tool": "write_file",
        "arguments": '{"path": "a.md", "content": ""}',
        "trigger": "chat",
        "mode": "",
        "draft": "",
    }
    url = reverse("admin:tasks_policyrule_explain")
    assert "so a person decides" in admin.get(url, asked).content.decode()
    told = admin.get(url, {**asked, "draft": str(draft.pk)}).content.decode()
    assert "denies file:write" in told
    assert "default: file:write asks" in told
    assert "This is not JSON." in admin.get(url, {**asked, "arguments": "{"}).content.decode()
    requested(house.task, "<script>.md")
    again = admin.get(url, {**asked, "draft": str(draft.pk), "replay": "1"}).content.decode()
    assert "Of 1 calls of the last 1 tasks 1 would be judged otherwise" in again
    assert "&lt;script&gt;.md" in again


def test_the_list_of_rules_costs_the_same_however_many_there_are(
    admin: Client, house: House
) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert admin.get("/admin/tasks/policyrule/").status_code == 200
        return len(captured)

    def add(count: int) -> None:
        for number in range(count):
            PolicyRule.objects.create(
                scope="task",
                task=house.task,
                decision="allow",
                path=f"{number}",
                made_by=house.alice,
                made_from=house.approval,
            )

    add(2)
    few = cost()
    add(30)
    assert cost() == few
