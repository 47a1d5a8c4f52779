"""Rules that an answer to a card leaves: how far they reach, and where there are none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.errors import Invalid
from tasks.models import AuditEntry, PolicyRule
from tests.support.runs import House, make_house
from tests.support.turns import DONE, writes

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return make_house(tmp_path / "desk")


async def test_an_answer_for_the_task_lets_the_same_file_pass_and_nothing_else(
    house: House,
) -> None:
    turns = (writes(content="1\n"), writes(content="2\n"), writes("other.md"), DONE)
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
    _, by_rule, _ = await house.requested(created.task_id)
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
    async with house.runner(
        writes(), DONE, writes(content="2\n"), DONE, writes(content="3\n"), DONE
    ):
        first = await house.ask()
        await house.until(first.task_id, "waiting_approval")
        await house.reply((await house.pending(first.task_id)).id, scope=scope)
        await house.until(first.task_id, "completed")
        second = await house.ask(session_id=first.session_id)
        await house.until(second.task_id, "completed")
        other = await house.ask()
        await house.until(other.task_id, "waiting_approval" if elsewhere == "asks" else "completed")


async def test_a_no_for_the_session_is_not_asked_again(house: House) -> None:
    async with house.runner(writes(), writes(content="2\n"), DONE):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
        await house.reply((await house.pending(created.task_id)).id, "reject", scope="session")
        await house.until(created.task_id, "completed")
    assert (await house.requested(created.task_id))[1]["decision"] == "deny"
    assert not (house.folder / "out.md").exists()


async def test_a_card_leaves_no_rule_about_another_file_than_it_names(house: House) -> None:
    """The link leads elsewhere by now, and a no does not ask what is there."""
    for name in ("one.md", "two.md"):
        (house.folder / name).write_text("same\n")
    link = house.folder / "out.md"
    link.symlink_to("one.md")
    async with house.runner(writes(), DONE):
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
    async with house.runner(writes(), DONE):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
        card = await house.pending(created.task_id)
        assert (card.scopes, card.standing) == (["once"], "")


@pytest.mark.parametrize("demand", DEMANDS)
async def test_a_card_from_before_a_demand_leaves_no_rule(
    house: House, settings: Any, demand: dict[str, Any]
) -> None:
    async with house.runner(writes(), DONE):
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
    async with house.runner(writes(), DONE, writes(content="2\n"), DONE):
        first = await house.ask()
        await house.until(first.task_id, "waiting_approval")
        await house.reply((await house.pending(first.task_id)).id, scope="always")
        await house.until(first.task_id, "completed")
        settings.PILOTHOUSE = replace(settings.PILOTHOUSE, **demand)
        second = await house.ask()
        await house.until(second.task_id, "waiting_approval")
    assert (house.folder / "out.md").read_text() == "one\n"


async def test_the_rule_fits_the_arguments_as_they_were_edited(house: House) -> None:
    async with house.runner(writes(), DONE):
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
    async with house.runner(writes("skills/a/SKILL.md"), writes(), DONE):
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
