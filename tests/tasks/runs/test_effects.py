"""An effect begins only after the log says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.providers.scripted import ScriptedCall, Turn
from tests.support.runs import House
from tests.support.turns import DONE
from tests.support.waiting import happened

pytestmark = pytest.mark.django_db(transaction=True)

COMMAND = "touch begun; until [ -e go ]; do sleep 0.01; done"


async def test_a_command_that_runs_is_in_the_log(house: House, settings: Any) -> None:
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, enable_shell=True, shell_unsandboxed=True)
    call = ScriptedCall(name="run_command", arguments={"command": COMMAND})
    async with house.runner(Turn(calls=(call,)), DONE):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
        await house.reply((await house.pending(created.task_id)).pk)
        await happened((house.folder / "begun").exists)
        assert (await house.types(created.task_id))[-1] == "tool_call_started"
        (house.folder / "go").touch()
        await house.until(created.task_id, "completed")
