"""The box: what comes out of it whatever a tool does."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from agent.errors import PathRefused, TargetChanged, ToolFailed
from agent.fitting import MAX_CONTENT, MAX_DETAILS, bound
from agent.toolbox import (
    Preview,
    Tool,
    Toolbox,
    ToolContext,
    ToolResult,
)
from agent.workspace import Workspace

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1},
        "depth": {"type": "integer", "maximum": 8},
        "options": {"type": "object", "properties": {"case": {"type": "boolean"}}},
    },
    "required": ["path"],
    "additionalProperties": False,
}
ANY = {"type": "object"}


def tool(run: Any, **changes: Any) -> Tool:
    values: dict[str, Any] = {
        "name": "work",
        "description": "Works.",
        "parameters": ANY,
        "capability": "file:read",
        "run": run,
    }
    return Tool(**(values | changes))


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    return ToolContext(workspace=Workspace(tmp_path))


def fine(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    return ToolResult(ok=True, content=f"did {arguments}")


async def run(each: Tool, context: ToolContext, **arguments: Any) -> ToolResult:
    box = Toolbox([each])
    try:
        return await box.run(each.name, arguments, context)
    finally:
        box.close()


async def test_it_runs_plain_tools_in_threads_and_coroutine_tools_on_the_loop(context):
    places = []

    def plain(arguments, context):
        places.append(threading.current_thread())
        return ToolResult(ok=True, content="plain", details={"a": 1})

    async def native(arguments, context):
        places.append(threading.current_thread())
        return ToolResult(ok=True, content="native")

    box = Toolbox([tool(plain, name="plain"), tool(native, name="native")])
    assert box.names == ("plain", "native")
    assert [each.name for each in box.tools] == ["plain", "native"]
    assert box.get("plain") is box.tools[0]
    assert box.get("other") is None
    assert await box.run("plain", {}, context) == ToolResult(
        ok=True, content="plain", details={"a": 1}
    )
    assert (await box.run("native", {}, context)).content == "native"
    assert places[0].name.startswith("tool")
    assert places[1] is threading.current_thread()
    box.close()


async def test_a_plain_function_that_returns_an_awaitable_is_awaited(context):
    async def native(arguments: Any, context: Any) -> ToolResult:
        return ToolResult(ok=True, content="awaited")

    result = await run(tool(lambda arguments, context: native(arguments, context)), context)
    assert result.content == "awaited"


async def test_context_variables_reach_the_thread(context):
    task_id = contextvars.ContextVar("task_id", default="none")
    task_id.set("T1")
    seen = await run(
        tool(lambda arguments, context: ToolResult(ok=True, content=task_id.get())), context
    )
    assert seen.content == "T1"


# ── arguments ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "'path' is a required property"),
        ({"path": 5}, '`path` must be of type "string"'),
        ({"path": ""}, "`path` does not satisfy minLength 1"),
        ({"path": "x", "extra": 1}, "'extra' was unexpected"),
        ({"path": "x", "depth": 9}, "`depth` does not satisfy maximum 8"),
        ({"path": "x", "options": {"case": "no"}}, '`options.case` must be of type "boolean"'),
    ],
)
async def test_arguments_that_do_not_fit_are_explained_and_nothing_runs(context, arguments, said):
    ran = []
    box = Toolbox([tool(lambda *call: ran.append(call), parameters=SCHEMA)])
    problem = box.problem("work", arguments)
    assert problem is not None
    assert said in problem
    result = await box.run("work", arguments, context)
    assert not result.ok
    assert result.content == problem
    with pytest.raises(ToolFailed):
        await box.preview("work", arguments, context)
    assert ran == []


def test_arguments_that_fit_have_no_problem():
    box = Toolbox([tool(fine, parameters=SCHEMA)])
    assert box.problem("work", {"path": "a", "depth": 3}) is None


def test_a_problem_never_repeats_a_long_value():
    box = Toolbox([tool(fine, parameters=SCHEMA)])
    huge = "x" * 1_000_000
    for arguments in ({"path": [huge]}, {huge: 1}, {"path": "a", "options": huge}):
        problem = box.problem("work", arguments)
        assert problem is not None
        assert len(problem) < 1500


async def test_an_unknown_tool_names_the_ones_there_are(context):
    box = Toolbox([tool(fine, name="read_file"), tool(fine, name="write_file")])
    result = await box.run("reed_file", {}, context)
    assert not result.ok
    assert "'reed_file'" in result.content
    assert "read_file, write_file" in result.content


def test_a_schema_is_checked_when_the_box_is_packed_and_fetches_nothing():
    with pytest.raises(ValueError, match="same name"):
        Toolbox([tool(fine), tool(fine)])
    with pytest.raises(Exception, match="not valid"):
        Toolbox([tool(fine, parameters={"type": "nonsense"})])
    box = Toolbox([tool(fine, parameters={"$ref": "http://127.0.0.1:9/schema.json"})])
    assert "cannot be called" in (box.problem("work", {}) or "")


# ── failures ──────────────────────────────────────────────────────────────────────────────────


async def test_a_failure_that_speaks_is_said_to_the_model(context, caplog):
    for error in (ToolFailed("There is no such sheet."), PathRefused("Refused by policy.")):

        def fail(arguments, context, error=error):
            raise error

        assert await run(tool(fail), context) == ToolResult(ok=False, content=str(error))
    assert not caplog.records


@pytest.mark.parametrize(
    "error",
    [
        ValueError("secret /srv/x"),
        StopIteration("x"),
        SystemExit(3),
        KeyError("k"),
        RecursionError(),
    ],
)
async def test_an_unexpected_failure_is_logged_whole_and_told_without_details(
    context, caplog, error
):
    def fail(arguments, context):
        raise error

    result = await run(tool(fail), context)
    assert not result.ok
    assert "failed unexpectedly" in result.content
    assert "/srv" not in result.content
    assert "Traceback" not in result.content
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert caplog.records[0].exc_info


async def test_an_error_of_the_system_is_told_without_the_path(context):
    result = await run(
        tool(lambda arguments, context: (context.workspace.root / "gone").read_text()), context
    )
    assert result.content == "work failed: No such file or directory."


async def test_a_server_path_in_a_message_is_hidden(context):
    def fail(arguments, context):
        raise ToolFailed(f"cannot parse {context.workspace.root}/a.pdf")

    result = await run(tool(fail), context)
    assert result.content == "cannot parse (workspace)/a.pdf"


async def test_a_changed_target_comes_out(context):
    def fail(arguments, context):
        raise TargetChanged("changed")

    with pytest.raises(TargetChanged):
        await run(tool(fail), context)


async def test_something_else_than_a_result_is_a_failure(context):
    result = await run(tool(lambda arguments, context: "text"), context)
    assert not result.ok
    assert "TypeError" in result.content


# ── time ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_tool_that_overruns_its_time_is_given_up(context):
    go = threading.Event()

    def stuck(arguments, context):
        go.wait(10)
        return ToolResult(ok=True, content="late")

    async def asleep(arguments, context):
        await asyncio.sleep(10)
        return ToolResult(ok=True, content="late")

    for function in (stuck, asleep):
        result = await run(tool(function, timeout=0.05), context)
        assert not result.ok
        assert "did not finish within 0.05 seconds" in result.content
    go.set()


async def test_stuck_threads_are_bounded_and_do_not_stop_coroutine_tools(context):
    go = threading.Event()
    started = []

    def stuck(arguments, context):
        started.append(1)
        go.wait(10)
        return ToolResult(ok=True, content="late")

    async def native(arguments, context):
        return ToolResult(ok=True, content="native")

    tools = [tool(stuck, timeout=0.1), tool(native, name="native")]
    box = Toolbox(tools, threads=2)
    results = await asyncio.gather(*(box.run("work", {}, context) for _ in range(5)))
    assert not any(result.ok for result in results)
    assert len(started) == 2
    assert (await box.run("native", {}, context)).ok
    go.set()
    box.close()


async def test_a_timeout_of_the_tools_own_is_an_ordinary_failure(context):
    def fail(arguments, context):
        raise TimeoutError

    result = await run(tool(fail), context)
    assert "TimeoutError" in result.content


async def test_cancelling_comes_out_at_once(context):
    go = threading.Event()
    begun = threading.Event()

    def stuck(arguments, context):
        begun.set()
        go.wait(10)

    box = Toolbox([tool(stuck)])
    call = asyncio.create_task(box.run("work", {}, context))
    await asyncio.to_thread(begun.wait, 10)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    go.set()
    box.close()


async def test_a_forgotten_box_leaves_no_thread(context):
    threads: list[threading.Thread] = []

    def noticed(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        threads.append(threading.current_thread())
        return ToolResult(ok=True, content="fine")

    box = Toolbox([tool(noticed)])
    await box.run("work", {}, context)
    assert threads
    del box
    gc.collect()
    for each in threads:
        await asyncio.to_thread(each.join, 10)
    assert not any(each.is_alive() for each in threads)


# ── size ──────────────────────────────────────────────────────────────────────────────────────


async def test_output_is_cut_to_head_and_tail_and_says_how_to_go_on(context):
    text = "begin " + "x" * 2_000_000 + " end"
    result = await run(tool(lambda arguments, context: ToolResult(ok=True, content=text)), context)
    assert len(result.content) <= MAX_CONTENT
    assert result.content.startswith("begin ")
    assert result.content.endswith(" end")
    assert "2,000,010 characters in all" in result.content
    assert "Ask for less" in result.content


@pytest.mark.parametrize("size", [0, 1, MAX_CONTENT, MAX_CONTENT + 1, MAX_CONTENT * 3])
def test_bounded_text_is_whole_or_within_the_limit(size):
    text = "y" * size
    assert bound(text) == text if size <= MAX_CONTENT else len(bound(text)) <= MAX_CONTENT


async def test_text_that_no_store_accepts_is_cleaned(context):
    result = await run(
        tool(
            lambda arguments, context: ToolResult(
                ok=True, content="a\x00b\udc80", details={"k\x00": ["\ud800"]}
            )
        ),
        context,
    )
    assert result.content == "a\ufffdb\ufffd"
    assert result.details == {"k\ufffd": ["\ufffd"]}


def deep() -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(200):
        value = {"deeper": value}
    return value


@pytest.mark.parametrize("details", [{"nan": float("nan")}, deep(), {("tuple",): 1}])
async def test_details_that_are_not_json_do_not_hide_the_result(context, details):
    result = await run(
        tool(lambda arguments, context: ToolResult(ok=True, content="done", details=details)),
        context,
    )
    assert result.ok
    assert "dropped" in result.details["problem"]


async def test_details_keep_what_is_small_when_they_are_too_big(context):
    details = {"artifact": "a.txt", "bytes": 5, "rows": ["x" * 100] * 10_000, "where": Path("b")}
    details |= {f"key{number}": "v" * 1000 for number in range(100)}
    result = await run(
        tool(lambda arguments, context: ToolResult(ok=True, content="", details=details)), context
    )
    assert result.details["artifact"] == "a.txt"
    assert result.details["where"] == "b"
    assert result.details["truncated"] is True
    assert "rows" not in result.details
    assert len(json.dumps(result.details)) <= MAX_DETAILS


# ── previews ──────────────────────────────────────────────────────────────────────────────────


async def test_a_preview_is_made_in_a_thread_cleaned_and_bounded(context):
    names = []

    def preview(arguments: Any, context: Any) -> Preview:
        names.append(threading.current_thread().name)
        return Preview(diff="+\x00" + "x" * 1_000_000, target_digest="d", summary="Do\x00 it")

    box = Toolbox([tool(fine, preview=preview)])
    seen = await box.preview("work", {}, context)
    assert seen.summary == "Do\ufffd it"
    assert seen.target_digest == "d"
    assert seen.diff.startswith("+\ufffd")
    assert len(seen.diff) < 300_000
    assert names[0].startswith("tool")
    box.close()


async def test_a_tool_without_preview_is_named(context):
    box = Toolbox([tool(fine)])
    assert await box.preview("work", {}, context) == Preview(
        diff="", target_digest="", summary="Call work"
    )
    with pytest.raises(ToolFailed, match="no tool"):
        await box.preview("other", {}, context)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (PathRefused("policy"), PathRefused),
        (ToolFailed("no"), ToolFailed),
        (ValueError("bug"), ToolFailed),
        (TargetChanged("changed"), ToolFailed),
    ],
)
async def test_a_preview_fails_only_in_two_ways(context, error, raised):
    def preview(arguments: Any, context: Any) -> Preview:
        raise error

    box = Toolbox([tool(fine, preview=preview)])
    with pytest.raises(raised):
        await box.preview("work", {}, context)
    box.close()


async def test_a_tool_that_never_got_a_thread_is_not_told_as_perhaps_done(tmp_path: Path) -> None:
    release = threading.Event()

    def wait(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        release.wait(10)
        return ToolResult(ok=True, content="done")

    schema = {"type": "object", "properties": {}}
    tool = Tool(
        name="wait", description="", parameters=schema, capability="x:write", run=wait, timeout=0.1
    )
    box = Toolbox([tool], threads=1)
    context = ToolContext(workspace=Workspace(tmp_path))
    first, second = await asyncio.gather(box.run("wait", {}, context), box.run("wait", {}, context))
    release.set()
    box.close()
    assert "not known" in first.content
    assert "Nothing was done" in second.content
