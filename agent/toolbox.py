"""Tools: what one is, and the box that validates, runs and bounds them.

Whatever a tool does, out of the box comes a result that fits: JSON, storable text, bounded, without
a path of the server. Only TargetChanged (somebody has to be asked again), cancellation and bugs of
the box itself come out as exceptions.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from jsonschema import Draft202012Validator, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from agent.errors import PathRefused, TargetChanged, ToolFailed
from agent.fitting import bound, bound_details
from agent.landing import land
from agent.mcp.connections import Connections
from agent.messages import ToolDefinition
from agent.policy import Subject
from agent.schemas import quick
from agent.shelf import Shelf
from agent.text import clean, cut, size_of_text
from agent.waits import Limit
from agent.workspace import Workspace

MAX_DIFF = 256 * 1024
"""Characters of a preview's diff."""
NOT_A_DIFF = "──"
"""How evidence begins that is to be shown as it is."""
MAX_SENTENCES = 5
THREADS = 4
SCHEMAS = 256
"""Of tools, that are kept compiled: 6 KiB each as a rule, at most some hundred."""

_is_native = lru_cache(maxsize=256)(inspect.iscoroutinefunction)
logger = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ToolResult:
    """The two faces of an outcome."""

    ok: bool
    content: str
    """For the model."""
    details: dict[str, Any] = field(default_factory=dict)
    """For people and the audit trail; JSON. `artifact: <path>` names a file made for the person."""


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What a call would do, computed without doing it: the evidence of an approval."""

    diff: str
    """Unified diff for text, a summary of sizes and digests for anything else; what is not about a
    file begins with NOT_A_DIFF, so that nothing in it is read as one."""
    target_digest: str
    """Digest of what is there now; the call may only run while it still is."""
    summary: str = ""
    """One sentence for people: verb and object."""


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """What a running tool is given. Nothing else of the process is its business."""

    workspace: Workspace
    progress: Callable[[str, float | None, float | None], None] = lambda text, done, total: None
    """Tell people how far it is: text, done, total. May be called from any thread."""
    expected_target: str | None = None
    """The `target_digest` that was approved; a tool with an effect checks it last thing before."""
    answer: str = ""
    """What the person answered, for a tool that asks."""
    permits: Callable[[str], bool] = lambda path: True
    """Whether a tool that looks through many places may show this one (root-relative path)."""
    judged: tuple[str, ...] = ()
    """The paths that policy judged, links resolved: the call is about these, whatever its own
    spelling leads to by now."""
    shelf: Shelf | None = None
    """Where a tool keeps what files held before it changed them; None: nowhere."""
    call_id: str = ""
    """Of the call, for what is noted about it there."""
    connections: Connections | None = None
    """The run's own to MCP servers; None: nothing is called."""


@dataclass(frozen=True, kw_only=True)
class Reach:
    """What a call is about, for the rules of policy."""

    paths: tuple[str, ...] = ()
    """Links resolved: `Workspace.resolve`."""
    host: str = ""
    """Normalised."""
    commands: tuple[tuple[str, ...], ...] | None = ()
    """As in `agent.policy.Subject`."""
    exact: bool = False
    """The same."""


Given = TypeVar("Given", ToolContext, Workspace)
RunTool = Callable[[dict[str, Any], ToolContext], "ToolResult | Awaitable[ToolResult]"]
PreviewTool = Callable[[dict[str, Any], ToolContext], Preview]
ReachOf = Callable[[dict[str, Any], Workspace], Reach]


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One tool: data and functions, no base class."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema (2020-12) of the arguments object."""
    capability: str
    """`resource:action`; the last segment decides the policy default."""
    run: RunTool
    """A plain function runs in a thread, a coroutine function on the event loop."""
    preview: PreviewTool | None = None
    """Needed by every tool with an effect. Raises like `run`."""
    reach: ReachOf | None = None
    """What a call is about. Raises PathRefused where the guard would; changes nothing."""
    pinned: Callable[[dict[str, Any], tuple[str, ...]], dict[str, Any]] | None = None
    """The arguments of a call that is about exactly these paths."""
    risk: str = "low"
    """low, medium or high."""
    asks: bool = False
    """It is a question to a person: its call stops the run and goes on with the answer."""
    timeout: float = 30.0
    """Seconds."""


def _defined(tool: Tool) -> ToolDefinition:
    return ToolDefinition(name=tool.name, description=tool.description, parameters=tool.parameters)


