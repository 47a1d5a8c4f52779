"""A real server as a subprocess: started, killed, and started again on the same state.

    with Daphne(tmp_path) as server:
        httpx.get(server.url + "/healthz")
        server.kill9()
        server.start()

State is a folder of its own: database (migrated), keys, workspaces. The environment is built up
from nothing, so that no setting of the person who runs the tests gets in.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import httpx

from tests.support.template import template

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 90
STOP_SECONDS = 20


class Daphne:
    """One server process at a time; `url` stays the same over restarts."""

    def __init__(
        self,
        state: Path,
        *,
        env: Mapping[str, str] | None = None,
        application: str = "config.asgi:application",
        ready: str = "/healthz",
        command: list[str] | None = None,
    ) -> None:
        self.state = state
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.env = environment(state, {"PILOTHOUSE_PORT": str(self.port), **(env or {})})
        self.log_file = state / "server.log"
        self._ready = ready
        self._command = command or daphne_command(application)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    @property
    def log(self) -> str:
        """Everything that all processes of this server have written so far."""
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def start(self) -> Daphne:
        """Returns when the server answers; raises with its log when it ends instead."""
        self.launch()
        return self.wait_until_ready()

    def wait_until_ready(self) -> Daphne:
        """After `launch()`."""
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill9()
                raise RuntimeError(f"the server did not start:\n{self.log}")
            time.sleep(0.05)
        return self

    def launch(self) -> None:
        """Starts the process and returns at once."""
        assert self._process is None or self._process.poll() is not None, "still running"
        if self.env["DATABASE_URL"].startswith("sqlite"):
            migrated(self.state)
        command = [part.format(port=self.port) for part in self._command]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=self.env, stdout=log, stderr=subprocess.STDOUT
            )

    def kill9(self) -> None:
        """As the kernel does it: no handler runs."""
        self.process.kill()
        self.process.wait()

    def terminate(self, seconds: float = STOP_SECONDS) -> int:
        """SIGTERM; the exit status. A server that does not end in time is killed and an error."""
        self.process.terminate()
        return self.wait(seconds)

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise RuntimeError(f"the server did not end within {seconds} s:\n{self.log}") from None

    def restart(self) -> Daphne:
        """Ends it in order and starts it again on the same state."""
        self.terminate()
        return self.start()

    def __enter__(self) -> Daphne:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill9()

    def answers(self) -> bool:
        try:
            # Without certificates: reading them takes longer than the answer.
            status = httpx.get(self.url + self._ready, timeout=2, verify=False).status_code
        except httpx.TransportError:
            return False
        if status == 404:  # waiting would not help
            self.kill9()
            raise RuntimeError(f"the server knows no {self._ready}")
        return status == 200


def daphne_command(application: str) -> list[str]:
    """Daphne as `config.serve` starts it; `{port}` is filled in at start."""
    serving = f"from config.serve import serve; serve('127.0.0.1', {{port}}, '{application}')"
    return [sys.executable, "-c", serving]


def plain_daphne_command(application: str) -> list[str]:
    """Daphne's own command line, on asyncio's own loop."""
    return [
        *[sys.executable, "-m", "daphne", "-b", "127.0.0.1", "-p", "{port}", "-v", "0"],
        application,
    ]


def uvicorn_command(application: str) -> list[str]:
    return [
        *[sys.executable, "-m", "uvicorn", "--host", "127.0.0.1", "--port", "{port}"],
        *["--log-level", "warning", application],
    ]


def environment(state: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Only what a server on this state needs."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(state),
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "DATABASE_URL": f"sqlite:///{state / 'db.sqlite3'}",
        "PILOTHOUSE_VAR_DIR": str(state / "var"),
        "ALLOWED_HOSTS": "127.0.0.1,localhost",
        **(extra or {}),
    }


def migrated(state: Path) -> None:
    """An empty database with all tables, if the state has none."""
    database = state / "db.sqlite3"
    if not database.exists():
        state.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(template(), database)


def manage(state: Path, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    """Runs `manage.py` on the state of a server; its output."""
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=environment(state, env),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def free_port() -> int:
    """Beneath the ports that the kernel gives to clients: a server that is started again finds its
    own one free."""
    for port in random.SystemRandom().sample(range(10_000, 32_768), 50):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("fifty ports are taken")
