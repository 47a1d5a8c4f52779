"""A task on a terminal, or in a pipe: steps, thoughts in a line, tools, text as it comes.

Everything from outside is made visible before it is printed: no model, file or file name can move
the cursor, hide a line of a diff or write over a question.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, TextIO

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

from agent.events import (
    AgentEvent,
    ApprovalRequired,
    ApprovalResolved,
    ApprovalUpdated,
    ArtifactRecorded,
    AssistantDelta,
    AssistantMessageAdded,
    BudgetExceeded,
    BudgetWarning,
    ErrorInfo,
    ModelCallFinished,
    ModelCallRetried,
    ModelCallStarted,
    ReasoningDelta,
    ReasoningMessage,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskStarted,
    ToolCallDelta,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
    ToolProgress,
    UserMessageAdded,
)
from agent.text import cut, visible

HINT_SECONDS = 0.1
"""The line that says what is going on changes at most so often."""
DIFF_LINES = 120
"""More lines of a diff are shown on demand."""
PIPE_WIDTH = 120


def on_one_line(text: str, width: int) -> str:
    return cut(" ".join(visible(text).split()), max(width, 10))


class Screen:
    """Shows events in the order in which they are given."""

    def __init__(self, out: TextIO) -> None:
        self.console = Console(file=out, highlight=False, emoji=False)
        self._live = self.console.is_terminal and not self.console.is_dumb_terminal
        self._calls: dict[str, ToolCallRequested] = {}
        self._written: dict[str, int] = {}
        """Characters of each block that are on the screen."""
        self._thinking: dict[str, str] = {}
        """Thoughts that are not stored yet; empty when they are on the screen."""
        self._open_line = False
        self._hinted = False
        self._hinted_at = 0.0
        self._step = 0
        self._tokens = 0
        self._began = time.monotonic()

    @property
    def width(self) -> int:
        return self.console.width if self.console.is_terminal else PIPE_WIDTH

    def show(self, event: AgentEvent) -> None:
        show = _SHOWN.get(type(event))
        if show is not None:
            show(self, event)

    def line(self, text: str | Text = "", style: str = "") -> None:
        """One line of our own; `text` that came from outside must be visible already."""
        self._settle()
        shown = text if isinstance(text, Text) else Text(text, style=style)
        self.console.print(shown, soft_wrap=True)

    def question(self, text: str) -> None:
        """A prompt: the answer is typed behind it."""
        self._settle()
        self.console.print(Text(text, style="bold"), end="", soft_wrap=True)
        self.console.file.flush()
        self._open_line = True

    def answered(self) -> None:
        """The person ended the question's line; behind a pipe nobody did."""
        self._open_line = not self.console.is_terminal

    # ── one method per event ──────────────────────────────────────────────────────────────────

    def _started(self, event: TaskStarted) -> None:
        how = {"start": "started", "resume": "goes on", "recover": "taken over, goes on"}
        mode = "" if event.mode == "ask" else f", mode {event.mode}"
        self.line(f"{how.get(event.reason, event.reason)} with {visible(event.model)}{mode}", "dim")

    def _step_began(self, event: ModelCallStarted) -> None:
        if event.step != self._step:
            self._step = event.step
            self.line()
            self.line(f"step {event.step}", "bold cyan")
        self._hint("thinks …", now=True)

    def _retried(self, event: ModelCallRetried) -> None:
        again = f"again in {event.delay_seconds:g} s" if event.delay_seconds else "again"
        self._thinking.clear()
        self.line(f"  ! {visible(event.error.message)} Trying {again}.", "yellow")

    def _step_ended(self, event: ModelCallFinished) -> None:
        self._tokens += event.usage.input_tokens + event.usage.output_tokens

    def _thinks(self, event: ReasoningDelta) -> None:
        text = self._thinking.get(event.block_id, "") + event.delta
        self._thinking[event.block_id] = text
        self._hint(f"thinks: {text[-self.width :]}")

    def _thought(self, event: ReasoningMessage) -> None:
        if self._thinking.pop(event.block_id, event.text):
            self._fold(event.text)

    def _fold(self, thought: str) -> None:
        self.line(f"  thought: {on_one_line(thought, self.width - 12)}", "dim italic")

    def _says(self, event: AssistantDelta) -> None:
        for block_id, thought in self._thinking.items():
            if thought:  # it came before the text: shown before it, and not again when stored
                self._fold(thought)
                self._thinking[block_id] = ""
        if event.offset == self._written.get(event.block_id, 0):
            self._write(event.block_id, event.delta)

    def _said(self, event: AssistantMessageAdded) -> None:
        rest = event.text[self._written.get(event.block_id, 0) :]
        if rest:
            self._write(event.block_id, rest)
        self._settle()

    def _write(self, block_id: str, text: str) -> None:
        if block_id not in self._written:
            self._settle()
        self._unhint()
        self._written[block_id] = self._written.get(block_id, 0) + len(text)
        self.console.print(Text(visible(text)), end="", soft_wrap=True)
        self.console.file.flush()
        self._open_line = not text.endswith("\n")

    def _writes_call(self, event: ToolCallDelta) -> None:
        self._hint(f"prepares {event.name} … {event.offset + len(event.delta):,} characters")

    def _requested(self, event: ToolCallRequested) -> None:
        self._calls[event.tool_call_id] = event

    def _call_began(self, event: ToolCallStarted) -> None:
        self._hint(f"{self._call(event.tool_call_id)} …", now=True)

    def _progress(self, event: ToolProgress) -> None:
        self._hint(f"{self._call(event.tool_call_id)}: {event.text}")

    def _call_ended(self, event: ToolCallFinished) -> None:
        mark = ("  ✓ ", "green") if event.ok else ("  ✗ ", "red")
        said = outcome(event)
        call = cut(self._call(event.tool_call_id), max(20, self.width - 8 - min(len(said), 60)))
        room = self.width - len(call) - 8
        self.line(Text.assemble(mark, call, (f"  {on_one_line(said, room)}", "dim")))

    def _asked(self, event: ApprovalRequired) -> None:
        self.line()
        if event.kind == "question":
            self._question_asked(event.arguments)
            return
        title = describe(event.name, event.arguments, self.width - 24)
        self.line(Text.assemble(("  ? ", "bold yellow"), (title, "bold"), "  needs approval"))
        self.line(f"    risk {visible(event.risk)} · {visible(event.reason)}", "dim")
        self.diff(event.diff, DIFF_LINES)

    def _question_asked(self, arguments: dict[str, Any]) -> None:
        self.line(Text.assemble(("  ? ", "bold yellow"), (visible(arguments["question"]), "bold")))
        for number, option in enumerate(arguments.get("options", []), start=1):
            self.line(f"    {number} {on_one_line(option, self.width - 8)}")

    def diff(self, diff: str, limit: int | None = None) -> None:
        lines = visible(diff).splitlines()
        for text in lines[:limit]:
            self.line("    " + text, _diff_style(text))
        if limit is not None and len(lines) > limit:
            self.line(f"    … {len(lines) - limit:,} more lines", "dim")

    def _answered(self, event: ApprovalResolved) -> None:
        by = f" by {visible(event.resolved_by)}" if event.resolved_by else ""
        answered = event.kind == "question" and bool(event.answer)
        words = (event.answer or "") if answered else event.comment
        said = f": {on_one_line(words, self.width - 40)}" if words else ""
        style = {"approved": "green", "rejected": "red"}.get(event.status, "yellow")
        self.line(f"  {'answered' if answered else event.status}{by}{said}", style)

    def _waits_on(self, event: ApprovalUpdated) -> None:
        yes = (
            f" · yes: {', '.join(visible(vote.by) for vote in event.votes)}" if event.votes else ""
        )
        self.line(f"  waits on, until {event.expires_at}, by {visible(event.by)}{yes}", "yellow")

    def _steered(self, event: UserMessageAdded) -> None:
        self.line(f"  {visible(event.by)}: {on_one_line(event.text, self.width - 20)}", "magenta")

    def _warned(self, event: BudgetWarning) -> None:
        self.line(f"  ! {event.which}: {event.used:g} of {event.limit:g} used", "yellow")

    def _made(self, event: ArtifactRecorded) -> None:
        self.line()
        self.line(f"made {visible(event.path)} ({event.size:,} bytes)", "bold")

    def _completed(self, event: TaskCompleted) -> None:
        self._end("completed", "bold green")

    def _failed(self, event: TaskFailed) -> None:
        self._problem(event.error)
        self._end("failed", "bold red")

    def _problem(self, error: ErrorInfo) -> None:
        self.line()
        self.line(visible(error.message), "red")
        if error.hint:
            self.line(visible(error.hint))

    def _cancelled(self, event: TaskCancelled) -> None:
        self._end(f"cancelled by {visible(event.by)}" if event.by else "cancelled", "bold yellow")

    def _over_budget(self, event: BudgetExceeded) -> None:
        self.line()
        self.line(visible(event.message), "yellow")
        self._end("over budget", "bold yellow")

    def _end(self, how: str, style: str) -> None:
        seconds = time.monotonic() - self._began
        counted = [f"{self._step} step{'' if self._step == 1 else 's'}"] if self._step else []
        counted += [f"{self._tokens:,} tokens"] if self._tokens else []
        self.line()
        facts = " · ".join([*counted, f"{seconds:.1f} s"])
        self.line(Text.assemble((how, style), (f"  {facts}", "dim")))

    # ── the cursor ────────────────────────────────────────────────────────────────────────────

    def _call(self, tool_call_id: str) -> str:
        call = self._calls.get(tool_call_id)
        if call is None:
            return "a call"
        return describe(call.name, call.arguments or {}, self.width - 20)

    def _hint(self, text: str, *, now: bool = False) -> None:
        """What is going on, on a line that the next output replaces."""
        due = now or time.monotonic() - self._hinted_at >= HINT_SECONDS
        if not self._live or self._open_line or not due:
            return
        self._unhint()
        self._hinted, self._hinted_at = True, time.monotonic()
        shown = on_one_line(text, self.width - 6)
        self.console.print(Text(f"  {shown}", "dim"), end="", soft_wrap=True)
        self.console.file.flush()

    def _unhint(self) -> None:
        if self._hinted:
            self._hinted = False
            erase = (ControlType.ERASE_IN_LINE, 2)
            self.console.control(Control(ControlType.CARRIAGE_RETURN, erase))

    def _settle(self) -> None:
        """To the start of a fresh line."""
        self._unhint()
        if self._open_line:
            self._open_line = False
            self.console.print()