def arguments_digest(name: str, arguments: dict[str, Any]) -> str:
    """What an approval is bound to: SHA-256 of the JSON of [name, arguments] with sorted keys."""
    body = msgspec.json.encode([name, arguments], order="sorted")
    return hashlib.sha256(body).hexdigest()


class Toolbox:
    """The tools of a run. Nothing that a tool does comes out of it as a surprise.

    Plain functions run in threads of the box's own, so that neither the event loop nor anybody
    else's executor waits for them. A thread cannot be killed: a plain tool that overran its time
    keeps its thread until it returns, and with all of them kept further plain tools time out.
    """

    def __init__(self, tools: Sequence[Tool], *, threads: int = THREADS) -> None:
        self._tools: dict[str, Tool] = {}
        self._validators: dict[str, Draft202012Validator] = {}
        self._surely_fits: dict[str, Callable[[dict[str, Any]], bool]] = {}
        self._add(tools)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tool")

    def and_more(self, tools: Sequence[Tool]) -> Toolbox:
        """A box with these tools too. It shares this one's threads, so it is not closed."""
        box = copy(self)
        box._tools, box._validators = dict(self._tools), dict(self._validators)
        box._surely_fits = dict(self._surely_fits)
        box._add(tools)
        return box

    def _add(self, tools: Sequence[Tool]) -> None:
        for tool in tools:
            if tool.name in self._tools:
                raise ValueError("two tools have the same name")
            self._tools[tool.name] = tool
            kept = _compiled(json.dumps(tool.parameters))
            self._validators[tool.name], self._surely_fits[tool.name] = kept
        self.definitions = tuple([_defined(tool) for tool in self._tools.values()])
        """What a model is told, in the order in which the tools were given."""
        self.definitions_size = size_of_text(str(self.definitions))
        """Bytes that they take in a request, about."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        """In the order in which they were given."""
        return tuple(self._tools.values())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def capability_of(self, name: str) -> str:
        """Empty: there is no such tool."""
        tool = self._tools.get(name)
        return "" if tool is None else tool.capability

    def is_native(self, name: str) -> bool:
        """Whether it runs on the event loop, and not in a thread."""
        return name in self._tools and _is_native(self._tools[name].run)

    def close(self) -> None:
        """Forget what has not begun; threads end when their tools return."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def problem(self, name: str, arguments: dict[str, Any]) -> str | None:
        """What is wrong with a call, as sentences for the model; None when it may be judged."""
        validator = self._validators.get(name)
        if validator is None:
            return f"There is no tool {cut(name, 100)!r}. Available: {', '.join(self.names)}."
        if self._surely_fits[name](arguments):
            return None
        try:
            errors = sorted(validator.iter_errors(arguments), key=lambda each: each.json_path)
        except Unresolvable:
            return f"The schema of {name} refers to something unknown: it cannot be called."
        if not errors:
            return None
        said = " ".join(_sentence(error) for error in errors[:MAX_SENTENCES])
        return f"The arguments of {name} do not fit its schema. {said} Correct them and call again."

    async def subject(
        self, name: str, arguments: dict[str, Any] | None, workspace: Workspace
    ) -> Subject:
        """What policy judges, with what the call reaches. Raises PathRefused and ToolFailed."""
        tool = self._tools.get(name)
        subject = Subject(tool=name, capability=self.capability_of(name))
        if tool is None or arguments is None or self.problem(name, arguments):
            return subject
        subject = replace(subject, digest=arguments_digest(name, arguments))
        if tool.reach is None:
            return subject
        reach = await self._explained(tool, tool.reach, arguments, workspace, workspace.root)
        return replace(
            subject,
            paths=reach.paths,
            host=reach.host,
            commands=reach.commands,
            exact=reach.exact,
        )

    async def run(self, name: str, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run a call. A cancelled plain tool may still finish in its thread."""
        tool = self._tools.get(name)
        problem = self.problem(name, arguments)
        if tool is None or problem:
            return ToolResult(ok=False, content=bound(problem or ""))
        if context.judged and tool.pinned is not None:
            arguments = tool.pinned(arguments, context.judged)
        try:
            return _fitting(await self._call(tool, tool.run, arguments, context))
        except TargetChanged:
            raise
        except Exception as error:  # noqa: BLE001  the boundary: a tool's failure is an observation
            return ToolResult(
                ok=False, content=bound(_explain(tool, error, context.workspace.root))
            )

    async def preview(self, name: str, arguments: dict[str, Any], context: ToolContext) -> Preview:
        """What a call would do. Raises PathRefused and ToolFailed, nothing else."""
        tool = self._tools.get(name)
        problem = self.problem(name, arguments)
        if tool is None or problem:
            raise ToolFailed(problem)
        if tool.preview is None:
            return Preview(diff="", target_digest="", summary=f"Call {name}")
        seen = await self._explained(tool, tool.preview, arguments, context, context.workspace.root)
        return Preview(
            diff=bound(seen.diff, MAX_DIFF),
            target_digest=seen.target_digest,
            summary=cut(clean(seen.summary), 500),
        )

    async def _explained(
        self,
        tool: Tool,
        function: Callable[[dict[str, Any], Given], T],
        arguments: dict[str, Any],
        given: Given,
        root: Path,
    ) -> T:
        """Call one of a tool's functions that only look. Raises PathRefused and ToolFailed."""
        try:
            return await self._call(tool, function, arguments, given)
        except (PathRefused, ToolFailed):
            raise
        except Exception as error:  # the boundary, as in run()
            raise ToolFailed(_explain(tool, error, root)) from error

    async def _call(
        self,
        tool: Tool,
        function: Callable[[dict[str, Any], Given], T | Awaitable[T]],
        arguments: dict[str, Any],
        given: Given,
    ) -> T:
        """On the event loop or in a thread, within the tool's time."""
        loop = asyncio.get_running_loop()
        limit = Limit(loop.time() + tool.timeout)
        call = partial(function, arguments, given)
        work: Future[None] | None = None
        try:
            with limit:
                if _is_native(function):
                    outcome = call()
                else:
                    landed: asyncio.Future[T | Awaitable[T]] = loop.create_future()
                    carry = contextvars.copy_context().run
                    work = self._threads.submit(carry, land, call, landed, loop)
                    outcome = await landed
                return await outcome if inspect.isawaitable(outcome) else outcome
        except asyncio.CancelledError:
            if work is not None:
                work.cancel()
            raise
        except TimeoutError:
            if not limit.struck:
                raise  # the tool's own
            logger.warning("tool %s did not finish within %g s", tool.name, tool.timeout)
            began = work is None or not work.cancel()
            raise ToolFailed(_too_late(tool, began=began)) from None


def _too_late(tool: Tool, *, began: bool) -> str:
    if not began:
        return (
            f"{tool.name} did not begin within {tool.timeout:g} seconds, because other tools are "
            "busy. Nothing was done. Try it again later."
        )
    return (
        f"{tool.name} did not finish within {tool.timeout:g} seconds and was given up; "
        "whether it had an effect is not known. Try something smaller."
    )


def _fitting(result: ToolResult) -> ToolResult:
    if not isinstance(result, ToolResult):
        raise TypeError(f"a tool returned {type(result).__name__}, not ToolResult")
    return ToolResult(
        ok=result.ok, content=bound(result.content), details=bound_details(result.details)
    )


def _explain(tool: Tool, error: Exception, root: Path) -> str:
    """A failure in words for the model; what is not meant for it goes to the log."""
    if isinstance(error, PathRefused | ToolFailed):
        return str(error).replace(str(root), "(workspace)")
    logger.error("tool %s failed", tool.name, exc_info=error)
    if isinstance(error, OSError) and error.strerror:
        return f"{tool.name} failed: {error.strerror}."
    return f"{tool.name} failed unexpectedly ({type(error).__name__}). The details are in the log."


@lru_cache(maxsize=SCHEMAS)
def _compiled(schema: str) -> tuple[Draft202012Validator, Callable[[Any], bool]]:
    """What judges arguments, and what says a quick yes to them. By its text: each run with MCP
    servers makes a box anew, and to look whether a schema is a proper one takes 2 ms.

    A schema of somebody else's may not make us fetch what it refers to."""
    parameters = json.loads(schema)
    Draft202012Validator.check_schema(parameters)
    return Draft202012Validator(parameters, registry=Registry()), quick(parameters)


def _sentence(error: ValidationError) -> str:
    """Short, and never with the value itself, which may be a whole file."""
    path = ".".join(str(part) for part in error.absolute_path)
    where = f"`{cut(path, 100)}`" if path else "The object"
    match error.validator:
        case "required" | "additionalProperties":
            return f"{where}: {cut(error.message, 200)}."
        case "type":
            return f"{where} must be of type {json.dumps(error.validator_value)}."
        case rule:
            return f"{where} does not satisfy {rule} {cut(json.dumps(error.validator_value), 200)}."
