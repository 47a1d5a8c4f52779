"""Rules of policy: left by a card, written by an administrator, used up, revoked, run out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import IntegrityError
from django.test import Client
from django.utils import timezone

from agent.events import Delta
from agent.messages import Reply
from agent.providers import ModelRequest
from agent.providers.scripted import ScriptedCall, ScriptedProvider, Turn
from tasks import decisions, rules
from tasks.approvals import Reply as Answer
from tasks.errors import Conflict
from tasks.models import AuditEntry, Member, PolicyRule, Session, Task, Workspace
from tasks.writer import writer
from tests.support.people import bearer, let_decide_everywhere
from tests.support.people import make_house as make_people
from tests.support.rows import make_session, make_user
from tests.support.runs import House, ScriptedModels, make_house
from tests.support.turns import DONE, writes

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return make_house(tmp_path / "desk")


async def rule(house: House, decision: str = "allow", **fields: Any) -> PolicyRule:
    made = await PolicyRule.objects.acreate(
        **{"scope": "global", "decision": decision, "made_by": house.alice, **fields}
    )
    await sync_to_async(rules.changed)()
    return made


# ── administrators' ───────────────────────────────────────────────────────────────────────────


async def test_a_card_cannot_stand_against_an_administrator_who_wants_to_be_asked(
    house: House,
) -> None:
    await rule(house, "ask", path="*.md")
    async with house.runner(writes(), DONE):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
        asked = await house.pending(created.task_id)
        assert asked.scopes == ["once"]
        assert "global rule" in asked.rule
        await house.reply(asked.id)
        await house.until(created.task_id, "completed")


async def test_an_allowing_rule_lets_it_run_and_a_denying_one_refuses(house: House) -> None:
    await rule(house, path="drafts/**")
    await rule(house, "deny", path="drafts/secret/**", note="no secrets")
    async with house.runner(writes("drafts/a.md"), writes("drafts/secret/b.md"), DONE):
        created = await house.ask()
        await house.until(created.task_id, "completed")
    assert (house.folder / "drafts/a.md").exists()
    assert not (house.folder / "drafts/secret").exists()
    allowed, denied = await house.requested(created.task_id)
    assert allowed["decision"] == "allow"
    assert denied["rule"] == "global rule “no secrets” denies file:write"
    assert len(denied["chain"]) == 3


async def test_a_rule_about_reading_closes_files_to_listing_and_searching(house: House) -> None:
    (house.folder / "hr").mkdir()
    (house.folder / "hr" / "pay.txt").write_text("AAA 4200")
    await rule(house, "deny", capability="file:read", path="hr/**")
    calls = (
        ScriptedCall(name="list_files", arguments={}),
        ScriptedCall(name="search_files", arguments={"query": "AAA"}),
        ScriptedCall(name="read_file", arguments={"path": "hr/pay.txt"}),
        ScriptedCall(name="read_file", arguments={"path": "HR/../hr/pay.txt"}),
    )
    (house.folder / "alias").symlink_to("hr")
    through = ScriptedCall(name="read_file", arguments={"path": "alias/pay.txt"})
    async with house.runner(Turn(calls=(*calls, through)), DONE):
        created = await house.ask()
        await house.until(created.task_id, "completed")
    said = [json.loads(row.payload)["content"] for row in await house.log(created.task_id) if row.type == "tool_call_finished"]  # fmt: skip
    assert "pay.txt" not in "".join(said[:2])
    assert "4200" not in "".join(said)


@pytest.mark.parametrize("decision", ["approve", "reject"])
async def test_whoever_only_works_in_a_workspace_makes_no_rule_for_all_of_it(
    house: House, decision: str
) -> None:
    bob = await sync_to_async(make_user)("bob")
    member = await Member.objects.acreate(workspace=house.workspace, user=bob, role="member")
    session = await sync_to_async(make_session)(house.workspace, owner=bob)
    async with house.runner(writes(), DONE, writes(content="2\n"), DONE):
        created = await house.ask(session_id=session.pk)
        await house.until(created.task_id, "waiting_approval")
        card = await house.pending(created.task_id)
        reply = Answer(decision=decision, scope="always")
        with pytest.raises(Conflict, match="whole workspace") as refused:
            await decisions.resolve(card.pk, bob.pk, reply)
        assert refused.value.code == "not_an_approver"
        assert (await house.pending(created.task_id)).pk == card.pk
        assert not await PolicyRule.objects.aexists()
        await Member.objects.filter(pk=member.pk).aupdate(role="approver")
        await decisions.resolve(card.pk, bob.pk, reply)
        await house.until(created.task_id, "completed")
    made = await PolicyRule.objects.aget()
    assert (made.scope, made.made_by_id) == ("workspace", bob.pk)


async def test_a_rule_counts_its_uses_and_then_the_default_is_back(house: House) -> None:
    limited = await rule(house, max_uses=1)
    async with house.runner(writes(content="1\n"), writes(content="2\n"), DONE):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
        assert (house.folder / "out.md").read_text() == "1\n"
        await house.reply((await house.pending(created.task_id)).id)
        await house.until(created.task_id, "completed")
    await limited.arefresh_from_db()
    assert limited.used == 1


async def test_of_two_who_claim_the_last_use_one_gets_it(house: House) -> None:
    limited = await rule(house, max_uses=3)
    claims = await asyncio.gather(*(rules.claim(str(limited.pk)) for _ in range(8)))
    assert sum(claims) == 3


class Held(ScriptedProvider):
    """Thinks about its second reply until it may go on."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        super().__init__(turns)
        self.asked, self.go_on, self.calls = asyncio.Event(), asyncio.Event(), 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        self.calls += 1
        if self.calls == 2:
            self.asked.set()
            await self.go_on.wait()
        async with aclosing(super().stream(request)) as stream:
            async for item in stream:
                yield item


