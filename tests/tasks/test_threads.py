"""AG-UI's names, with two processes that are asked at once; and where runs begin, on the log alone."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError

from tasks import threads
from tasks.commands import TaskRequest
from tasks.errors import Conflict
from tasks.models import AguiRun, AguiThread, Session, Task
from tasks.threads import Asked, Questions
from tasks.writer import Writer
from tests.support.runs import House, make_house

ROUNDS = 12


@pytest.fixture
def house(tmp_path: Path) -> House:
    return make_house(tmp_path / "desk")


@pytest.mark.django_db(transaction=True)
def test_two_processes_make_one_session_for_a_new_thread(house: House) -> None:
    """On a database whose writers do not wait for each other, the constraint is what decides."""
    writers = [Writer(), Writer()]
    request = TaskRequest(goal="Hi", owner_id=house.alice.pk, trigger="agui")

    def ask(writer: Writer, thread: str, run: str) -> bool:
        asked = Asked(owner_id=house.alice.pk, thread=thread, run=run, digest="d")
        for _ in range(3):
            try:
                writer.run_sync(partial(threads._begin, asked, request))
            except IntegrityError:
                continue
            except Conflict:  # the other one's task is there
                return False
            return True
        raise AssertionError("it was refused again and again")

    try:
        with ThreadPoolExecutor(4) as pool:
            for number in range(ROUNDS):
                runs = [f"{number}-{each}" for each in (0, 1)]
                jobs = [
                    pool.submit(ask, writer, f"t{number}", run)
                    for writer, run in zip(writers, runs, strict=True)
                ]
                assert sorted(job.result(60) for job in jobs) == [False, True]
    finally:
        for each in writers:
            each.stop()
    for model in (AguiThread, AguiRun, Session, Task):
        assert model.objects.count() == ROUNDS, model


# ── where a run stops ─────────────────────────────────────────────────────────────────────────


def required(approval: str) -> tuple[str, Mapping[str, Any]]:
    return "approval_required", {"approval_id": approval}


def resolved(approval: str, status: str = "approved") -> tuple[str, Mapping[str, Any]]:
    return "approval_resolved", {"approval_id": approval, "status": status}


def stops(*log: tuple[str, Mapping[str, Any]]) -> list[int]:
    """The places before which the run had stopped, and the end if it stands there."""
    questions, found = Questions(), []
    for place, (type_, payload) in enumerate(log):
        if questions.stops_before(type_, payload):
            found.append(place)
        questions.apply(type_, payload)
    return [*found, len(log)] if questions.stands else found


def test_several_questions_are_one_stop() -> None:
    assert stops(required("a"), required("b")) == [2]
    assert stops(required("a"), required("b"), resolved("a"), resolved("b")) == [2, 3]


def test_a_question_that_replaces_an_answered_one_belongs_to_its_stop() -> None:
    begun: tuple[str, Mapping[str, Any]] = ("task_started", {})
    log = [
        required("a"),
        resolved("a"),
        begun,
        required("b"),
        resolved("a", "stale"),
        required("c"),
    ]
    assert stops(*log) == [1, 6]


def test_a_question_that_is_replaced_before_its_answer_was_a_stop() -> None:
    assert stops(required("a"), resolved("a", "stale"), required("b")) == [1, 3]


def test_more_time_and_votes_are_no_new_stop_and_what_is_said_is_behind_it() -> None:
    later = ("approval_updated", {"approval_id": "a"})
    assert stops(required("a"), later) == [2]
    assert stops(required("a"), later, ("user_message", {}), resolved("a")) == [2, 3]
