"""What a tool of an MCP server answered -> text for the model and facts for people. Pure.

The answer is a stranger's: every field may be missing or of another kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.errors import ToolFailed
from agent.text import clean, cut

MAX_TEXT = 24 * 1024
"""Characters of one answer."""
MAX_BLOCKS = 200


class Broken(ToolFailed):
    """The connection to the server is of no use any more."""

    def __init__(self, message: str, errors: str = "") -> None:
        super().__init__(message)
        self.errors = errors
        """The end of what its program wrote to stderr: for people, not for the model."""


class SessionEnded(Broken):
    """The server knows nothing of the session any more, as after its restart: it did nothing with
    what was asked, and a new connection may ask again."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came of a call."""

    ok: bool
    text: str
    """Bounded."""
    kinds: dict[str, int] = field(default_factory=dict)
    """How many blocks of which kind."""


def answer_of(result: Mapping[str, Any], scrub: Callable[[str], str]) -> Answer:
    """Read a `tools/call` result; `scrub` takes out what nobody may read."""
    content = result.get("content")
    if isinstance(content, str):
        content = {"type": "text", "text": content}
    blocks = content if isinstance(content, list) else [content] if content else []
    kinds: dict[str, int] = {}
    for block in blocks:
        kind = block.get("type") if isinstance(block, dict) else None
        kind = cut(clean(kind), 40) if isinstance(kind, str) else "unknown"
        kinds[kind] = kinds.get(kind, 0) + 1
    parts = [_block(block) for block in blocks[:MAX_BLOCKS]]
    if len(blocks) > MAX_BLOCKS:
        parts.append(f"[{len(blocks) - MAX_BLOCKS:,} more parts are left out.]")
    structured = result.get("structuredContent")
    if structured is not None and not any(kind in kinds for kind in ("text", "resource")):
        parts.append(json.dumps(structured, ensure_ascii=False, default=str))
    text = "\n\n".join(part for part in parts if part)
    return Answer(
        ok=not result.get("isError"),
        text=_bounded(text, scrub) or "(The tool answered nothing.)",
        kinds=dict(list(kinds.items())[:20]),
    )


def _bounded(text: str, scrub: Callable[[str], str]) -> str:
    """Head and tail. Cut with room to spare first: what is scrubbed may lie across the cut."""
    size, room = len(text), MAX_TEXT + 1024
    if size > 2 * room:
        text = text[:room] + text[-room:]
    text = scrub(clean(text))
    if size <= MAX_TEXT:
        return text
    head, tail = text[: MAX_TEXT * 3 // 4], text[-MAX_TEXT // 4 :]
    note = f"[… cut: {size:,} characters in all, the middle is left out. Ask for less at once. …]"
    return f"{head}\n\n{note}\n\n{tail}"


def _block(block: Any) -> str:
    if not isinstance(block, dict):
        return "[A part that is not proper MCP is left out.]"
    match block.get("type"):
        case "text":
            return str(block.get("text") or "")
        case "resource":
            return _resource(block.get("resource"))
        case "resource_link":
            return f"[A link to a resource: {_line(block.get('uri'))} {_line(block.get('name'))}]"
        case "image" | "audio" as kind:
            size = len(str(block.get("data") or "")) * 3 // 4
            return f"[{kind.capitalize()}, {_line(block.get('mimeType'))}, about {size:,} bytes: it cannot be shown here. Ask for text.]"
        case kind:
            return f"[A part of an unknown kind, {_line(kind)}, is left out.]"


def _resource(resource: Any) -> str:
    if not isinstance(resource, dict):
        return "[A resource that is not proper MCP is left out.]"
    head = f"[Resource {_line(resource.get('uri'))}]"
    if isinstance(resource.get("text"), str):
        return f"{head}\n{resource['text']}"
    if isinstance(resource.get("blob"), str):
        return f"{head} (binary, about {len(resource['blob']) * 3 // 4:,} bytes: not shown)"
    return f"{head} (without content)"


def _line(value: Any) -> str:
    return cut(" ".join(clean(value).split()), 300) if isinstance(value, str) else "(unnamed)"


def pages_of(result: Mapping[str, Any]) -> tuple[list[Any], str | None]:
    """The tools of one page of `tools/list`, and the cursor of the next."""
    tools, cursor = result.get("tools"), result.get("nextCursor")
    return (tools if isinstance(tools, list) else []), (cursor if isinstance(cursor, str) else None)


def causes(error: BaseException) -> Iterator[BaseException]:
    """What groups of exceptions are about."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from causes(each)
    else:
        yield error