async def test_a_rule_that_is_revoked_meanwhile_does_not_count_for_the_running_task(
    house: House,
) -> None:
    allow = await rule(house)
    models = ScriptedModels([])
    models.script = held = Held((writes(content="1\n"), writes(content="2\n"), DONE))
    async with house.runner(models=models):
        created = await house.ask()
        await held.asked.wait()
        await writer.run(partial(rules.revoke, allow, "alice"))
        held.go_on.set()
        await house.until(created.task_id, "waiting_approval")
        assert (house.folder / "out.md").read_text() == "1\n"


@pytest.mark.parametrize(
    "fields",
    [
        {"enabled": False},
        {"expires_at": timezone.now() - timedelta(seconds=1)},
        {"max_uses": 1, "used": 1},
    ],
)
async def test_a_rule_that_does_not_count_any_more_is_not_looked_at(
    house: House, fields: dict[str, Any]
) -> None:
    await rule(house, **fields)
    async with house.runner(writes(), DONE):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")


async def test_rules_of_other_places_do_not_count(house: House, tmp_path: Path) -> None:
    charlie = await sync_to_async(make_user)("charlie")
    elsewhere = await Workspace.objects.acreate(owner=charlie, name="x", root=str(tmp_path / "x"))
    session = await Session.objects.acreate(owner=charlie, workspace=elsewhere)
    task = await Task.objects.acreate(session=session, goal="g", trigger="api", created_by=charlie)
    await rule(house, scope="workspace", workspace=elsewhere)
    await rule(house, scope="session", session=session)
    await rule(house, scope="task", task=task)
    async with house.runner(writes(), DONE):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")


async def test_a_scope_without_its_place_cannot_be_stored(house: House) -> None:
    for fields in ({"scope": "workspace"}, {"workspace": house.workspace}, {"scope": "task"}):
        with pytest.raises(IntegrityError):
            await rule(house, **fields)
    with pytest.raises(IntegrityError):
        await rule(house, scope="workspace", workspace=house.workspace, final=True)


# ── modes ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("place", ["workspace", "session"])
@pytest.mark.parametrize("mode", ["deny", "read_only"])
async def test_the_mode_of_a_place_tightens_whatever_the_request_says(
    house: House, place: str, mode: str
) -> None:
    first = await house.ask()
    session = await Session.objects.aget(pk=first.session_id)
    row: Any = house.workspace if place == "workspace" else session
    row.mode = mode
    await row.asave()
    await rule(house)
    async with house.runner(writes(), DONE):
        await house.until(first.task_id, "completed")
    log = await house.log(first.task_id)
    started = next(row for row in log if row.type == "task_started")
    assert json.loads(started.payload)["mode"] == mode
    assert (house.folder / "out.md").exists() == (mode == "deny")  # the rule asks nobody


# ── over HTTP ─────────────────────────────────────────────────────────────────────────────────


def test_rules_are_listed_where_one_works_and_revoked_by_who_decides_there(
    tmp_path: Path,
) -> None:
    people = make_people(tmp_path / "desk")
    theirs = PolicyRule.objects.create(
        scope="workspace",
        workspace=people.workspace,
        decision="allow",
        path="a.txt",
        made_by=people.alice,
        made_from=people.approval,
        note="write_file on a.txt",
    )
    general = PolicyRule.objects.create(scope="global", decision="deny", made_by=people.alice)

    def listed(user: Any) -> dict[str, bool]:
        answer = Client(headers=bearer(user)).get("/api/rules").json()["items"]
        return {item["id"]: item["can_revoke"] for item in answer}

    everything = {str(theirs.pk): True, str(general.pk): False}
    assert listed(people.alice) == listed(people.dora) == everything
    assert listed(people.bob) == listed(people.vera) == {**everything, str(theirs.pk): False}
    assert listed(people.charlie) == {str(general.pk): False}

    def revoke(user: Any, rule: PolicyRule) -> int:
        return Client(headers=bearer(user)).delete(f"/api/rules/{rule.pk}").status_code

    assert [revoke(user, theirs) for user in (people.bob, people.vera, people.charlie)] == [404] * 3
    assert revoke(people.alice, general) == 404
    assert revoke(people.dora, theirs) == 204
    assert revoke(people.dora, theirs) == 404
    theirs.refresh_from_db()
    assert not theirs.enabled
    assert AuditEntry.objects.get(action="rule.revoked").by == "dora"


def test_rules_of_a_session_and_who_decides_everywhere(tmp_path: Path) -> None:
    people = make_people(tmp_path / "desk")
    let_decide_everywhere(people.charlie)
    of_task = PolicyRule.objects.create(
        scope="task",
        task=people.task,
        decision="allow",
        made_by=people.alice,
        made_from=people.approval,
    )
    alice = Client(headers=bearer(people.alice))
    found = alice.get(f"/api/rules?session_id={people.session.pk}").json()["items"]
    assert [(item["id"], item["made_from"]) for item in found] == [
        (str(of_task.pk), str(people.approval.pk))
    ]
    assert alice.get("/api/rules?session_id=nonsense").status_code == 404
    charlie = Client(headers=bearer(people.charlie))
    assert charlie.delete(f"/api/rules/{of_task.pk}").status_code == 204
