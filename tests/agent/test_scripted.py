"""The scripted provider, its strictness, and the demo model on the real demo files."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.context import fit
from agent.errors import ProviderUnavailable
from agent.events import AssistantDelta, Delta, ReasoningDelta, ToolCallDelta
from agent.messages import (
    AssistantMessage,
    Message,
    Reply,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from agent.providers import ModelRequest, Provider
from agent.providers.demo import REPORT_PATH, demo_provider
from agent.providers.history import HistoryInvalid, check_history
from agent.providers.scripted import ScriptedCall, ScriptedProvider, ScriptError, Turn
from agent.toolbox import Toolbox, ToolContext
from agent.tools import builtin_tools
from agent.workspace import Workspace

DEMO = Path(__file__).resolve().parents[2] / "demo" / "workspace"
GO = UserMessage(text="Go")


def request(*messages: Message) -> ModelRequest:
    numbers = itertools.count(1)
    return ModelRequest(
        system="You are careful.",
        messages=messages or (GO,),
        tools=(),
        step=1,
        new_block_id=lambda: f"b{next(numbers)}",
    )


async def ask(provider: Provider, *messages: Message) -> tuple[list[Delta], Reply]:
    items = [item async for item in provider.stream(request(*messages))]
    assert isinstance(items[-1], Reply)
    return [item for item in items if not isinstance(item, Reply)], items[-1]


# ── playing ───────────────────────────────────────────────────────────────────────────────────


async def test_a_turn_is_deltas_and_a_reply_that_add_up():
    call = ScriptedCall(name="read_file", arguments={"path": "a"})
    provider = ScriptedProvider([Turn(reasoning="hm", text="Hello.", calls=(call,), piece=4)])
    deltas, reply = await ask(provider)
    assert deltas == [
        ReasoningDelta(step=1, block_id="b1", offset=0, delta="hm"),
        AssistantDelta(step=1, block_id="b2", offset=0, delta="Hell"),
        AssistantDelta(step=1, block_id="b2", offset=4, delta="o."),
        *(
            ToolCallDelta(step=1, block_id="b3", index=0, name="read_file", offset=i, delta=text)
            for i, text in ((0, '{"pa'), (4, 'th":'), (8, ' "a"'), (12, "}"))
        ),
    ]
    assert [type(block).__name__ for block in reply.blocks] == ["Reasoning", "Text", "ToolCall"]
    assert reply.finish_reason == "tool_calls"
    assert reply.usage.estimated
    provider.assert_done()


async def test_turns_come_in_order_and_may_look_at_the_request():
    usage = Usage(input_tokens=1, output_tokens=2)
    provider = ScriptedProvider(
        [Turn(text="one", usage=usage), lambda asked: Turn(text=f"{len(asked.messages)} messages")]
    )
    assert (await ask(provider))[1].usage == usage
    _, reply = await ask(provider)
    assert AssistantMessage(blocks=reply.blocks).text == "1 messages"
    assert len(provider.requests) == 2


async def test_a_failing_turn_raises_after_its_deltas():
    provider = ScriptedProvider([Turn(text="half", error=ProviderUnavailable("busy"))])
    stream = provider.stream(request())
    assert isinstance(await anext(stream), AssistantDelta)
    with pytest.raises(ProviderUnavailable, match="busy"):
        await anext(stream)


async def test_a_hanging_turn_can_be_left():
    stream = ScriptedProvider([Turn(text="half", hang=True)]).stream(request())
    await anext(stream)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(stream), 0.02)


async def test_a_broken_call_is_played_as_one():
    provider = ScriptedProvider([Turn(calls=(ScriptedCall(name="f", arguments=None, raw='{"a'),))])
    _, reply = await ask(provider)
    (call,) = AssistantMessage(blocks=reply.blocks).calls
    assert (call.arguments, call.raw_arguments) == (None, '{"a')
    assert call.problem


async def test_missing_and_unused_turns_are_told():
    provider = ScriptedProvider([Turn(text="one")])
    with pytest.raises(ScriptError, match="1 of 1"):
        provider.assert_done()
    await ask(provider)
    with pytest.raises(ScriptError, match="asked for another"):
        await ask(provider)


async def test_an_invalid_history_is_refused_unless_told_otherwise():
    broken = (GO, assistant(call("x")))
    with pytest.raises(HistoryInvalid):
        await ask(ScriptedProvider([Turn(text="a")]), *broken)
    await ask(ScriptedProvider([Turn(text="a")], strict=False), *broken)


# ── what strict providers demand ──────────────────────────────────────────────────────────────


def call(tool_call_id: str, **changes: Any) -> ToolCall:
    fields: dict[str, Any] = {"block_id": "b", "index": 0, "name": "f", "arguments": {}}
    return ToolCall(tool_call_id=tool_call_id, **(fields | changes))


def assistant(*calls: ToolCall, text: str = "") -> AssistantMessage:
    texts = (Text(block_id="t", text=text),) if text else ()
    return AssistantMessage(blocks=(*texts, *calls))


def result(tool_call_id: str, content: str = "ok", name: str = "f") -> ToolMessage:
    return ToolMessage(tool_call_id=tool_call_id, name=name, content=content)


@pytest.mark.parametrize(
    "messages",
    [
        [GO],
        [GO, assistant(call("x"), call("y"), text="I look."), result("x"), result("y")],
        [GO, assistant(call("x")), result("x"), GO],
        [
            GO,
            assistant(text="Hi."),
            GO,
            assistant(call("x", arguments=None, problem="no")),
            result("x"),
        ],
    ],
)
def test_valid_histories_pass(messages):
    check_history(messages)


@pytest.mark.parametrize(
    ("messages", "rule"),
    [
        ([], "empty"),
        ([assistant(text="Hi."), GO], "first message"),
        ([GO, assistant(text="Hi.")], "last message"),
        ([GO, assistant(call("x")), GO], "without a result"),
        ([GO, assistant(call("x"), call("y")), result("x")], "no results"),
        ([GO, assistant(call("x"), call("y")), result("y"), result("x")], "stands where"),
        ([GO, assistant(call("x")), result("x"), result("x")], "without an open call"),
        ([GO, result("x")], "without an open call"),
        ([GO, assistant(call("x")), result("x"), assistant(call("x")), result("x")], "used twice"),
        ([GO, assistant(call("")), result("")], "without id"),
        ([GO, assistant(call("x")), result("x", name="g")], "is named"),
        ([GO, AssistantMessage(blocks=()), GO], "without blocks"),
        ([GO, assistant(call("x", arguments=None)), result("x")], "without a problem"),
        ([GO, assistant(call("x")), result("x", "\ud83d")], "UTF-8"),
        ([UserMessage(text="\x00")], "NUL"),
    ],
)
def test_invalid_histories_are_named(messages, rule):
    with pytest.raises(HistoryInvalid, match=rule):
        check_history(messages)


# ── the demo model ────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DEMO, tmp_path / "demo"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.providers.demo.PIECE_SECONDS", 0.0)  # the pace is for people


class Stage:
    """The loop in small: runs what the model asks for, in a real workspace."""

    def __init__(self, folder: Path) -> None:
        self.toolbox = Toolbox(builtin_tools())
        self.context = ToolContext(workspace=Workspace(folder))
        self.messages: list[Message] = []
        self.rejection = ""
        self.steps = 0

    async def run(self, goal: str) -> str:
        """The final answer."""
        self.messages.append(UserMessage(text=goal))
        for self.steps in range(1, 8):
            check_history(self.messages)
            # A provider of its own for every step: it must not remember anything.
            _, reply = await ask(demo_provider(), *fit(self.messages))
            message = self._named(AssistantMessage(blocks=reply.blocks))
            self.messages.append(message)
            if not message.calls:
                return message.text
            for asked in message.calls:
                content = await self._outcome(asked)
                self.messages.append(result(asked.tool_call_id, content, asked.name))
        raise AssertionError("the demo does not end")

    def _named(self, message: AssistantMessage) -> AssistantMessage:
        calls = (
            ToolCall(
                block_id=asked.block_id,
                tool_call_id=f"c{len(self.messages)}.{asked.index}",
                index=asked.index,
                name=asked.name,
                arguments=asked.arguments,
            )
            for asked in message.calls
        )
        texts = (block for block in message.blocks if not isinstance(block, ToolCall))
        return AssistantMessage(blocks=(*texts, *calls))

    async def _outcome(self, asked: ToolCall) -> str:
        if asked.name == "write_file" and self.rejection:
            return self.rejection
        return (await self.toolbox.run(asked.name, asked.arguments or {}, self.context)).content


@pytest.fixture
async def stage(folder: Path) -> AsyncIterator[Stage]:
    stage = Stage(folder)
    yield stage
    stage.toolbox.close()


async def test_the_demo_writes_a_report_computed_from_the_files(stage, folder):
    answer = await stage.run("Compare the quotes")
    written = (folder / REPORT_PATH).read_text()
    assert stage.steps == 4
    for said in (answer, written):
        assert "Ostermoor Paper" in said
        assert "2,609.40 EUR" in said
        assert "40.00 EUR" in said  # eight lamps, five euro too much each
    assert REPORT_PATH in answer
    assert "does not quote HDMI cable 3 m" in written
    assert "delivers too late" in written


async def test_other_numbers_make_another_report(stage, folder):
    quote = folder / "quotes" / "ostermoor-paper.csv"
    quote.write_text(quote.read_text().replace("195.00", "295.00"))
    assert "**Tannwald Office**" in await stage.run("Compare the quotes")


async def test_a_follow_up_plays_the_part_again(stage):
    await stage.run("Compare the quotes")
    assert "reports/supplier-report-2.md" in await stage.run("And once more")
    assert stage.steps == 4


async def test_a_rejection_is_told_with_its_comment(stage, folder):
    stage.rejection = "Not run: rejected by ines. Their comment: Not into this folder"
    answer = await stage.run("Compare the quotes")
    assert "not** written" in answer
    assert "Not into this folder" in answer
    assert not (folder / REPORT_PATH).exists()


async def test_a_strange_workspace_is_left_alone(tmp_path):
    (tmp_path / "a.txt").write_text("AAA")
    stage = Stage(tmp_path)
    assert "scripted demo model" in await stage.run("Compare the quotes")
    stage.toolbox.close()


async def test_quotes_that_cannot_be_read_are_said_so(tmp_path):
    (tmp_path / "quotes").mkdir()
    (tmp_path / "quotes" / "a.csv").write_text("nothing,of,use\n1,2,3\n")
    stage = Stage(tmp_path)
    assert "could not read any quote" in await stage.run("Compare the quotes")
    stage.toolbox.close()
