"""Under load runs read on in beats; what need not wait for one does not."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from agent.providers.scripted import Turn
from tasks.hub import hub
from tasks.runs import READS_AT_ONCE
from tests.support.runs import House
from tests.support.turns import DONE, READ
from tests.support.waiting import happened

pytestmark = pytest.mark.django_db(transaction=True)

NEVER = 1e9


def no_beat_comes() -> None:
    """The event loop always says that it is busy, and the next beat is decades away."""
    hub.attach(asyncio.get_running_loop(), NEVER, cpu=itertools.count(1e12, 1e12).__next__)
    hub._pace._interval = NEVER


async def test_short_replies_wait_for_no_beat(house: House) -> None:
    turns = [READ] * (READS_AT_ONCE + 1)
    async with house.runner(*turns, DONE):
        no_beat_comes()
        created = await house.ask()
        await house.until(created.task_id, "completed")


async def test_a_reply_that_comes_word_by_word_is_read_in_beats(house: House) -> None:
    words = Turn(text="Word by word. " * READS_AT_ONCE, piece=4)
    async with house.runner(words):
        no_beat_comes()
        created = await house.ask()
        await happened(lambda: hub._pace._resting)
        assert (await house.types(created.task_id))[-1] == "model_call_started"
        hub.detach()  # lets everybody go on
        await house.until(created.task_id, "completed")
