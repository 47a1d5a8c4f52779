"""What a step of the tool loop costs on the event loop: calls of Python functions, nothing timed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent.budget import Limits
from agent.events import AgentCompleted, AgentEvent, TaskCreated, ToolCallFinished
from agent.judging import Judge
from agent.loop import run
from agent.policy import Policy
from agent.providers import Model
from agent.providers.openai import OpenAIProvider
from agent.toolbox import Toolbox
from agent.tools import builtin_tools
from agent.transcript import Transcript
from agent.workspace import Workspace
from tests.support.counting import python_calls

USAGE = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}


def events(delta: dict[str, Any], finish: str) -> bytes:
    """A reply as servers stream it: what it says, why it ends, what it cost."""
    choices = [
        [{"index": 0, "delta": delta, "finish_reason": None}],
        [{"index": 0, "delta": {}, "finish_reason": finish}],
    ]
    chunks = [*[{"choices": each} for each in choices], {"choices": [], "usage": USAGE}]
    return b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks)


class Script:
    """A model that asks for so many reads, one in each reply, and then answers; as a client whose
    answers are there at once."""

    status = 200
    headers: dict[str, str] = {}

    def __init__(self, reads: int) -> None:
        self._replies = self._all(reads)
        self._reply = b""

    def _all(self, reads: int) -> Iterator[bytes]:
        for number in range(reads):
            function = {"name": "read_file", "arguments": '{"path": "a.txt"}'}
            call = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
            yield events({"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls")
        yield events({"role": "assistant", "content": "It says AAA."}, "stop")

    async def post(self, *request: object) -> Script:
        self._reply = next(self._replies) + b"data: [DONE]\n\n"
        return self

    def take(self) -> bytes:
        return b""

    async def read(self) -> bytes:
        read, self._reply = self._reply, b""
        return read

    def at_end(self) -> bool:
        return not self._reply

    def close(self) -> None: ...

    async def aclose(self) -> None: ...


async def calls_of(folder: Path, reads: int) -> int:
    """A whole run of so many reads and an answer."""
    toolbox = Toolbox(builtin_tools())
    provider = OpenAIProvider(Script(reads), base_url="http://model.test/v1", model="m")
    kinds: list[type] = []

    async def hear(event: AgentEvent) -> None:
        kinds.append(type(event))

    engine = run(
        Transcript([TaskCreated(goal="Read it", session_id="s", trigger="api")]),
        [Model(provider=provider)],
        Judge(policy=Policy(), toolbox=toolbox, workspace=Workspace(folder)),
        Limits(max_steps=100),
        hear,
        system="You are a test.",
        repeat_limit=0,
    )
    with python_calls() as names:
        await engine
    toolbox.close()
    assert kinds.count(ToolCallFinished) == reads
    assert kinds[-1] is AgentCompleted
    return len(names)


async def test_a_step_costs_few_calls_and_no_more_behind_many_others(folder: Path) -> None:
    await calls_of(folder, 1)  # what is made once in a process
    few, ten_more = await calls_of(folder, 2), await calls_of(folder, 12)
    many, then_ten_more = await calls_of(folder, 40), await calls_of(folder, 50)
    assert (ten_more - few) / 10 < 460
    assert (then_ten_more - many) / 10 < 460
