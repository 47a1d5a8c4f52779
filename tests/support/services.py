"""A PostgreSQL cluster and a Redis of our own, to be restarted and killed by tests.

The servers of the machine serve others and are left alone. Where the programs are not installed,
`missing()` says so and the tests that need them are skipped.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import redis

from tests.support.daphne import ROOT, free_port

SECONDS = 60


def program(name: str) -> str | None:
    """Also where Debian hides servers."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name)
    usual = os.environ.get("PATH", os.defpath)
    path = os.pathsep.join([*map(str, reversed(folders)), usual, "/usr/sbin"])
    return shutil.which(name, path=path)


def missing(*names: str) -> str:
    """Which of these programs are not here, of PostgreSQL's and Redis's without names; empty when
    all are."""
    wanted = names or ("initdb", "postgres", "redis-server")
    return ", ".join(name for name in wanted if not program(name))


class _Server:
    """A process with a folder of its own that is there when it answers."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pilothouse-service-"))
        self.port = free_port()
        self.options: dict[str, Any] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def answers(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), cwd=self.folder, stdout=log, stderr=log, **self.options
            )
        deadline = time.monotonic() + SECONDS
        while not self.answers():
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.05)

    def stop(self, number: int = signal.SIGTERM) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(SECONDS)

    def remove(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop(signal.SIGKILL if isinstance(self, Redis) else signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)


class Postgres(_Server):
    """Never runs as root: as the system's user `postgres` then."""

    def __init__(self) -> None:
        super().__init__()
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
            self.options = {"user": "postgres", "group": "postgres", "extra_groups": []}
        initdb = [program("initdb") or "", "-D", "data", "-U", "postgres", "-A", "trust", "-N"]
        subprocess.run(
            [*initdb, "-E", "UTF8", "--locale=C.UTF-8"],
            cwd=self.folder,
            check=True,
            capture_output=True,
            **self.options,
        )
        self.start()

    def command(self) -> list[str]:
        settings = [
            f"port={self.port}",
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "fsync=off",
            "max_connections=200",
        ]
        return [
            program("postgres") or "",
            "-D",
            "data",
            *(word for setting in settings for word in ("-c", setting)),
        ]

    def url(self, database: str = "postgres") -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}/{database}"

    def answers(self) -> bool:
        try:
            self.run("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def run(self, statement: str) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def restart(self) -> None:
        """As an administrator does it: sessions are cut off, nothing is lost."""
        self.stop(signal.SIGINT)
        self.start()


class Redis(_Server):
    """Keeps nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        where = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        return [program("redis-server") or "", *where, "--save", "", "--appendonly", "no"]

    def answers(self) -> bool:
        with redis.Redis(port=self.port) as client:
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                return False


class Nginx(_Server):
    """As deploy/nginx.conf has it, in front of these ports: this machine stands for the one that
    containers run on."""

    def __init__(self, ports: Sequence[int]) -> None:
        super().__init__()
        written = (ROOT / "deploy" / "nginx.conf").read_text(encoding="utf-8")
        for theirs, ours in (
            ("resolver 127.0.0.11 valid=5s;", ""),
            ("server web:8000 resolve;", " ".join(f"server 127.0.0.1:{port};" for port in ports)),
            ("10.201.77.1 ", "127.0.0.1 "),
            ("10.201.77.1;", "127.0.0.1;"),
            ("listen 80;", f"listen 127.0.0.1:{self.port};"),
        ):
            assert theirs in written
            written = written.replace(theirs, ours)
        head = "daemon off; pid pid; user root; worker_processes 1; events {}"
        (self.folder / "nginx.conf").write_text(f"{head} http {{ access_log off; {written} }}")
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [program("nginx") or "", "-p", str(self.folder), "-c", "nginx.conf", "-e", "log"]

    def answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
