"""The link of a mail: it shows what waits, and its button decides."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail, signing
from django.test import Client

from tasks.models import Approval, Member
from tasks.told import told_in
from tests.support.notices import having, look, prepared
from tests.support.people import House

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return prepared(tmp_path)


def link(house: House, settings: Any, name: str = "dora") -> str:
    having(settings, mail_from="us@example.com")
    look()
    [message] = [message for message in mail.outbox if message.to == [f"{name}@example.com"]]
    found = re.search(r"http://127\.0\.0\.1:8000(/decide/\S+)", str(message.body))
    assert found
    return found[1]


def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_the_link_shows_and_the_button_decides(house: House, settings: Any) -> None:
    path = link(house, settings)
    client = browser(house.dora)
    page = client.get(path)
    house.approval.refresh_from_db()
    assert (page.status_code, house.approval.status) == (200, "pending")
    assert "+hello" in page.content.decode()

    answer = client.post(path, {"decision": "approve", "comment": "fine"})
    house.approval.refresh_from_db()
    assert (answer.status_code, house.approval.status) == (200, "approved")
    assert (house.approval.resolved_by, house.approval.comment) == (house.dora, "fine")
    late = client.post(path, {"decision": "reject"})
    assert late.status_code == 409
    assert client.get(path).status_code == 200


def test_the_page_of_the_link_speaks_the_reader_s_language(house: House, settings: Any) -> None:
    path = link(house, settings)
    page = browser(house.dora).get(path, headers={"accept-language": "zh-hans"}).content.decode()

    assert "<dd>中</dd>" in page, "the risk"
    assert "<dd>待定</dd>" in page, "the state"


def test_the_page_of_the_link_shows_a_command_as_it_is_and_says_where_in_chinese(
    house: House, settings: Any
) -> None:
    command = "── command\nsandbox: bubblewrap \u202ehs.x\n\n── where\nsandbox: bubblewrap\n"
    reason = "run_command has an effect, so a person decides."
    Approval.objects.filter(pk=house.approval.pk).update(diff=command, reason=reason)
    path = link(house, settings)
    page = browser(house.dora).get(path, headers={"accept-language": "zh-hans"}).content.decode()

    where = html.escape(told_in("zh-Hans", "sandbox: bubblewrap"))
    shown = f"── 命令\nsandbox: bubblewrap &lt;202E&gt;hs.x\n\n── 运行位置\n{where}\n"
    assert shown in page
    assert told_in("zh-Hans", reason) in page


def test_the_link_is_no_way_in(house: House, settings: Any) -> None:
    path = link(house, settings)

    for method in ("get", "post"):
        answer = getattr(Client(), method)(path, {"decision": "approve"})
        assert (answer.status_code, answer["Location"].startswith("/sign-in?next=")) == (302, True)
        for other in (house.alice, house.bob, house.charlie):
            assert getattr(browser(other), method)(path, {"decision": "approve"}).status_code == 404
    spoilt = [path[:-2] + "xx", "/decide/x", f"/decide/{signing.dumps(['x', house.dora.pk])}"]
    for wrong in spoilt:
        assert browser(house.dora).get(wrong).status_code == 404
    house.approval.refresh_from_db()
    assert house.approval.status == "pending"


def test_a_form_of_another_site_cannot_use_it(house: House, settings: Any) -> None:
    path = link(house, settings)
    client = Client(enforce_csrf_checks=True)
    client.force_login(house.dora)

    assert client.post(path, {"decision": "approve"}).status_code == 403


def test_the_link_ends_with_the_right_and_with_time(
    house: House, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = link(house, settings)
    # Nobody waits for seven days.
    monkeypatch.setattr("tasks.pages.decide.MAX_AGE_SECONDS", -1)
    assert browser(house.dora).get(path).status_code == 404
    monkeypatch.undo()
    assert browser(house.dora).get(path).status_code == 200
    Member.objects.filter(user=house.dora).delete()
    assert browser(house.dora).post(path, {"decision": "approve"}).status_code == 404


def test_a_changed_target_is_not_approved_by_the_link(house: House, settings: Any) -> None:
    path = link(house, settings)
    (Path(house.workspace.root) / "a.txt").write_text("somebody else\n")

    answer = browser(house.dora).post(path, {"decision": "approve"})
    successor = Approval.objects.get(status="pending")
    assert answer.status_code == 409
    assert f"#approval-{successor.pk}" in answer.content.decode()
