"""Where the server's time goes under the metrics of the common benchmark, by thread and by part.

    make shares METRICS=tp64,tool           # as root, or where the kernel lets py-spy look

py-spy looks at who holds the interpreter while the harness works. What it sees belongs to the
innermost function of a part of ours, or of a library that has a line of its own below.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

PARTS = {
    "asking the model: request, socket, reply": ("agent/providers/",),
    "the engine: loop, calls, tools, guard": ("agent/",),
    "followers: hub, frames, streams": ("streaming/", "tasks/hub/"),
    "requests: API, access, Django, ninja": (
        *("tasks/api/", "tasks/access/", "tasks/lane", "config/"),
        *("django/", "ninja/", "pydantic/"),
    ),
    "the server: shims, Daphne, Twisted": ("streaming/asgi/", "daphne/", "twisted/", "asgiref/"),
    "statements: driver, values, rows": ("tasks/driver", "tasks/statements", "tasks/conversions"),
    "runs, journal, events, commands": ("tasks/",),
}
"""By the beginnings of paths, of which the longest that fits decides."""
ELSE = "asyncio, threads, the standard library"
THREADS = {"MainThread": "event loop", "tasks.writer": "writer", "lane": "lanes"}
TOOLS = "tools and others"
MAIN_LOOP = "AsyncioSelectorReactor.run"
"""What is outside of it is the process, not the work."""
PORT = 9931
LOOKS_PER_SECOND = 200
START_SECONDS = 60.0

Stack = Sequence[str]
_PATH = re.compile(r"\((?:.*/site-packages/)?([^()]+?)(?::\d+)?\)$")


def part_of(stack: Stack) -> str:
    for frame in reversed(stack):
        if frame.startswith(MAIN_LOOP):
            break
        found = _PATH.search(frame)
        fitting = [
            (len(start), part)
            for part, starts in PARTS.items()
            for start in starts
            if found is not None and found[1].startswith(start)
        ]
        if fitting:
            return max(fitting)[1]
    return ELSE


def thread_of(stack: Stack) -> str:
    return next((name for word, name in THREADS.items() if word in stack[0]), TOOLS)


def looks(raw: str) -> Iterator[tuple[Stack, int]]:
    """py-spy's raw format: a stack a line, its thread first, how often it was seen at its end."""
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        yield stack.split(";"), int(count)


def table(seen: Iterable[tuple[Stack, int]]) -> str:
    """Shares in percent of all looks: a column per thread, a row per part."""
    counts: Counter[tuple[str, str]] = Counter()
    for stack, count in seen:
        counts[part_of(stack), thread_of(stack)] += count
    whole = counts.total() or 1
    threads = [*THREADS.values(), TOOLS]

    def row(name: str, parts: Iterable[str]) -> str:
        shares = [100 * sum(counts[part, thread] for part in parts) / whole for thread in threads]
        return f"| {name} | " + " | ".join(f"{share:.0f} %" for share in shares) + " |"

    everything = [*PARTS, ELSE]
    heads = ["| | " + " | ".join(threads) + " |", "|---" * (len(threads) + 1) + "|"]
    return "\n".join([*heads, row("all", everything), *(row(part, [part]) for part in everything)])


def server_pid() -> int:
    """Of the harness's server, once it listens."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command = (folder / "cmdline").read_bytes().split(b"\0")
                environment = (folder / "environ").read_bytes().split(b"\0")
            except OSError:  # it ended meanwhile, or is not ours
                continue
            ours = f"PILOTHOUSE_PORT={PORT}".encode() in environment
            if b"config.serve" in command and ours and _listens():
                return int(folder.name)
        time.sleep(0.2)
    sys.exit("the server did not start")


def _listens() -> bool:
    return f":{PORT:04X} 00000000:0000 0A" in Path("/proc/net/tcp").read_text()


def measure(metric: str, harness: Path, home: Path) -> str:
    """Runs the metric twice, so that py-spy sees more than a start."""
    programs = Path(os.environ["BENCH_VENVS"]) / "base" / "bin"
    raw = home / f"{metric}.raw"
    bench = f"{programs}/python {harness}/bench.py run pilothouse --rounds 2"
    spy = f"{programs}/py-spy record --gil --threads --format raw --rate {LOOKS_PER_SECOND}"
    with subprocess.Popen(
        [*bench.split(), "--metrics", metric, "--out", str(home / "results.jsonl")]
    ):
        # Until the server ends, which is when the harness is done.
        until = ["--duration", "unlimited", "--pid", str(server_pid()), "--output", str(raw)]
        subprocess.run([*spy.split(), *until], capture_output=True, check=False)
    return table(looks(raw.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--harness", type=Path, required=True)
    parser.add_argument("--metrics", default="create,tp64,paced,fanout,tool")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pilothouse-shares-") as home:
        for metric in options.metrics.split(","):
            shares = measure(metric, options.harness, Path(home))
            sys.stdout.write(f"\n{metric}\n{shares}\n")


if __name__ == "__main__":
    main()
