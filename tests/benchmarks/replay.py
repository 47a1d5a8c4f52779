"""How long a finished task takes to be read again, by the number of its *stored* events.

    python -m tests.benchmarks.replay [--server uvicorn]

The tool turns of the tasks are stored by the event store itself, before the server starts: nothing
of them is in its memory. Each is followed from its first event to its end on a connection of its
own: once right after the start, then five times, of which the middle is printed. Fails when an
event is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.support.daphne import Daphne, daphne_command, manage, migrated, uvicorn_command

COUNTS = (1_000, 10_000)
AGAIN = 5
LOADED = """
from pathlib import Path
from django.contrib.auth.models import User
from django.db import transaction
from agent.events import AgentCompleted, TaskCompleted, ToolCallFinished, ToolCallRequested, ToolCallStarted
from tasks import access, events, workspaces
from tasks.conf import conf
from tasks.models import Session, Task

def turn(step):
    call = {"step": step, "tool_call_id": f"call-{step}"}
    asked = {"block_id": f"b{step}", "index": 0, "name": "read_file", "arguments": {"path": "notes.txt"}}
    judged = {"capability": "file:read", "risk": "low", "decision": "allow", "rule": "default"}
    return [
        ToolCallRequested(**call, **asked, **judged),
        ToolCallStarted(**call),
        ToolCallFinished(**call, ok=True, content="Line of a file. " * 12),
    ]

alice = User.objects.create(username="alice")
folder = conf().workspaces_dir / "desk"
folder.mkdir(parents=True)
with transaction.atomic():
    desk = workspaces.register(alice, "desk", folder)
for count in COUNTS:
    with transaction.atomic():
        session = Session.objects.create(workspace=desk, owner=alice)
        task = Task.objects.create(session=session, goal="g", trigger="api", created_by=alice, status="running")
        turns = [event for step in range(count // 3 + 1) for event in turn(step)]
        events.append(task.pk, turns[: count - 2])
        events.append(task.pk, [AgentCompleted(final_answer="Done."), TaskCompleted()])
        Task.objects.filter(pk=task.pk).update(status="completed")
    print(count, task.pk)
print("token", access.issue_token(alice, "replay"))
"""


def load(state: Path) -> dict[str, str]:
    """Task ids by number of events, and the token."""
    output = manage(state, "shell", "-v0", "-c", f"COUNTS = {COUNTS}\n{LOADED}")
    return dict(line.split() for line in output.splitlines()[-len(COUNTS) - 1 :])


async def replay(port: int, task_id: str, token: str) -> tuple[float, int]:
    """Milliseconds from the request to the last event, and how many events came."""
    begun = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
    head = f"Host: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
    writer.write(f"GET /api/tasks/{task_id}/stream HTTP/1.1\r\n{head}".encode())
    pieces = []
    while piece := await reader.read(2**20):
        pieces.append(piece)
        if b"event: task_completed" in piece:
            break
    took = (time.perf_counter() - begun) * 1000
    writer.transport.abort()
    return took, b"".join(pieces).count(b"\nid: ")


async def measure(server: Daphne, loaded: dict[str, str]) -> None:
    for count in COUNTS:
        runs = [
            await replay(server.port, loaded[str(count)], loaded["token"]) for _ in range(1 + AGAIN)
        ]
        missing = [count - seen for _, seen in runs if seen != count]
        first, again = runs[0][0], statistics.median(took for took, _ in runs[1:])
        say(f"{count:>7,} stored events: {again:6.1f} ms, the first time {first:6.1f} ms")
        if missing:
            sys.exit(f"{missing} events were missing")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    commands = {"daphne": daphne_command, "uvicorn": uvicorn_command}
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", choices=commands, default="daphne")
    command = commands[parser.parse_args().server]("config.asgi:application")
    with tempfile.TemporaryDirectory(prefix="pilothouse-replay-") as state:
        server = Daphne(Path(state), command=command)
        migrated(Path(state))
        loaded = load(Path(state))
        with server:
            asyncio.run(measure(server, loaded))


if __name__ == "__main__":
    main()
