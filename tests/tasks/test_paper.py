"""A conversation exported for people: everything that happened, and nothing in it can act."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.test import Client

from agent.providers.scripted import ScriptedCall, Turn
from tasks.models import Task
from tests.support.runs import House, make_house

pytestmark = pytest.mark.django_db(transaction=True)

HOSTILE = "<script>alert(1)</script> **bold** [x](javascript:alert(1)) ```"


@pytest.fixture
def house(tmp_path: Path) -> House:
    return make_house(tmp_path / "desk")


async def played(house: House, scope: str = "once") -> Task:
    """Read, write after a yes, answer."""
    write = {"path": "out.md", "content": "a ```` fence\n"}
    turns = (
        Turn(text="I look.", calls=(ScriptedCall(name="read_file", arguments={"path": "a.txt"}),)),
        Turn(calls=(ScriptedCall(name="write_file", arguments=write),)),
        Turn(text=f"# Result\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n{HOSTILE}"),
    )
    async with house.runner(*turns):
        task_id = (await house.ask(f"Compare\n{HOSTILE}")).task_id
        await house.until(task_id, "waiting_approval")
        answer = {"comment": f"fine\n{HOSTILE}", "scope": scope}
        await house.reply((await house.pending(task_id)).id, **answer)
        return await house.until(task_id, "completed")


@sync_to_async
def fetch(user: User | None, task: Task, form: str, query: str = "") -> Any:
    client = Client()
    if user is not None:
        client.force_login(user)
    return client.get(f"/c/{task.session_id}/export.{form}{query}")


async def test_markdown_tells_the_whole_story(house: House) -> None:
    task = await played(house)
    answer = await fetch(house.alice, task, "md")
    assert answer["Content-Type"] == "text/markdown; charset=utf-8"
    assert answer["Content-Disposition"].startswith("attachment; filename=")
    text = answer.content.decode()
    wanted = [
        "# Compare",
        "## Task 1",
        f"> Compare\n> {HOSTILE}",
        "I look.",
        "- Done: `read_file a.txt`",
        "- alice approved: `write_file out.md` · this once · ",
        "  > fine",
        "`````diff",  # longer than the fence in the file
        "# Result",
        "**Done**",
    ]
    places = [text.index(each) for each in wanted]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("scope", "words"),
    [("task", "for this task"), ("session", "for this session"), ("always", "always")],
)
async def test_an_answer_says_how_far_it_reaches(house: House, scope: str, words: str) -> None:
    task = await played(house, scope)
    text = (await fetch(house.alice, task, "md")).content.decode()
    page = (await fetch(house.alice, task, "html")).content.decode()
    assert f"- alice approved: `write_file out.md` · {words} · " in text
    assert f"<code>write_file out.md</code> · {words} <time>" in page


async def test_the_web_page_renders_the_model_s_words_and_escapes_the_rest(house: House) -> None:
    task = await played(house)
    answer = await fetch(house.alice, task, "html")
    text = answer.content.decode()
    assert answer["Content-Disposition"].startswith("attachment; filename=")
    assert "<td>1</td>" in text or '<td class="n">1</td>' in text
    assert "<strong>bold</strong>" in text
    assert "<script" not in text
    assert 'href="javascript' not in text
    assert text.count("&lt;script&gt;") >= 3  # the goal, the comment, the answer
    assert "default-src 'none'" in text


async def test_what_waits_and_what_failed_is_told(house: House) -> None:
    write = {"path": "out.md", "content": "x"}
    turns = (
        Turn(calls=(ScriptedCall(name="read_file", arguments={"path": "nowhere.txt"}),)),
        Turn(calls=(ScriptedCall(name="write_file", arguments=write),)),
    )
    async with house.runner(*turns):
        task_id = (await house.ask()).task_id
        task = await house.until(task_id, "waiting_approval")
    text = (await fetch(house.alice, task, "md")).content.decode()
    assert "- Failed: `read_file nowhere.txt`" in text
    assert "- Waits for a decision: `write_file out.md`" in text
    assert "+x" in text


async def test_one_task_alone_and_nobody_else_s(house: House) -> None:
    task = await played(house)
    one = await fetch(house.alice, task, "md", f"?task={task.id}")
    assert "## Task 1" in one.content.decode()
    unknown = await fetch(house.alice, task, "md", "?task=6b1c0000-0000-4000-8000-000000000000")
    foreign = await fetch(await User.objects.acreate(username="charlie"), task, "md")
    assert (unknown.status_code, foreign.status_code) == (404, 404)
    assert (await fetch(None, task, "html")).status_code == 302
