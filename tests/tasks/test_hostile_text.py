"""Hostile text in every place where a page shows a name, a goal or a word: it stays text.

A page with hostile text has the same elements with the same attributes as one with harmless text.
Where Markdown is rendered, what comes of it is looked at by itself. What a real browser makes of
all this is in tests/browser/test_safety.py.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import signing
from django.test import Client

from agent import events as ev
from agent.text import clean
from tasks import events
from tasks.models import (
    ApiToken,
    Approval,
    Artifact,
    AuditEntry,
    McpTool,
    ModelProfile,
    Notice,
    PolicyRule,
    Schedule,
    Session,
    Task,
    TaskEvent,
    Webhook,
)
from tasks.notify import LINK_SALT
from tasks.render import plain, rendered_now
from tasks.writer import writer
from tests.support.payloads import NAMES, PAYLOADS, SHORT
from tests.support.people import make_approval
from tests.support.rows import make_session, make_task, make_user, make_workspace

pytestmark = pytest.mark.usefixtures("stopped_writer")

committed = pytest.mark.django_db(transaction=True)

ALL = clean("\n\n".join(PAYLOADS))
ADMIN = (
    *("task", "session", "workspace", "approval", "artifact", "schedule", "webhook", "apitoken"),
    *("modelprofile", "auditentry", "policyrule", "mcptool", "notice", "modelusage"),
)


class Structure(HTMLParser):
    """Elements with the names of their attributes, and what could run."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.active: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(sorted(name for name, _ in attrs))))
        for name, value in attrs:
            scheme = re.match(
                r"[\s\x00-\x20]*(javascript|data|vbscript):", value or "", re.IGNORECASE
            )
            if name.startswith("on") or (
                name in ("href", "src", "action", "formaction") and scheme
            ):
                self.active.append(f"<{tag} {name}={value}>")


def furnish(texts: Sequence[str], names: Sequence[str], whole: str, folder: Path) -> dict[str, Any]:
    """A house in which every name and every text is one of these."""
    alice = make_user("alice", is_staff=True, is_superuser=True, first_name=names[0])
    spaces = [make_workspace(alice, name=name[:100]) for name in dict.fromkeys(names)]
    spaces[0].root, spaces[0].instructions = str(folder), whole
    spaces[0].save()
    sessions = [make_session(spaces[0], title=text[:200]) for text in texts]
    for session, text in zip(sessions, texts, strict=True):
        make_task(session, goal=text, status="completed", final_answer=text)
    task = make_task(sessions[0], goal=whole, status="waiting_approval", error={"message": whole})
    for text in names:
        row = make_approval(
            task, tool_call_id=hashlib.sha256(text.encode()).hexdigest(), tool=text[:100],
            arguments={text: text, "path": text}, diff=whole, reason=text, rule=text, comment=text,
        )  # fmt: skip
        Artifact.objects.create(
            task=task, path=f"{row.pk}/{text}.md", size=1, sha256="0" * 64, media_type="text/html"
        )
        ApiToken.objects.create(
            user=alice, name=text, prefix="ph_", digest=str(row.pk).replace("-", "")
        )
        Schedule.objects.create(
            owner=alice,
            workspace=spaces[0],
            name=text,
            goal=text,
            cron="0 0 * * *",
            paused_reason=text,
            enabled=False,
        )
        webhook = Webhook.objects.create(
            owner=alice,
            workspace=spaces[0],
            name=text,
            goal=text,
            paused_reason=text,
            enabled=False,
        )
        webhook.deliveries.create(size=1, outcome="refused", reason=text, sender_id=text[:200])
        ModelProfile.objects.create(name=text, base_url="http://127.0.0.1:9/v1", model=text)
        Notice.objects.create(
            approval=row,
            channel="mail",
            user=alice,
            address=text[:254],
            error=text,
            status="failed",
        )
        McpTool.objects.create(
            server=text[:24],
            name=text[:200],
            seen=json.dumps({"description": whole, text: text}),
            accepted=json.dumps({"description": text}),
            problem=text,
        )
        PolicyRule.objects.create(
            scope="workspace",
            workspace=spaces[0],
            decision="deny",
            made_by=alice,
            enabled=False,
            **dict.fromkeys(("note", "tool", "path", "host", "command"), text[:100]),
        )
    writer.run_sync(lambda: events.append(task.pk, [*history(whole, names, task)]))
    return {"client": browser(alice), "task": task, "session": sessions[0], "workspace": spaces[0]}


def history(whole: str, names: Sequence[str], task: Task) -> list[Any]:
    return [
        ev.TaskCreated(goal=whole, session_id=str(task.session_id), trigger="api"),
        ev.TaskStarted(run=1, reason=names[0], model=names[1], limits={}, mode="ask"),
        ev.UserMessageAdded(message_id="m", text=whole, by=names[2]),
        ev.ToolCallRequested(
            step=1, tool_call_id="c", name=names[1], block_id="b", index=0, arguments={"path": whole}, capability="file:write",
            risk="low", decision="ask", rule=names[3],
        ),
        ev.ToolCallStarted(step=1, tool_call_id="c"),
        ev.ToolCallFinished(step=1, tool_call_id="c", ok=True, content=whole, details={names[4]: whole}, duration_ms=1),
    ]  # fmt: skip


