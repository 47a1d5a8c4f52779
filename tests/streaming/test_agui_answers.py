"""AG-UI's interrupts: a run that ends with questions, and the run that brings the answers."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone
from jsonschema import validate

from agent.providers.scripted import ScriptedCall, Turn
from config.env import MODES
from tasks import approvals, service
from tasks.conf import conf
from tasks.models import ApiToken, Approval, Task
from tasks.writer import writer
from tests.support.agui import Post, Visit, answer
from tests.support.people import bearer
from tests.support.runs import House, make_house

pytestmark = pytest.mark.django_db(transaction=True)

WRITE = ScriptedCall(name="write_file", arguments={"path": "out.md", "content": "# R\n"})
OTHER = ScriptedCall(name="write_file", arguments={"path": "other.md", "content": "# O\n"})
ASK = ScriptedCall(name="ask_user", arguments={"question": "Which year?"})
DONE = Turn(text="Done.")


@pytest.fixture
def house(tmp_path: Path) -> House:
    return make_house(tmp_path / "desk")


async def asked(post: Post, thread: str = "t", run: str = "r1") -> Visit:
    """Up to the interrupt that ends the first run."""
    visit = await post(thread, run, "Write it down").end()
    assert visit.rules.outcome["type"] == "interrupt", visit.rules.types
    return visit


async def test_a_run_stops_with_what_the_card_shows(house: House, post: Post) -> None:
    async with house.runner(Turn(text="I will write.", calls=(WRITE,)), DONE):
        visit = await asked(post)

    (question,) = visit.rules.interrupts
    approval = await Approval.objects.aget()
    assert not (house.folder / "out.md").exists()
    assert question["id"] == str(approval.pk)
    assert question["reason"] == "tool_call"
    assert visit.rules.calls[question["toolCallId"]] == "write_file"
    assert json.loads(visit.rules.texts[question["toolCallId"]]) == WRITE.arguments
    card = question["metadata"]["pilothouse"]
    assert card["arguments"] == WRITE.arguments
    assert "+# R" in card["diff"]
    assert card["arguments_digest"] == approval.arguments_digest
    assert question["expiresAt"]
    validate({"approved": True, "editedArgs": {}}, question["responseSchema"])


async def test_yes_runs_the_call_and_goes_on(house: House, post: Post) -> None:
    async with house.runner(Turn(calls=(WRITE,)), DONE):
        first = await asked(post)
        (question,) = first.rules.interrupts
        second = await post("t", "r2", resume=[answer(question, approved=True)]).end()
        again = [await post("t", "r1", "Write it down").end() for _ in range(2)]
        later = await post("t", "r2", resume=[answer(question, approved=True)]).end()

    assert second.rules.outcome == {"type": "success"}
    assert second.rules.calls == {}, "a call is not made again"
    assert list(second.rules.results) == [question["toolCallId"]]
    assert (house.folder / "out.md").read_text() == "# R\n"
    for visit in again:  # what a run said stays what it said
        assert visit.rules.interrupts == [question]
    assert later.rules.results == second.rules.results
    assert later.rules.events[-1] == second.rules.events[-1]
    assert await Task.objects.acount() == 1


async def test_no_is_told_to_the_model(house: House, post: Post) -> None:
    async with house.runner(Turn(calls=(WRITE,)), DONE):
        (question,) = (await asked(post)).rules.interrupts
        said = answer(question, approved=False, comment="Not there.")
        second = await post("t", "r2", resume=[said]).end()

    assert second.rules.outcome == {"type": "success"}
    assert "Not there." in second.rules.results[question["toolCallId"]]["content"]
    assert not (house.folder / "out.md").exists()


async def test_what_nobody_answers_counts_as_no(house: House, post: Post) -> None:
    async with house.runner(Turn(calls=(WRITE,)), DONE):
        (question,) = (await asked(post)).rules.interrupts
        gone = {"interruptId": question["id"], "status": "cancelled"}
        second = await post("t", "r2", resume=[gone]).end()

    assert second.rules.outcome == {"type": "success"}
    assert (await Approval.objects.aget()).status == "rejected"
    assert not (house.folder / "out.md").exists()


async def test_edited_arguments_are_judged_and_then_used(house: House, post: Post) -> None:
    async with house.runner(Turn(calls=(WRITE,)), DONE):
        (question,) = (await asked(post)).rules.interrupts
        outside = answer(question, approved=True, editedArgs={"path": "../x", "content": "x"})
        refused = await post("t", "r2", resume=[outside]).end()
        assert refused.status == 400
        assert (await Approval.objects.aget()).status == "pending"
        edited = answer(question, approved=True, editedArgs={"path": "b.md", "content": "x"})
        second = await post("t", "r2", resume=[edited]).end()

    assert second.rules.outcome == {"type": "success"}
    assert (house.folder / "b.md").read_text() == "x"
    assert not (house.folder / "out.md").exists()


async def test_a_question_is_answered_in_words(house: House, post: Post) -> None:
    async with house.runner(Turn(calls=(ASK,)), DONE):
        (question,) = (await asked(post)).rules.interrupts
        assert question["reason"] == "input_required"
        assert question["message"] == "Which year?"
        validate({"answer": "2026"}, question["responseSchema"])
        second = await post("t", "r2", resume=[answer(question, answer="2026")]).end()

    assert "2026" in second.rules.results[question["toolCallId"]]["content"]


async def test_what_is_left_open_is_asked_again(house: House, post: Post) -> None:
    async with house.runner(Turn(calls=(WRITE, OTHER)), DONE):
        one, two = (await asked(post)).rules.interrupts
        half = await post("t", "r2", resume=[answer(one, approved=True)]).end()
        assert half.rules.interrupts == [two]
        assert not (house.folder / "out.md").exists()
        rest = await post("t", "r3", resume=[answer(two, approved=False)]).end()
        again = await post("t", "r2", resume=[answer(one, approved=True)]).end()

    assert rest.rules.outcome == {"type": "success"}
    assert set(rest.rules.results) == {one["toolCallId"], two["toolCallId"]}
    assert (house.folder / "out.md").exists()
    assert not (house.folder / "other.md").exists()
    assert again.rules.interrupts == [two]


async def test_who_comes_too_late_sees_what_was_decided(house: House, post: Post) -> None:
    async with house.runner(Turn(calls=(WRITE,)), DONE):
        (question,) = (await asked(post)).rules.interrupts
        await house.reply(question["id"], "reject")
        second = await post("t", "r2", resume=[answer(question, approved=True)]).end()

    (refused,) = second.rules.custom("answer_refused")
    assert (refused["interruptId"], refused["code"]) == (question["id"], "already_resolved")
    assert second.rules.outcome == {"type": "success"}
    assert list(second.rules.results) == [question["toolCallId"]]
    assert not (house.folder / "out.md").exists()


async def test_a_changed_target_is_asked_about_anew(house: House, post: Post) -> None:
    async with house.runner(Turn(calls=(WRITE,)), DONE):
        (question,) = (await asked(post)).rules.interrupts
        (house.folder / "out.md").write_text("somebody else's")
        second = await post("t", "r2", resume=[answer(question, approved=True)]).end()
        (refused,) = second.rules.custom("answer_refused")
        (anew,) = second.rules.interrupts
        assert refused["code"] == "stale"
        assert anew["id"] != question["id"]
        assert anew["toolCallId"] == question["toolCallId"]
        assert "-somebody else's" in anew["metadata"]["pilothouse"]["diff"]
        third = await post("t", "r3", resume=[answer(anew, approved=True)]).end()

    assert third.rules.outcome == {"type": "success"}
    assert (house.folder / "out.md").read_text() == "# R\n"


async def test_a_goal_does_not_answer(house: House, post: Post) -> None:
    async with house.runner(Turn(calls=(WRITE,)), DONE):
        await asked(post)
        busy = await post("t", "r2", "Just go on").end()

    assert (busy.status, busy.error["code"]) == (409, "session_busy")
    assert (await Approval.objects.aget()).status == "pending"


async def test_a_cancel_while_it_waits_ends_the_next_run(house: House, post: Post) -> None:
    async with house.runner(Turn(calls=(WRITE,)), DONE):
        (question,) = (await asked(post)).rules.interrupts
        await service.cancel((await Task.objects.aget()).pk, house.alice.pk)
        second = await post("t", "r2", resume=[answer(question, approved=True)]).end()

    assert second.rules.outcome == {"type": "cancelled"}
    assert list(second.rules.results) == [question["toolCallId"]]


async def test_an_answer_needs_the_scope_and_the_right(house: House, post: Post) -> None:
    writes = await sync_to_async(bearer)(house.alice, scopes=["read", "write"])
    async with house.runner(Turn(calls=(WRITE,)), DONE):
        (question,) = (await asked(post)).rules.interrupts
        said = [answer(question, approved=True)]
        refused = await post("t", "r2", resume=said, headers=writes).end()
        assert (refused.status, refused.error["code"]) == (403, "scope")
        unknown = await post("another", "r2", resume=said).end()
        assert unknown.status == 404
        await ApiToken.objects.all().adelete()
        gone = await post("t", "r2", resume=said).end()
        assert gone.status == 401

    assert (await Approval.objects.aget()).status == "pending"


async def test_an_answer_that_makes_no_sense_decides_nothing(house: House, post: Post) -> None:
    async with house.runner(Turn(calls=(WRITE,)), DONE):
        (question,) = (await asked(post)).rules.interrupts
        entry = {"interruptId": question["id"], "status": "resolved"}
        for payload in ({}, {"approved": "yes"}, {"approve": True}, "yes", [True]):
            nonsense = [{**entry, "payload": payload}]
            refused = await post("t", "r2", resume=nonsense).end()
            assert (refused.status, refused.error["code"]) == (400, "invalid"), payload
        refused = await post("t", "r2", resume=[entry]).end()

    assert (refused.status, refused.error["code"]) == (400, "invalid")
    assert (await Approval.objects.aget()).status == "pending"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call", [WRITE, ASK], ids=["write", "question"])
async def test_with_nobody_there_it_ends_or_is_in_the_inbox(
    house: House, post: Post, settings: Any, mode: str, call: ScriptedCall
) -> None:
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, mode=mode)
    # Answering a question changes nothing: it may be asked where only reading is allowed.
    asks = mode == "ask" or (mode == "read_only" and call is ASK)
    async with house.runner(Turn(calls=(call,)), DONE) as runner:
        visit = await post("t", "r", "Do it").end()
        assert visit.rules.outcome["type"] == ("interrupt" if asks else "success")
        pending = [str(row.pk) async for row in Approval.objects.filter(status="pending")]
        assert pending == ([each["id"] for each in visit.rules.interrupts] if asks else [])
        if asks:
            late = timezone.now() + timedelta(seconds=conf().approval_ttl_seconds + 1)
            await writer.run(partial(approvals.expire_due, late))
            runner.wake()
            (question,) = visit.rules.interrupts
            said = answer(question, **({"answer": "x"} if call is ASK else {"approved": True}))
            after = await post("t", "r2", resume=[said]).end()
            assert [each["code"] for each in after.rules.custom("answer_refused")] == ["expired"]
            assert after.rules.outcome == {"type": "success"}
    assert not (house.folder / "out.md").exists()
    assert (await Task.objects.aget()).status == "completed"
