"""API, batch, chat API, mail link, admin and command decide by one function: every situation, every way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core import signing
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tasks.models import Approval, TaskEvent
from tasks.notify import LINK_SALT
from tests.support.people import House, bearer, make_house, see

pytestmark = pytest.mark.django_db(transaction=True)

OK = "ok"


@pytest.fixture
def house(tmp_path: Path) -> House:
    house = make_house(tmp_path / "desk")
    see(house.approval)
    house.alice.is_staff = True
    house.alice.save()
    house.alice.user_permissions.add(Permission.objects.get(codename="view_approval"))
    return house


# ── the ways ──────────────────────────────────────────────────────────────────────────────────


def by_api(house: House, decision: str) -> str:
    path, body = f"/api/approvals/{house.approval.pk}/resolve", {"decision": decision}
    return said(post(house, path, body).json())


def by_batch(house: House, decision: str) -> str:
    body = {"results": [{"approval_id": str(house.approval.pk), "decision": decision}]}
    return said(post(house, "/api/approvals/resolve", body).json()["results"][0])


def by_chat(house: House, decision: str) -> str:
    one = {"tool_call_id": "call-1", "approved": decision == "approve"}
    body = {"session_id": str(house.session.pk), "results": [one]}
    return said(post(house, "/api/confirm", body).json())


def post(house: House, path: str, body: Any) -> Any:
    return Client(headers=bearer(house.alice)).post(path, body, content_type="application/json")


def said(answer: dict[str, Any]) -> str:
    error = answer.get("error")
    return str(error["code"]) if error else OK


def by_link(house: House, decision: str) -> str:
    signed = signing.dumps([str(house.approval.pk), house.alice.pk], salt=LINK_SALT)
    answer = browser(house).post(reverse("decide", args=[signed]), {"decision": decision})
    return OK if answer.status_code == 200 else f"refused {answer.status_code}"


def by_admin(house: House, decision: str) -> str:
    path = reverse("admin:tasks_approval_decide", args=[house.approval.pk])
    page = browser(house).post(path, {"decision": decision}, follow=True)
    [message] = page.context["messages"]
    return OK if message.level_tag == "success" else "refused"


def browser(house: House) -> Client:
    client = Client()
    client.force_login(house.alice)
    return client


def by_command(house: House, decision: str) -> str:
    try:
        call_command(
            "resolve_approval", str(house.approval.pk), decision, user="alice", stdout=StringIO()
        )
    except CommandError as refused:
        return f"refused {refused.returncode}"
    return OK


WAYS = (by_api, by_batch, by_chat, by_link, by_admin, by_command)


# ── the situations ────────────────────────────────────────────────────────────────────────────


def fresh(house: House, settings: Any) -> None:
    """Nobody has answered."""


def same_before(house: House, settings: Any) -> None:
    assert by_api(house, "approve") == OK


def other_before(house: House, settings: Any) -> None:
    assert by_api(house, "reject") == OK


def somebody_else_before(house: House, settings: Any) -> None:
    path, body = f"/api/approvals/{house.approval.pk}/resolve", {"decision": "approve"}
    client = Client(headers=bearer(house.dora))
    assert client.post(path, body, content_type="application/json").status_code == 202


def late(house: House, settings: Any) -> None:
    Approval.objects.update(expires_at=timezone.now() - timedelta(seconds=1))


def swept(house: House, settings: Any) -> None:
    Approval.objects.update(status="expired", resolved_at=timezone.now())


def cancelled(house: House, settings: Any) -> None:
    Approval.objects.update(status="cancelled", resolved_at=timezone.now())


def changed(house: House, settings: Any) -> None:
    (Path(house.workspace.root) / "a.txt").write_text("somebody else\n")


def two_needed(house: House, settings: Any) -> None:
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, two_approvers=("write",))


def own_request(house: House, settings: Any) -> None:
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, other_approver=("write",))


def not_in_the_group(house: House, settings: Any) -> None:
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, approver_groups={"write": "editors"})


SITUATIONS: dict[Callable[[House, Any], None], tuple[str, str]] = {
    fresh: (OK, "approved"),
    same_before: (OK, "approved"),
    other_before: ("already_resolved", "rejected"),
    somebody_else_before: ("already_resolved", "approved"),
    late: ("expired", "pending"),
    swept: ("expired", "expired"),
    cancelled: ("already_resolved", "cancelled"),
    changed: ("stale", "stale"),
    two_needed: (OK, "pending"),
    own_request: ("own_request", "pending"),
    not_in_the_group: ("not_an_approver", "pending"),
}
"""What approving leads to: the answer, and how the row stands afterwards."""


def combined() -> Iterator[Any]:
    """All of them; the normal run tries each situation twice and each way some times."""
    for number, situation in enumerate(SITUATIONS):
        for place, way in enumerate(WAYS):
            marks = () if (number + place) % 3 == 0 else (pytest.mark.long,)
            name = f"{situation.__name__}-{way.__name__}"
            yield pytest.param(situation, way, id=name, marks=marks)


@pytest.mark.parametrize(("situation", "way"), list(combined()))
def test_approving(
    house: House,
    settings: Any,
    situation: Callable[[House, Any], None],
    way: Callable[[House, str], str],
) -> None:
    answer, stands = SITUATIONS[situation]
    situation(house, settings)
    got = way(house, "approve")

    assert got == answer if answer == OK or way in WAYS[:3] else got.startswith("refused")
    house.approval.refresh_from_db()
    assert house.approval.status == stands
    assert not (Path(house.workspace.root) / "a.txt").exists() or situation is changed
    assert TaskEvent.objects.filter(type="approval_resolved").count() <= 1
    if situation is changed:
        assert house.approval.replaced_by is not None
        assert house.approval.replaced_by.status == "pending"
