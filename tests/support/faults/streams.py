"""Streams of real servers with the replies that they mean, and how one is read in a test."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import Any

from agent.messages import Reply
from agent.providers.assembler import Assembler
from agent.providers.reading import BodyReader

READ = ("read_file", {"path": "a.txt"})
ARGUMENTS = '{"path":"a.txt"}'


def chunk(finish: str | None = None, index: int = 0, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


def entry(arguments: Any = None, name: Any = None, **head: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {**head, "function": {key: item for key, item in function.items() if item is not None}}


def calling(*entries: dict[str, Any]) -> list[dict[str, Any]]:
    """Each entry in a chunk of its own, and the end."""
    return [*(chunk(tool_calls=[each]) for each in entries), chunk("tool_calls")]


def saying(*pieces: str) -> list[dict[str, Any]]:
    return [*(chunk(content=piece) for piece in pieces), chunk("stop")]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A stream and the reply that it means."""

    source: str
    stream: list[Any] | bytes
    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    usage: tuple[int, int] | None = None
    finish: str = ""
    think_open: bool = False

    def body(self) -> bytes:
        if isinstance(self.stream, bytes):
            return self.stream
        payloads = [json.dumps(value) for value in self.stream]
        return "".join(f"data: {payload}\n\n" for payload in [*payloads, "[DONE]"]).encode()


def read(body: bytes, cuts: int, **options: Any) -> tuple[Assembler, Reply]:
    """The body in pieces of `cuts` bytes."""
    numbers = itertools.count(1)
    tools = frozenset({"read_file", "list_files"})
    assembler = Assembler(1, lambda: f"b{next(numbers)}", tools=tools, **options)
    reader = BodyReader(assembler)
    for start in range(0, len(body), cuts):
        reader.feed(body[start : start + cuts])
    reader.close()
    return assembler, assembler.finish()[1]
