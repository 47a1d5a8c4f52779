"""`make soak`: a real server under a steady mixed load, and whether anything in it grows.

    make soak SECONDS=600

Paced runs, some of which ask and are approved, some of which are cancelled half way; followers that
come and go, some that read slowly, some that never read and are never closed. Sampled from outside:
memory, threads, descriptors, database connections, and how long the server's loop takes to answer.
Fails when the end is not like the beginning, when an event was lost or came twice, or when the log
is not whole. Draws var/soak.svg.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.benchmarks.chart import sparkline, svg
from tests.support.daphne import ROOT
from tests.support.e2e import Desk, Furnished, House, Person
from tests.support.e2e_model import Model
from tests.support.provider_server import SSE, ProviderServer, Request, delta

WORDS = "one two three four five "
"""What a model says at a time."""
PAUSE = 0.1
SAMPLE_SECONDS = 1.0
ENDS = (b"task_completed", b"task_failed", b"task_cancelled", b"budget_exceeded")
SETTINGS = {
    "PILOTHOUSE_MAX_QUEUED_PER_USER": "100000",
    "PILOTHOUSE_MAX_TASKS_PER_MINUTE": "0",
    "PILOTHOUSE_SSE_HEARTBEAT_SECONDS": "15",
    "PILOTHOUSE_WATCH_SECONDS": "0.5",
    "PILOTHOUSE_LEASE_SECONDS": "6",
}

ALLOWED = {
    "memory, MiB": (1.10, 8),
    "threads": (1.0, 8),
    "descriptors": (1.15, 30),
    "database connections": (1.0, 2),
    "loop lag, ms": (1.5, 50),
}
"""How much greater the end may be than the time after the start: a factor, and so much more."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    seconds: float
    runs: int = 100
    """At once."""
    followers: int = 500
    """At once."""
    answer_seconds: float = 15.0
    stay_seconds: float = 30.0
    """A follower at most."""
    watched: Collection[str] = tuple(ALLOWED)
    """What must not grow."""


