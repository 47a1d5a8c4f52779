"""Pilothouse as the common benchmark drives it: POST a goal, follow its stream.

    BENCH_ADAPTERS=tests/benchmarks/adapter.py python …/bench.py run passthrough-ev ch11 pilothouse

Each server starts on a fresh SQLite file with the shipped defaults; only the limits that a benchmark
must pass (tasks that wait, tasks per minute, repeats) are raised. Every stored event is really stored.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from adapters import MOCK, Adapter, Run
from client import Http

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv" / "bin" / "python"
PREPARE = (
    "set -e; cd {root}; {python} manage.py migrate -v 0; {python} manage.py seed_demo >/dev/null;"
    " {python} manage.py create_token admin | tail -n 1 > {home}/token; echo x > {home}/workspaces/demo/x.txt;"
    " exec {server}"
)


class Pilothouse(Adapter):
    """Under Daphne, as `make run` starts it."""

    name, port = "pilothouse", 9931
    persists = "SQLite (WAL): task before it is accepted, each stored event before it is sent"
    background = can_attach = can_replay = has_tools = True
    tool, arg = "read_file", "path:x.txt"
    ready_path, ready_s = "/healthz", 240
    server = "-m config.serve"

    def __init__(self) -> None:
        self.home = Path(tempfile.gettempdir()) / f"pilothouse-bench-{self.port}-{os.getpid()}"
        super().__init__()

    def command(self) -> list[str]:
        self.home.mkdir(parents=True, exist_ok=True)
        server = f"{PYTHON} {self.server.format(port=self.port)}"
        script = PREPARE.format(root=ROOT, python=PYTHON, home=self.home, server=server)
        return ["bash", "-c", script]

    def environment(self) -> dict[str, str]:
        return {
            "PILOTHOUSE_VAR_DIR": str(self.home),
            "PILOTHOUSE_PORT": str(self.port),
            "PILOTHOUSE_LLM_BASE_URL": MOCK,
            "PILOTHOUSE_LLM_MODEL": "mock",
            "PILOTHOUSE_REPEAT_LIMIT": "0",
            "PILOTHOUSE_MAX_QUEUED_PER_USER": "100000",
            "PILOTHOUSE_MAX_TASKS_PER_MINUTE": "0",
        }

    async def setup(self) -> None:
        token = (self.home / "token").read_text().strip()
        self.http = Http("127.0.0.1", self.port, {"authorization": f"Bearer {token}"})

    async def start_run(self, prompt: str) -> Run:
        return Run((await self.http.json("POST", "/api/tasks", {"goal": prompt}))["id"])

    async def attach(self, run: Run):
        live = False
        async for when, frames in self.http.sse("GET", f"/api/tasks/{run.id}/stream"):
            deltas = [
                f for f in frames if b"event: assistant_delta" in f or b"event: snapshot" in f
            ]
            live = live or bool(deltas)
            if not live:
                deltas = [f for f in frames if b"event: assistant_message" in f]
            yield when, deltas
            if any(END in frame for frame in frames for END in ENDS):
                return

    stream = attach


ENDS = tuple(
    b"event: " + end
    for end in (b"task_completed", b"task_failed", b"task_cancelled", b"budget_exceeded")
)


class PilothouseUvicorn(Pilothouse):
    """The same application under uvicorn, with uvloop and httptools as it takes them by itself."""

    name, port = "pilothouse-uvicorn", 9932
    server = "-m uvicorn config.asgi:application --port {port} --log-level warning --no-access-log"


ADAPTERS = [Pilothouse, PilothouseUvicorn]
