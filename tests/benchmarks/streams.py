"""How fast bodies become deltas, and what 50 MB of a hostile one cost. No network, one process each.

    python -m tests.benchmarks.streams

The first table reads ordinary streams and, for comparison, gives the same payloads to `json.loads`
alone; the second one bodies that a malicious server would send.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from agent.errors import ProviderError
from agent.providers.assembler import Assembler
from agent.providers.reading import BodyReader
from agent.scrub import Scrubber

READ = 16 * 1024
HOSTILE_BYTES = 50_000_000
KEY = "sk-live-CANARY-7f3a"


def _chunk(**delta: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-9f1c",
        "object": "chat.completion.chunk",
        "created": 1767225600,
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
    }


def _events(chunks: Iterator[dict[str, Any]]) -> bytes:
    body = b"".join(b"data: %s\n\n" % json.dumps(chunk).encode() for chunk in chunks)
    return body + b"data: [DONE]\n\n"


def _call(arguments: str, first: bool) -> dict[str, Any]:
    head = {"id": "call_1", "type": "function"} if first else {}
    name = {"name": "write_file"} if first else {}
    return {"index": 0, **head, "function": {**name, "arguments": arguments}}


def ordinary() -> dict[str, bytes]:
    words = [f"word{n % 97} " for n in range(100_000)]
    pieces = ['{"path":"a","content":"', *words, '"}']
    return {
        "text": _events(_chunk(content=word) for word in words),
        "reasoning": _events(_chunk(reasoning_content=word) for word in words),
        "arguments": _events(_chunk(tool_calls=[_call(p, not n)]) for n, p in enumerate(pieces)),
    }


def hostile() -> dict[str, tuple[bytes, bytes]]:
    """(the beginning, what comes again and again)"""
    one = json.dumps(_chunk(content="a")).encode()
    again = json.dumps(_chunk(tool_calls=[_call("{}", True)])).encode()
    many = json.dumps(_chunk(tool_calls=[{"index": 0, "function": {"arguments": "{"}}])).encode()
    think = json.dumps(_chunk(content="\n<think>\n```")).encode()
    details = [{"type": "reasoning.text", "index": 0, "data": "a"}]
    opaque = json.dumps(_chunk(reasoning_details=details)).encode()
    return {
        "one line without end": (b"data: ", b"a"),
        "one event of lines without end": (b"", b"data: a\n"),
        "a document without end": (b"{", b"["),
        "comments": (b"", b": ping\n\n"),
        "deltas of one character": (b"", b"data: %s\n\n" % one),
        "events that one line end parts": (b"", b"data: %s\n" % one),
        "a call that begins again": (b"", b"data: %s\n\n" % again),
        "arguments that never close": (b"", b"data: %s\n\n" % many),
        "tags and fences": (b"", b"data: %s\n\n" % think),
        "opaque details": (b"", b"data: %s\n\n" % opaque),
        "nesting": (b"", b'data: {"x":' + b"[" * 4000 + b"\n\n"),
    }


def endless(before: bytes, unit: bytes) -> Iterator[bytes]:
    """50 MB in reads whose ends lie anywhere, without holding them."""
    yield before
    window = unit * (READ // len(unit) + 2)
    for start in range(0, HOSTILE_BYTES, READ):
        at = start % len(unit)
        yield window[at : at + READ]
    yield b"\n\ndata: [DONE]\n\n"


def read(reads: Iterable[bytes]) -> tuple[int, str]:
    """(deltas, how it ended)"""
    numbers = itertools.count(1)
    assembler = Assembler(1, lambda: f"b{next(numbers)}", scrub=Scrubber(KEY))
    reader = BodyReader(assembler)
    deltas = 0
    try:
        for each in reads:
            deltas += len(reader.feed(each))
        deltas += len(reader.close())
        rest, reply = assembler.finish()
    except ProviderError as error:
        return deltas, error.code
    return deltas + len(rest), reply.finish_reason


def speed(name: str, body: bytes) -> None:
    payloads = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: {")]
    reads = [body[start : start + READ] for start in range(0, len(body), READ)]
    alone = min(_seconds(lambda: [json.loads(each) for each in payloads]) for _ in range(5))
    ours = min(_seconds(lambda: read(reads)) for _ in range(5))
    size = len(body) / 1e6
    say(
        f"{name:12} {size / ours:7.0f} {len(payloads) / ours:10,.0f}"
        f" {size / alone:16.0f} {ours / alone:6.2f}"
    )


def _seconds(act: Callable[[], Any]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def resist(name: str) -> None:
    reads = endless(*hostile()[name])
    before = _peak()
    began = time.perf_counter()
    _, ended = read(reads)
    took = time.perf_counter() - began
    say(f"{name:32} {took:7.2f} s {_peak() - before:7.1f} MB  {ended}")


def _peak() -> float:
    """MB of memory that this process ever had (Linux)."""
    status = Path("/proc/self/status").read_text("ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    say(f"{'ordinary':12} {'MB/s':>7} {'chunks/s':>10} {'json.loads MB/s':>16} {'share':>6}")
    for name, body in ordinary().items():
        speed(name, body)
    say(f"\n{HOSTILE_BYTES // 1_000_000} MB hostile")
    fresh = multiprocessing.get_context("spawn")
    for name in hostile():
        process = fresh.Process(target=resist, args=(name,))
        process.start()
        process.join()


if __name__ == "__main__":
    main()
