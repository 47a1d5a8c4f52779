"""Who reaches what: every route of the URL conf, tried as everybody there is.

A route that stands in no class here fails the test: whoever adds one says for whom it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission
from django.test import Client
from django.utils import timezone

from tasks.canonical import canonical_json
from tasks.models import AuditEntry, McpTool, PolicyRule, Schedule, Task, TaskEvent
from tests.support.agui import run_input
from tests.support.people import House, bearer, make_approval, make_house
from tests.support.routes import url_conf
from tests.support.rows import make_session, make_task, make_user
from tests.tasks.test_api_foreign import (
    FIELDS,
    ROUTES,
    ask,
    documented,
    fill,
    made_file,
    made_webhook,
)

pytestmark = pytest.mark.django_db(transaction=True)  # the writer has a connection of its own

NOBODY = "nobody"
ROLES = ("alice", "dora", "bob", "vera", "charlie", "staff")
"""Owner, approver, member, viewer, stranger, and staff without any right."""
SEE = frozenset({"alice", "dora", "bob", "vera"})
WORK = frozenset({"alice", "dora", "bob"})
DECIDE = frozenset({"alice", "dora"})
OWN = frozenset({"alice"})
PERSON = frozenset(ROLES)
EVERYBODY = PERSON | {NOBODY}
NO_ROLE: frozenset[str] = frozenset()
"""For programs with a secret, whoever they come from: test_webhooks.py."""

ALLOWED: dict[frozenset[str], str] = {
    SEE: """
        get /api/tasks/{task_id}                 get /api/tasks/{task_id}/events
        get /api/tasks/{task_id}/events/{sequence}  get /api/tasks/{task_id}/stream
        get /api/tasks/{task_id}/artifacts       get /api/tasks/{task_id}/export
        get /api/artifacts/{artifact_id}         get /api/approvals/{approval_id}
        get /api/sessions/{session_id}           get /api/sessions/{session_id}/events
        get /api/sessions/{session_id}/policy
        get /api/sessions/{session_id}/export    get /api/sessions/{session_id}/stream
        get /api/stream/{session_id}             get /api/workspaces/{workspace_id}/members
        get /c/{session_id}                      get /c/{session_id}/export.md
        get /c/{session_id}/export.html          get /artifacts/{artifact_id}/view
        get /workspaces/{workspace_id}           get /workspaces/{workspace_id}/files
        get /api/workspaces/{workspace_id}/files
        get /api/workspaces/{workspace_id}/memory
        get /api/workspaces/{workspace_id}/skills
        get /api/workspaces/{workspace_id}/files/content
        get /api/tasks/{task_id}/events/{sequence}/undo""",
    WORK: """
        post /api/tasks                          post /api/chat
        post /api/sessions                       post /api/tasks/{task_id}/cancel
        post /api/tasks/{task_id}/retry          post /api/tasks/{task_id}/messages
        patch /api/sessions/{session_id}         delete /api/sessions/{session_id}
        post /api/sessions/{session_id}/fork
        put /api/workspaces/{workspace_id}/files/content
        delete /api/workspaces/{workspace_id}/files/content""",
    DECIDE: """
        post /api/approvals/resolve              post /api/approvals/{approval_id}/resolve
        post /api/approvals/{approval_id}/snooze  post /api/approvals/{approval_id}/preview
        post /api/confirm                        delete /api/rules/{rule_id}
        post /api/tasks/{task_id}/events/{sequence}/undo""",
    OWN: """
        post /api/sessions/{session_id}/handover
        patch /api/workspaces/{workspace_id}
        put /api/workspaces/{workspace_id}/members/{username}
        delete /api/workspaces/{workspace_id}/members/{username}
        delete /api/tokens/{token_id}""",
    PERSON: """
        get /api/approvals  get /api/models  get /api/rules  get /api/sessions  get /api/usage
        get /api/sessions/running  get /api/tasks  get /api/tokens  get /api/workspaces
        post /api/tokens  get /  get /inbox  get /settings
        post /agui  get /agui/capabilities""",
    NO_ROLE: """
        post /api/webhooks/{webhook_id}""",
    EVERYBODY: """
        get /healthz  get /readyz  get /api/openapi.json  get /api/docs
        get /sign-in  post /language""",
}
"""Lists show each only their own: `test_access.py` and `test_api_foreign.py` hold that."""
ELSEWHERE = {
    "/sign-out": "ends the visitor's own session",
    "/sign-in/{token}": "a secret that is good once: test_signin.py",
    "/decide/{signed}": "for one person by a signed link: test_notices.py",
    "/api/": "nothing is there",
    "/api/{path}": "nothing is there",
    "/agui/{path}": "nothing is there",
}
BODIES: dict[tuple[str, str], Any] = {
    **{(method, path): body for (method, path, _), body in FIELDS.items() if method == "post"},
    **ROUTES,
    ("post", "/api/tokens"): {"name": "x"},
    ("post", "/agui"): run_input("thread", "run", "x"),
    ("post", "/api/sessions/{session_id}/handover"): {"username": "charlie"},
    ("put", "/api/workspaces/{workspace_id}/members/{username}"): {"role": "member"},
}
LEAD_ON = frozenset({"/language", "/sign-in"})
"""Their answer may lead to another page."""
REFUSED = frozenset({401, 403, 404})


LOG: list[tuple[str, dict[str, Any]]] = [
    ("task_created", {"goal": "x", "session_id": "x", "trigger": "api"}),
    (
        "tool_call_requested",
        {
            "step": 1,
            "tool_call_id": "c",
            "block_id": "b",
            "index": 0,
            "name": "write_file",
            "arguments": {},
            "capability": "file:write",
            "risk": "medium",
            "decision": "ask",
            "rule": "",
        },
    ),
    ("tool_call_finished", {"step": 1, "tool_call_id": "c", "ok": True, "content": ""}),
]
"""With a call that has come to its end."""


def classes() -> dict[tuple[str, str], frozenset[str]]:
    return {
        (method, path): roles
        for roles, routes in ALLOWED.items()
        for method, path in re.findall(r"(\w+) (/\S*)", routes)
    }


def routes() -> Iterator[tuple[str, str]]:
    known = [(method, path) for method, path, _ in documented()]
    yield from known
    paths = {path for _, path in known}
    for path in url_conf():
        if path not in paths and path not in ELSEWHERE and not path.startswith("/admin/"):
            yield ("post" if path == "/language" else "get"), path


def test_every_route_says_for_whom_it_is() -> None:
    missing, gone = set(routes()) - classes().keys(), classes().keys() - set(routes())

    assert not missing, "Add the new routes to ALLOWED: for whom are they?"
    assert not gone


# ── trying ────────────────────────────────────────────────────────────────────────────────────


def fresh(house: House) -> dict[str, str]:
    """A session of Alice's with everything in it, untouched by the attempt before."""
    session = make_session(house.workspace)
    task = make_task(session, status=Task.Status.WAITING_APPROVAL, last_sequence=len(LOG))
    for sequence, (type_, payload) in enumerate(LOG, start=1):
        TaskEvent.objects.create(
            task=task,
            sequence=sequence,
            session=session,
            position=sequence,
            type=type_,
            payload=canonical_json(payload),
            created_at=timezone.now(),
        )
    session.last_position = len(LOG)
    session.save()
    approval = make_approval(task)
    rule = PolicyRule.objects.create(
        scope="session",
        session=session,
        decision="allow",
        made_by=house.alice,
        made_from=approval,
    )
    return {
        "session_id": str(session.pk),
        "task_id": str(task.pk),
        "approval_id": str(approval.pk),
        "rule_id": str(rule.pk),
        "webhook_id": str(made_webhook(house).pk),
        "artifact_id": str(made_file(replace(house, task=task)).pk),
        "workspace_id": str(house.workspace.pk),
        "username": "bob",
        "sequence": str(len(LOG)),
        "token": "x",
    }