def browser(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


def pages(house: dict[str, Any]) -> dict[str, str]:
    rows = {
        "task": house["task"], "session": house["session"], "workspace": house["workspace"],
        "approval": Approval.objects.first(), "artifact": Artifact.objects.first(),
        "schedule": Schedule.objects.first(), "webhook": Webhook.objects.first(), "apitoken": ApiToken.objects.first(),
        "modelprofile": ModelProfile.objects.first(), "mcptool": McpTool.objects.first(),
        "notice": Notice.objects.first(), "policyrule": PolicyRule.objects.first(), "auditentry": AuditEntry.objects.first(),
    }  # fmt: skip
    asked, alice = rows["approval"], User.objects.get(username="alice")
    assert asked is not None
    letter = signing.dumps([str(asked.pk), alice.pk], salt=LINK_SALT)
    paths = [
        "/",
        f"/c/{house['session'].pk}",
        "/inbox",
        "/settings",
        f"/workspaces/{house['workspace'].pk}",
        f"/workspaces/{house['workspace'].pk}/files",
        f"/decide/{letter}",
        f"/admin/auth/user/{alice.pk}/change/",
        "/admin/tasks/policyrule/explain/",
    ]
    gone = ("schedule", "webhook", "modelprofile")
    paths += [f"/admin/tasks/{name}/{rows[name].pk}/delete/" for name in gone]
    paths += [f"/admin/tasks/{name}/" for name in ADMIN]
    paths += [f"/admin/tasks/{name}/{row.pk}/change/" for name, row in rows.items()]
    found = {}
    for path in paths:
        answer = house["client"].get(path)
        assert answer.status_code == 200, path
        name = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|/\d+/|(?<=/decide/).*", "ID", path)
        found[name] = answer.content.decode()
    return found


@committed
def test_hostile_text_adds_no_element_and_no_attribute(tmp_path: Path) -> None:
    assert len(PAYLOADS) >= 60
    names = list(dict.fromkeys(clean(name) for name in NAMES))[:45]  # a page of the admin has 50
    texts = [clean(text) for text in SHORT][: len(names)]
    hostile = pages(furnish(texts, names, ALL, tmp_path / "one"))
    for table in (
        PolicyRule,
        McpTool,
        Approval,
        Artifact,
        ApiToken,
        Schedule,
        Webhook,
        ModelProfile,
    ):
        table._default_manager.all().delete()
    harmless_names = [f"name {number}" for number in range(len(names))]
    lines = "\n".join("x" for _ in ALL.splitlines())
    harmless = pages(again(harmless_names, lines, tmp_path / "two"))
    assert hostile.keys() == harmless.keys()
    for path, html in hostile.items():
        found, expected = Structure(html), Structure(harmless[path])
        assert found.active == [], path
        more = Counter(found.elements) - Counter(expected.elements)
        assert not more, (path, more)


DANGEROUS = frozenset(
    {
        "script",
        "iframe",
        "object",
        "embed",
        "style",
        "math",
        "base",
        "form",
        "video",
        "audio",
        "meta",
    }
)


def _odd(element: tuple[str, tuple[str, ...]]) -> bool:
    return any(
        name.startswith("on") or name in ("style", "srcdoc", "autofocus") for name in element[1]
    )


def again(names: list[str], whole: str, folder: Path) -> dict[str, Any]:
    for table in (TaskEvent, Task, Session):
        table._default_manager.all().delete()
    User.objects.update(username="alice of before")
    return furnish(names, names, whole, folder)


def test_rendered_text_can_do_nothing() -> None:
    for text in PAYLOADS:
        for source in (
            text,
            f"# {text}",
            f"> - {text}",
            f"| a |\n|--|\n| {text} |",
            f"```\n{text}",
        ):
            found = Structure(rendered_now(source))
            assert found.active == [], text
            loads = DANGEROUS | {"img", "svg", "input", "link", "source"}
            assert not [each for each in found.elements if each[0] in loads or _odd(each)], text
        assert {tag for tag, _ in Structure(plain(text)).elements} <= {"pre"}


@committed
def test_json_of_the_api_is_no_page(tmp_path: Path) -> None:
    house = furnish([clean(x) for x in SHORT[:5]], [clean(x) for x in NAMES[:5]], ALL, tmp_path)
    for path in (
        "/api/sessions",
        "/api/tasks",
        "/api/approvals",
        "/api/workspaces",
        f"/api/tasks/{house['task'].pk}/events",
    ):
        answer = house["client"].get(path)
        assert answer["Content-Type"].startswith("application/json")
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert answer["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
        json.loads(answer.content)


@committed
def test_a_copy_on_paper_can_do_nothing(tmp_path: Path) -> None:
    house = furnish([clean(x) for x in SHORT[:5]], [clean(x) for x in NAMES[:5]], ALL, tmp_path)
    answer = house["client"].get(f"/c/{house['session'].pk}/export.html")
    found = Structure(answer.content.decode())
    assert answer["Content-Disposition"].startswith("attachment")
    assert found.active == []
    assert Counter(tag for tag, _ in found.elements if tag in DANGEROUS | {"img", "svg"}) == {
        "meta": 4,
        "style": 1,
    }
