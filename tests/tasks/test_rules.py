"""Rules of policy: left by a card, written by an administrator, used up, revoked, run out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
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
from tasks.errors import Conflict, Invalid
from tasks.models import AuditEntry, Member, PolicyRule, Session, Task, Workspace
from tasks.writer import writer
from tests.support.people import bearer, let_decide_everywhere
from tests.support.people import make_house as make_people
from tests.support.rows import make_session, make_user
from tests.support.runs import House, ScriptedModels, make_house

pytestmark = pytest.mark.django_db(transaction=True)

DONE = Turn(text="Done.")


def write(path: str = "out.md", content: str = "one\n") -> Turn:
    arguments = {"path": path, "content": content}
    return Turn(calls=(ScriptedCall(name="write_file", arguments=arguments),))


@pytest.fixture
def house(tmp_path: Path) -> House:
    return make_house(tmp_path / "desk")


async def rule(house: House, decision: str = "allow", **fields: Any) -> PolicyRule:
    made = await PolicyRule.objects.acreate(
        **{"scope": "global", "decision": decision, "made_by": house.alice, **fields}
    )
    await sync_to_async(rules.changed)()
    return made


async def requested(house: House, task_id: Any) -> list[dict[str, Any]]:
    return [
        json.loads(row.payload)
        for row in await house.log(task_id)
        if row.type == "tool_call_requested"
    ]


# ── from a card ───────────────────────────────────────────────────────────────────────────────


async def test_an_answer_for_the_task_lets_the_same_file_pass_and_nothing_else(
    house: House,
) -> None:
    turns = (write(content="1\n"), write(content="2\n"), write("other.md"), DONE)
    async with house.runner(*turns):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
        card = await house.pending(created.task_id)
        assert card.scopes == ["once", "task", "session", "always"]
        assert card.standing == "write_file on out.md"
        await house.reply(card.id, scope="task")
        await house.until(
            created.task_id, lambda task: task.status == "waiting_approval" and task.run > 1
        )
        later = await house.pending(created.task_id)
        assert later.arguments["path"] == "other.md"
        assert (house.folder / "out.md").read_text() == "2\n"
        await house.reply(later.id)
        await house.until(created.task_id, "completed")
    _, by_rule, _ = await requested(house, created.task_id)
    assert by_rule["decision"] == "allow"
    assert by_rule["rule"] == "task rule “write_file on out.md” allows file:write"
    assert by_rule["chain"][-1] == "default: file:write asks"
    made = await PolicyRule.objects.aget()
    assert (made.scope, made.task_id, made.path) == ("task", created.task_id, "out.md")
    assert made.made_from_id == card.id
    entry = await AuditEntry.objects.aget(action="rule.made")
    assert (entry.by, entry.object_id) == ("alice", str(made.pk))
    await house.check(created.task_id)


@pytest.mark.parametrize(("scope", "elsewhere"), [("session", "asks"), ("always", "passes")])
async def test_session_and_workspace_rules_reach_as_far_as_their_names(
    house: House, scope: str, elsewhere: str
) -> None:
    async with house.runner(write(), DONE, write(content="2\n"), DONE, write(content="3\n"), DONE):
        first = await house.ask()
        await house.until(first.task_id, "waiting_approval")
        await house.reply((await house.pending(first.task_id)).id, scope=scope)
        await house.until(first.task_id, "completed")
        second = await house.ask(session_id=first.session_id)
        await house.until(second.task_id, "completed")
        other = await house.ask()
        await house.until(other.task_id, "waiting_approval" if elsewhere == "asks" else "completed")


async def test_a_no_for_the_session_is_not_asked_again(house: House) -> None:
    async with house.runner(write(), write(content="2\n"), DONE):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
        await house.reply((await house.pending(created.task_id)).id, "reject", scope="session")
        await house.until(created.task_id, "completed")
    assert (await requested(house, created.task_id))[1]["decision"] == "deny"
    assert not (house.folder / "out.md").exists()


async def test_a_card_leaves_no_rule_about_another_file_than_it_names(house: House) -> None:
    """The link leads elsewhere by now, and a no does not ask what is there."""
    for name in ("one.md", "two.md"):
        (house.folder / name).write_text("same\n")
    link = house.folder / "out.md"
    link.symlink_to("one.md")
    async with house.runner(write(), DONE):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
        card = await house.pending(created.task_id)
        assert card.standing == "write_file on one.md"
        link.unlink()
        link.symlink_to("two.md")
        with pytest.raises(Invalid, match="only `once`"):
            await house.reply(card.id, "reject", scope="always")
        assert not await PolicyRule.objects.aexists()
        await house.reply(card.id, "reject")
        await house.until(created.task_id, "completed")


DEMANDS: list[dict[str, Any]] = [
    {"other_approver": ("write",)},
    {"two_approvers": ("file:write",)},
    {"approver_groups": {"write": "editors"}},
]


@pytest.mark.parametrize("demand", DEMANDS)
async def test_what_more_is_demanded_for_is_asked_about_every_time(
    house: House, settings: Any, demand: dict[str, Any]
) -> None:
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, **demand)
    async with house.runner(write(), DONE):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
        card = await house.pending(created.task_id)
        assert (card.scopes, card.standing) == (["once"], "")


@pytest.mark.parametrize("demand", DEMANDS)
async def test_a_card_from_before_a_demand_leaves_no_rule(
    house: House, settings: Any, demand: dict[str, Any]
) -> None:
    async with house.runner(write(), DONE):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
        card = await house.pending(created.task_id)
        assert "always" in card.scopes
        settings.PILOTHOUSE = replace(settings.PILOTHOUSE, **demand)
        for decision in ("approve", "reject"):
            with pytest.raises(Invalid, match="only `once` is possible"):
                await house.reply(card.id, decision, scope="always")
        assert not await PolicyRule.objects.aexists()
        await house.reply(card.id, "reject")
        await house.until(created.task_id, "completed")


@pytest.mark.parametrize("demand", DEMANDS)
async def test_a_yes_from_before_a_demand_lets_nothing_pass(
    house: House, settings: Any, demand: dict[str, Any]
) -> None:
    async with house.runner(write(), DONE, write(content="2\n"), DONE):
        first = await house.ask()
        await house.until(first.task_id, "waiting_approval")
        await house.reply((await house.pending(first.task_id)).id, scope="always")
        await house.until(first.task_id, "completed")
        settings.PILOTHOUSE = replace(settings.PILOTHOUSE, **demand)
        second = await house.ask()
        await house.until(second.task_id, "waiting_approval")
    assert (house.folder / "out.md").read_text() == "one\n"


async def test_the_rule_fits_the_arguments_as_they_were_edited(house: House) -> None:
    async with house.runner(write(), DONE):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
        edited = {"path": "sub/edited.md", "content": "x\n"}
        await house.reply(
            (await house.pending(created.task_id)).id, scope="always", edited_arguments=edited
        )
        await house.until(created.task_id, "completed")
    assert (await PolicyRule.objects.aget()).path == "sub/edited.md"


async def test_a_scope_that_was_not_offered_is_refused_and_nothing_is_decided(
    house: House,
) -> None:
    async with house.runner(write("skills/a/SKILL.md"), write(), DONE):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
        skill = await house.pending(created.task_id)
        assert (skill.scopes, skill.standing) == (["once"], "")
        with pytest.raises(Invalid, match="scope must be once"):
            await house.reply(skill.id, scope="always")
        await house.reply(skill.id, "reject")
        await house.until(
            created.task_id, lambda task: task.status == "waiting_approval" and task.run > 1
        )
        ordinary = await house.pending(created.task_id)
        with pytest.raises(Invalid, match="only `once`"):
            await house.reply(
                ordinary.id,
                scope="always",
                edited_arguments={"path": "skills/b/SKILL.md", "content": "x"},
            )
        assert (await house.pending(created.task_id)).id == ordinary.id
        await house.reply(ordinary.id)
        await house.until(created.task_id, "completed")
    assert not await PolicyRule.objects.aexists()


# ── administrators' ───────────────────────────────────────────────────────────────────────────


async def test_a_card_cannot_stand_against_an_administrator_who_wants_to_be_asked(
    house: House,
) -> None:
    await rule(house, "ask", path="*.md")
    async with house.runner(write(), DONE):
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
    async with house.runner(write("drafts/a.md"), write("drafts/secret/b.md"), DONE):
        created = await house.ask()
        await house.until(created.task_id, "completed")
    assert (house.folder / "drafts/a.md").exists()
    assert not (house.folder / "drafts/secret").exists()
    allowed, denied = await requested(house, created.task_id)
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
    async with house.runner(write(), DONE, write(content="2\n"), DONE):
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
    async with house.runner(write(content="1\n"), write(content="2\n"), DONE):
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
    models.script = held = Held((write(content="1\n"), write(content="2\n"), DONE))
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
    async with house.runner(write(), DONE):
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
    async with house.runner(write(), DONE):
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
    async with house.runner(write(), DONE):
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