@dataclass
class Soaked:
    """What was done, and how the server stood each second."""

    done: Counter[str] = field(default_factory=Counter)
    samples: list[dict[str, float]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def series(self) -> dict[str, list[float]]:
        return {name: [sample[name] for sample in self.samples] for name in self.samples[0]}


# ── the model ─────────────────────────────────────────────────────────────────────────────────


async def speak(request: Request, answer_seconds: float) -> None:
    """Paced text; a goal that begins with `write` calls the tool first."""
    messages = request.body["messages"]
    goal = next(m for m in reversed(messages) if m["role"] == "user")["content"]
    await request.head(200, SSE)
    if "write" in str(goal)[-40:] and messages[-1]["role"] == "user":
        await request.events(_write(), delta("", "tool_calls"), "[DONE]")
    else:
        for _ in range(round(answer_seconds / PAUSE)):
            await request.events(delta(WORDS))
            await asyncio.sleep(PAUSE * random.uniform(0.5, 1.5))
        await request.events(delta("", "stop"), "[DONE]")
    await request.end()


def _write() -> dict[str, Any]:
    arguments = {"path": f"note-{random.getrandbits(32)}.txt", "content": "x"}
    function = {"name": "write_file", "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": "", "type": "function", "function": function}
    return {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}


# ── people ────────────────────────────────────────────────────────────────────────────────────


class Crowd:
    """Everybody who asks and follows."""

    def __init__(self, plan: Plan, house: House, alice: Person, desks: Sequence[Desk]) -> None:
        self.plan, self.house, self.alice, self.desks = plan, house, alice, desks
        self.active: dict[str, None] = {}
        self.soaked = Soaked()
        self.over = asyncio.Event()
        token = house.tokens["alice"]
        self._head = f"Host: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
        self._dead: list[asyncio.StreamWriter] = []

    async def ask(self, number: int) -> None:
        """One run after the other."""
        kind = {8: "write", 9: "cancel"}.get(number % 10, "speak")
        while not self.over.is_set():
            desk = random.choice(self.desks)
            task = await self.alice.ask(desk, f"Go on and {kind}")
            self.active[task["id"]] = None
            try:
                await self._accompany(task["id"], kind)
            finally:
                del self.active[task["id"]]
            self.soaked.done[kind] += 1

    async def _accompany(self, task_id: str, kind: str) -> None:
        reader, writer = await self._open(task_id)
        last, ended = 0, False
        try:
            while not ended and (line := await reader.readline()):
                if line.startswith(b"id: "):
                    number = int(line[4:])
                    if number != last + 1:
                        self.soaked.problems.append(f"{task_id}: {number} came after {last}")
                    last = number
                elif line.startswith(b"event: "):
                    name = line[7:].strip()
                    ended = name in ENDS
                    await self._answer(task_id, kind, name)
        finally:
            writer.transport.abort()
        if not ended:
            self.soaked.problems.append(f"{task_id}: its stream ended without an end")

    async def _answer(self, task_id: str, kind: str, event: bytes) -> None:
        if event == b"approval_required":
            [approval] = await self.alice.pending(task_id)
            await self.alice.approve(approval["id"])
        elif kind == "cancel" and event == b"model_call_started":
            await asyncio.sleep(random.uniform(0, self.plan.answer_seconds))
            await self.alice.cancel(task_id)

    async def follow(self, number: int) -> None:
        """Come, read for a while, go; some read slowly, some not at all."""
        slow, dead = number % 20 == 7, number % 50 == 13
        while not self.over.is_set():
            await asyncio.sleep(random.uniform(0, 1))
            if not self.active:
                continue
            reader, writer = await self._open(random.choice(list(self.active)))
            if dead:
                self._dead.append(writer)
                await self._wait(20)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(random.uniform(0.2, 1) * self.plan.stay_seconds):
                    pause = 0.5 if slow else 0
                    while await reader.read(512 if slow else 65_536):
                        await self._wait(pause)
            writer.transport.abort()
            self.soaked.done["slow reader" if slow else "follower"] += 1

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.over.wait()

    async def _open(self, task_id: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.house.server.port)
        writer.write(f"GET /api/tasks/{task_id}/stream HTTP/1.1\r\n{self._head}".encode())
        return reader, writer

    def leave(self) -> None:
        for writer in self._dead:
            writer.transport.abort()

    # ── the server, from outside ──────────────────────────────────────────────────────────────

    async def watch(self) -> None:
        while not self.over.is_set():
            lag = await asyncio.to_thread(answer_ms, self.house.server.url)
            self.soaked.samples.append(sample(self.house.server.pid, lag))
            await self._wait(SAMPLE_SECONDS)


def answer_ms(url: str) -> float:
    """In a thread, so that our own loop, which plays everybody else, is not part of it."""
    begun = time.perf_counter()
    httpx.get(f"{url}/healthz", timeout=60)
    return (time.perf_counter() - begun) * 1000


def sample(pid: int, lag: float) -> dict[str, float]:
    process = Path(f"/proc/{pid}")
    status = dict(
        line.split(":\t", 1)
        for line in (process / "status").read_text().splitlines()
        if ":\t" in line
    )
    opened = []
    for link in (process / "fd").iterdir():
        with suppress(OSError):
            opened.append(str(link.readlink()))
    return {
        "memory, MiB": int(status["VmRSS"].split()[0]) / 1024,
        "threads": int(status["Threads"]),
        "descriptors": len(opened),
        "database connections": sum(name.endswith("db.sqlite3") for name in opened),
        "loop lag, ms": lag,
    }


# ── the verdict ───────────────────────────────────────────────────────────────────────────────


def grown(samples: Sequence[dict[str, float]], watched: Collection[str]) -> list[str]:
    """After a quarter for warming up: the middle of the last third beside that of the first."""
    steady = samples[len(samples) // 4 :]
    third = max(1, len(steady) // 3)
    found = []
    for name in watched:
        factor, more = ALLOWED[name]
        first = statistics.median(each[name] for each in steady[:third])
        last = statistics.median(each[name] for each in steady[-third:])
        if last > first * factor + more:
            found.append(f"{name} grew from {first:,.1f} to {last:,.1f}")
    return found


async def soak(plan: Plan, state: Path) -> Soaked:
    async with AsyncExitStack() as stack:
        provider = ProviderServer(soak=lambda request: speak(request, plan.answer_seconds))
        await stack.enter_async_context(provider)
        url = {"PILOTHOUSE_LLM_BASE_URL": provider.url("soak")}
        furnished = await asyncio.to_thread(Furnished, state / "furnished")
        house = House(state / "house", furnished, Model(), env=SETTINGS | url)
        await asyncio.to_thread(house.server.start)
        try:
            alice = await stack.enter_async_context(house.person("alice"))
            alice.http.timeout = httpx.Timeout(300)  # a busy machine is slow, not broken
            crowd = Crowd(plan, house, alice, [house.desk() for _ in range(20)])
            await _run(plan, crowd)
        finally:
            await asyncio.to_thread(house.server.terminate)
        if "Traceback" in house.server.log:
            crowd.soaked.problems.append("There is a traceback in the server's log.")
        await asyncio.to_thread(house.verify_log)
    return crowd.soaked


async def _run(plan: Plan, crowd: Crowd) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(plan.runs):
            group.create_task(crowd.ask(number))
        for number in range(plan.followers):
            group.create_task(crowd.follow(number))
        group.create_task(crowd.watch())
        await asyncio.sleep(plan.seconds)
        crowd.over.set()
    crowd.leave()
    crowd.soaked.problems += grown(crowd.soaked.samples, plan.watched)


def report(soaked: Soaked) -> str:
    lines = [", ".join(f"{count:,} {what}" for what, count in soaked.done.most_common())]
    for name, values in soaked.series().items():
        middle = statistics.median(values)
        lines.append(f"{name:>21} {sparkline(values)} {middle:,.1f}, at most {max(values):,.1f}")
    return "\n".join([*lines, *soaked.problems])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--followers", type=int, default=500)
    plan = Plan(**vars(parser.parse_args()))
    with tempfile.TemporaryDirectory(prefix="pilothouse-soak-") as state:
        soaked = asyncio.run(soak(plan, Path(state)))
    (ROOT / "var").mkdir(exist_ok=True)
    title = f"{plan.runs} runs, {plan.followers} followers, {plan.seconds:g} s"
    (ROOT / "var" / "soak.svg").write_text(svg(soaked.series(), title), "utf-8")
    sys.stdout.write(f"{title}: {report(soaked)}\n")
    sys.exit(bool(soaked.problems))


if __name__ == "__main__":
    main()
