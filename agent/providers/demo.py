"""The model of the demonstration: a fixed part, played through the real tools.

Whatever the goal, it compares the supplier quotes of the demo workspace, writes a report and says
whom to choose. What it says is computed from what the tools really returned, and what it does next
only from the conversation: it has no memory, so restarts and follow-ups just work.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from itertools import chain, count

from agent.events import Delta
from agent.messages import AssistantMessage, Message, Reply, ToolCall, ToolMessage, UserMessage
from agent.providers import ModelRequest, Provider
from agent.providers.demo_report import Findings, findings, report
from agent.providers.scripted import ScriptedCall, Turn, play
from agent.text import unmark

PIECE = 24
PIECE_SECONDS = 0.015
REPORT_PATH = "reports/supplier-report.md"
MAX_READS = 16
_LISTED = re.compile(r"^(\S.*?)  [\d,]+ bytes$", re.MULTILINE)

Result = tuple[ToolCall, str]
"""A call since the last user message, and what came of it."""


def demo_provider() -> Provider:
    """The scripted demo model."""
    return DemoProvider()


class DemoProvider:
    """Derives every turn from the messages."""

    model = "scripted-demo"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Plays the turn that follows; see `agent.providers.Provider`."""
        async for item in play(next_turn(request.messages), request):
            yield item

    async def aclose(self) -> None:
        """Holds nothing."""


def next_turn(messages: Sequence[Message]) -> Turn:
    """What the demo model does after these messages."""
    results = _results(messages)
    done = {call.name for call, _ in results}
    if "write_file" in done:
        return _conclude(results)
    if "read_file" in done:
        return _write(results)
    if "list_files" in done:
        return _read(results)
    return Turn(
        reasoning="First I look at what is in the workspace; then I read what matters for the goal.",
        calls=(ScriptedCall(name="list_files", arguments={"path": "."}),),
        piece=PIECE,
        delay=PIECE_SECONDS,
    )


def _results(messages: Sequence[Message]) -> list[Result]:
    calls: dict[str, ToolCall] = {}
    results: list[Result] = []
    for message in messages:
        match message:
            case UserMessage():
                calls, results = {}, []
            case AssistantMessage():
                calls |= {call.tool_call_id: call for call in message.calls}
            case ToolMessage() if message.tool_call_id in calls:
                results.append((calls[message.tool_call_id], unmark(message.content)))
    return results


def _contents(results: list[Result], name: str) -> dict[str, str]:
    """What a tool returned, by the path that it was given."""
    return {
        str((call.arguments or {}).get("path", "")): content
        for call, content in results
        if call.name == name
    }


def _read(results: list[Result]) -> Turn:
    listed = _listed(results)
    briefs = [path for path in listed if path.startswith("briefs/") and path.endswith(".md")]
    tables = [
        path
        for path in listed
        if path.startswith(("quotes/", "invoices/")) and path.endswith(".csv")
    ]
    wanted = [*briefs[:1], *tables][:MAX_READS]
    if not tables:
        return _say(
            "I am the scripted demo model: I can only play one part, and it needs the demo "
            f"workspace with its `quotes/`. Here I found {len(listed)} files and left them alone. "
            "Connect a real model to work on them."
        )
    search = {"query": "unit_price", "glob": "*.csv"}
    return Turn(
        reasoning=(
            f"There is a brief and there are {len(tables)} tables. I read them side by side, and "
            "search for further tables with prices so that none is overlooked."
        ),
        calls=(
            *(ScriptedCall(name="read_file", arguments={"path": path}) for path in wanted),
            ScriptedCall(name="search_files", arguments=search),
        ),
        piece=PIECE,
        delay=PIECE_SECONDS,
    )


def _listed(results: list[Result]) -> list[str]:
    return [
        path for text in _contents(results, "list_files").values() for path in _LISTED.findall(text)
    ]


def _free_path(results: list[Result]) -> str:
    """A second report beside the first: overwriting it with itself would be no change to show."""
    listed = set(_listed(results))
    stem, dot, ending = REPORT_PATH.rpartition(".")
    others = (f"{stem}-{number}{dot}{ending}" for number in count(2))
    return next(path for path in chain([REPORT_PATH], others) if path not in listed)


def _write(results: list[Result]) -> Turn:
    found = _findings(results)
    if not found.offers:
        return _say(
            "I could not read any quote, so there is nothing to compare. Nothing was written."
        )
    return Turn(
        reasoning=(
            f"I have {len(found.offers)} quotes. I compare totals, completeness and delivery, check "
            "the invoices against the quotes, and write the report. A person has to approve that."
        ),
        text=f"I have compared {len(found.offers)} quotes and will write the report.",
        calls=(
            ScriptedCall(
                name="write_file",
                arguments={"path": _free_path(results), "content": report(found)},
            ),
        ),
        piece=PIECE,
        delay=PIECE_SECONDS,
    )


def _conclude(results: list[Result]) -> Turn:
    found = _findings(results)
    call, outcome = next(result for result in reversed(results) if result[0].name == "write_file")
    path = (call.arguments or {}).get("path", REPORT_PATH)
    if outcome.startswith(("Done", "A person confirmed")):
        return _say(f"The report is in `{path}`.\n\n{found.conclusion}")
    comment = outcome.partition("Their comment: ")[2]
    if comment:
        why = f"The report was **not** written: you rejected it and said: “{comment}”"
    else:
        why = f"The report was **not** written. {outcome}"
    return _say(f"{why}\n\n{found.conclusion}")


def _findings(results: list[Result]) -> Findings:
    return findings(_contents(results, "read_file"))


def _say(text: str) -> Turn:
    return Turn(text=text, piece=PIECE, delay=PIECE_SECONDS)