def describe(name: str, arguments: dict[str, Any], width: int) -> str:
    """A call on one line; long values as their size, for the diff has them."""
    path_first = sorted(arguments.items(), key=lambda argument: argument[0] != "path")
    parts = [_argument(key, value) for key, value in path_first]
    return on_one_line(" ".join([name, *parts]), width)


def _argument(key: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if key == "path":
        return text
    short = len(text) <= 60 and "\n" not in text
    return f"{key}={text}" if short else f"{key}=({len(text):,} characters)"


_COUNTED = ("entries", "matches", "files", "lines", "bytes")


def outcome(event: ToolCallFinished) -> str:
    """What came of a call, in a few words."""
    counts = [
        f"{event.details[name]:,} {name if event.details[name] != 1 else _SINGULAR[name]}"
        for name in _COUNTED
        if isinstance(event.details.get(name), int)
    ]
    if event.ok and counts:
        return ", ".join(counts)
    return event.content.strip().partition("\n")[0]


_SINGULAR = {
    "entries": "entry",
    "matches": "match",
    "files": "file",
    "lines": "line",
    "bytes": "byte",
}


def _diff_style(line: str) -> str:
    if line.startswith(("+++", "---")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")


_SHOWN: dict[type, Callable[[Screen, Any], None]] = {
    ApprovalRequired: Screen._asked,
    ApprovalResolved: Screen._answered,
    ApprovalUpdated: Screen._waits_on,
    ArtifactRecorded: Screen._made,
    AssistantDelta: Screen._says,
    AssistantMessageAdded: Screen._said,
    BudgetExceeded: Screen._over_budget,
    BudgetWarning: Screen._warned,
    ModelCallFinished: Screen._step_ended,
    ModelCallRetried: Screen._retried,
    ModelCallStarted: Screen._step_began,
    ReasoningDelta: Screen._thinks,
    ReasoningMessage: Screen._thought,
    TaskCancelled: Screen._cancelled,
    TaskCompleted: Screen._completed,
    TaskFailed: Screen._failed,
    TaskStarted: Screen._started,
    ToolCallDelta: Screen._writes_call,
    ToolCallFinished: Screen._call_ended,
    ToolCallRequested: Screen._requested,
    ToolCallStarted: Screen._call_began,
    ToolProgress: Screen._progress,
    UserMessageAdded: Screen._steered,
}
