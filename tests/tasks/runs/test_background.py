"""What a run is told of memory and skills, and what comes of a note that somebody approved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import Client

from agent.prompts import Background
from agent.providers.scripted import ScriptedCall, Turn
from agent.skills import Library, catalogue
from agent.workspace import Workspace
from tasks.conf import conf
from tasks.errors import Invalid
from tasks.models import PolicyRule
from tasks.wiring import _background
from tasks.workspaces import register
from tests.support.counting import python_calls
from tests.support.people import bearer
from tests.support.rows import make_user
from tests.support.runs import House, ScriptedModels

pytestmark = pytest.mark.django_db(transaction=True)

SKILL = "---\nname: pay\ndescription: Pays <b>invoices</b>.\n---\nAsk first.\n"


def note(**arguments: Any) -> Turn:
    return Turn(calls=(ScriptedCall(name="memory_write", arguments=arguments),))


def put(house: House, path: str, text: str) -> None:
    file = house.folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


async def test_a_run_knows_memory_and_skills_from_its_beginning(house: House) -> None:
    put(house, "memory/MEMORY.md", "- Prices are net.\n")
    put(house, "skills/pay/SKILL.md", SKILL)
    models = ScriptedModels([Turn(text="Noted.")])
    async with house.runner(models=models):
        created = await house.ask()
        await house.until(created.task_id, "completed")
    prompt = models.script.requests[0].system
    assert '<untrusted source="memory" id="' in prompt
    assert "memory/MEMORY.md:\n- Prices are net.\n</untrusted" in prompt
    assert "pay (workspace): Pays <b>invoices</b>." in prompt
    assert "Ask first." not in prompt


async def test_a_note_waits_for_a_person_and_then_counts(house: House) -> None:
    everything = {"scope": "global", "decision": "allow", "priority": 9, "final": True}
    await PolicyRule.objects.acreate(**everything, made_by=house.alice)
    models = ScriptedModels([note(content="- Ask Vera."), Turn(text="Noted."), Turn(text="Hm.")])
    async with house.runner(models=models):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
        asked = await house.pending(created.task_id)
        assert asked.diff.endswith("+- Ask Vera.\n")
        assert not (house.folder / "memory").exists()
        with pytest.raises(Invalid):
            await house.reply(asked.pk, scope="always")
        await house.reply(asked.pk)
        await house.until(created.task_id, "completed")
        await house.check(created.task_id)
        after = await house.ask("And now?", session_id=created.session_id)
        await house.until(after.task_id, "completed")
    first, *_, later = (request.system for request in models.script.requests)
    assert "Ask Vera" not in first
    assert "- Ask Vera." in later


@pytest.mark.parametrize("decision", ["deny", "ask"])
@pytest.mark.parametrize(
    ("rule", "gone"),
    [
        ({"path": "memory/**"}, {"net", "Vera"}),
        ({"path": "memory/2026-*"}, {"Vera"}),
        ({"path": "skills/**", "capability": "*:read"}, {"Pays", "Sorts"}),
        ({"path": "skills/pay/**", "tool": "expand_skill"}, {"Pays"}),
        ({"path": "skills/pay/SKILL.md", "capability": "file:read"}, {"Pays"}),
        ({"path": "Memory/**"}, {"net", "Vera"}),
        ({"tool": "read_file"}, {"net", "Vera", "Pays", "Sorts"}),
        ({"path": "memory/**", "capability": "memory:write"}, set()),
    ],
)
async def test_what_may_not_be_read_unasked_is_not_told_either(
    house: House, rule: dict[str, str], decision: str, gone: set[str]
) -> None:
    put(house, "memory/MEMORY.md", "- Prices are net.\n")
    put(house, "memory/2026-05-31.md", "- Ask Vera.\n")
    put(house, "skills/pay/SKILL.md", SKILL)
    put(house, "skills/sort/SKILL.md", "---\nname: sort\ndescription: Sorts mail.\n---\n")
    everything = {"scope": "global", "decision": "allow", "made_by": house.alice}
    await PolicyRule.objects.acreate(**everything)
    await PolicyRule.objects.acreate(**everything | rule | {"decision": decision, "priority": 9})
    models = ScriptedModels([Turn(text="Noted.")])
    async with house.runner(models=models):
        created = await house.ask()
        await house.until(created.task_id, "completed")
    prompt = models.script.requests[0].system
    assert {word for word in ("net", "Vera", "Pays", "Sorts") if word not in prompt} == gone

    def shown() -> str:
        client = Client(headers=bearer(house.alice))
        return str(client.get(f"/api/workspaces/{house.workspace.pk}/memory").json()["text"])

    text = await sync_to_async(shown)()
    assert {word for word in ("net", "Vera") if word not in text} == gone & {"net", "Vera"}


async def test_people_see_what_runs_are_told(house: House) -> None:
    def answers() -> tuple[Any, Any]:
        client = Client(headers=bearer(house.alice))
        url = f"/api/workspaces/{house.workspace.pk}"
        return client.get(f"{url}/memory").json(), client.get(f"{url}/skills").json()

    put(house, "memory/MEMORY.md", "- Prices are net.\n")
    put(house, "skills/pay/SKILL.md", SKILL)
    put(house, "skills/broken/SKILL.md", "no front matter")
    memory, skills = await sync_to_async(answers)()
    assert memory == {"text": "memory/MEMORY.md:\n- Prices are net.", "limit": 8192}
    found = {item["name"]: item for item in skills["items"]}
    assert found["pay"] == {
        "name": "pay",
        "source": "workspace",
        "description": "Pays <b>invoices</b>.",
        "problem": "",
    }
    assert found["broken"]["problem"].startswith("SKILL.md must begin with front matter")
    assert skills["next"] is None


def test_no_workspace_reaches_the_servers_skills(tmp_path: Path, settings: Any) -> None:
    """There they would be changed without being asked about, and for everybody."""
    skills = tmp_path / "srv/skills"
    (skills / "pay").mkdir(parents=True)
    settings.PILOTHOUSE = replace(conf(), skills_dir=skills)
    owner = make_user("owner")
    for root in (skills, skills / "pay", tmp_path / "srv"):
        with pytest.raises(Invalid, match=r"Pilothouse"):
            register(owner, "skills", root, anywhere=True)


def test_to_see_that_there_is_nothing_to_tell_takes_few_calls(
    tmp_path: Path, settings: Any
) -> None:
    """In the thread where each run looks before it asks its model; it was a hundred and ten."""
    settings.PILOTHOUSE = replace(conf(), skills_dir=None)
    workspace = Workspace(tmp_path)
    (tmp_path / "quotes").mkdir()
    known = _background(workspace)
    with python_calls() as names:
        assert _background(workspace) == known
    assert len(names) <= 24, names
    assert known == (Background(skills=catalogue(Library().skills(workspace))), False)
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/MEMORY.md").write_text("- Prices are net.\n")
    told, of_its_own = _background(workspace)
    assert of_its_own
    assert "net" in told.memory