def clients(house: House) -> dict[str, tuple[Client, Client]]:
    """For the API and for pages."""
    staff = make_user("staff", is_staff=True)
    found = {NOBODY: (Client(), Client())}
    for name in ROLES:
        user = staff if name == "staff" else getattr(house, name)
        page = Client()
        page.force_login(user)
        found[name] = (Client(headers=bearer(user)), page)
    return found


def attempt(
    client: tuple[Client, Client], method: str, path: str, ids: dict[str, str]
) -> tuple[bool, int]:
    """Whether they got in, and the status."""
    is_page = not path.startswith(("/api/", "/agui"))
    if path == "/agui":
        response = client[0].post(path, BODIES[method, path], content_type="application/json")
        response.close()
        status = response.status_code
    elif path.endswith("/stream") or path == "/api/stream/{session_id}":
        response = client[is_page].get(fill(path, ids))
        response.close()
        status = response.status_code
    else:
        status, _ = ask(client[is_page], method, path, BODIES.get((method, path)), ids)
    sent_away = is_page and status == 302 and path not in LEAD_ON
    return status not in REFUSED and not sent_away, status


def test_every_role_on_every_route(tmp_path: Path) -> None:
    house = make_house(tmp_path / "desk")
    everybody, wrong = clients(house), []
    for (method, path), allowed in classes().items():
        ids = fresh(house)
        for name, client in everybody.items():
            if "{token_id}" in path:
                bearer(house.alice)
                ids["token_id"] = str(house.alice.api_tokens.latest("pk").pk)
            got_in, status = attempt(client, method, path, ids)
            if got_in != (name in allowed):
                wrong.append(f"{name} {method} {path}: {status}")
            if got_in and method != "get":
                ids = fresh(house)
            if status == 401:
                assert name == NOBODY, path

    assert wrong == []


def test_the_admin_is_for_staff(tmp_path: Path) -> None:
    house = make_house(tmp_path / "desk")
    everybody, ids = clients(house), fresh(house)
    visitors = {name: everybody[name][1] for name in (NOBODY, "alice")}
    leads_away = {"/admin/login/", "/admin/logout/"}
    paths = [path for path in url_conf() if path.startswith("/admin/") and path not in leads_away]
    assert len(paths) > 50
    for name, page in visitors.items():
        for path in paths:
            filled = re.sub(r"\{\w+\}", ids["approval_id"], path)
            answer = page.get(filled)
            assert answer.status_code in (302, 404), (name, path, answer.status_code)
            if answer.status_code == 302:
                assert answer["Location"].startswith(("/admin/login/", "/sign-in")), (name, path)


def test_staff_without_rights_sees_no_rows_in_the_admin(tmp_path: Path) -> None:
    house = make_house(tmp_path / "desk")
    page, ids = clients(house)["staff"][1], fresh(house)
    open_to_staff = {"/admin/", "/admin/logout/", "/admin/password_change/", "/admin/jsi18n/"}
    open_to_staff |= {"/admin/password_change/done/", "/admin/login/"}
    for path in url_conf():
        if path.startswith("/admin/") and path not in open_to_staff:
            filled = re.sub(r"\{\w+\}", ids["approval_id"], path)
            assert page.get(filled).status_code in (302, 403, 404, 405), path


def everything() -> dict[str, list[dict[str, Any]]]:
    """All rows but those that say who was here."""
    passing = {"auditentry", "audithead"}
    return {
        model._meta.label: list(model._default_manager.order_by("pk").values())
        for model in apps.get_app_config("tasks").get_models()
        if model._meta.model_name not in passing
    }


def test_who_may_only_look_changes_nothing_in_the_admin(tmp_path: Path) -> None:
    """Whatever they post, to whichever page."""
    house = make_house(tmp_path / "desk")
    place = {"owner": house.alice, "workspace": house.workspace}
    ids = fresh(house)
    schedule = Schedule.objects.create(**place, name="x", goal="x", cron="0 0 * * *")
    tool = McpTool.objects.create(server="notes", name="x", seen="{}")
    bearer(house.alice)
    token = house.alice.api_tokens.latest("pk")
    rows = {"schedule": schedule.pk, "mcptool": tool.pk, "apitoken": token.pk}
    staff = make_user("staff", is_staff=True)
    staff.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    page = Client()
    page.force_login(staff)
    before = everything()
    posted = {"decision": "approve", "enabled": "on", "digest": "x", "post": "yes", "name": "y"}
    for path in url_conf():
        if not path.startswith("/admin/") or path in ("/admin/logout/", "/admin/password_change/"):
            continue
        kind = path.split("/")[3] if path.count("/") > 3 else ""
        own = {name.removesuffix("_id"): value for name, value in ids.items()}
        row = rows.get(kind) or own.get("rule" if kind == "policyrule" else kind)
        page.post(re.sub(r"\{\w+\}", str(row or ids["approval_id"]), path), posted)

    assert everything() == before
    told = set(AuditEntry.objects.filter(by="staff").values_list("action", flat=True))
    assert told <= {"user.signed_in", "task.exported", "session.exported", "audit.exported"}
