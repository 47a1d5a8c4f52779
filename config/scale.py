"""`python -m config.scale`, as `make scale` calls it: the scaled-out product on this machine, to try.

Two web processes, three workers and a round robin in front that listens where the one server would.
Whoever dies is started again. A real installation uses its own supervisor and proxy, see
docs/scaling.md; what runs is the same.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress

import django
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import OperationalError

from config.env import ROOT, Environment, read

WEBS, WORKERS = 2, 3
DEFAULTS = {
    "DATABASE_URL": "postgres://postgres@127.0.0.1:5432/pilothouse",
    "REDIS_URL": "redis://127.0.0.1:6379/0",
}
CHUNK = 64 * 1024
AGAIN_SECONDS = 1.0


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    _fill_in()
    try:
        environment = read()
    except ImproperlyConfigured as error:
        sys.exit(f"pilothouse: {error}")
    _prepare()
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(environment))


def _fill_in() -> None:
    """What neither the environment nor `.env` says: the usual places on this machine."""
    env_file = ROOT / ".env"
    written = env_file.read_text(encoding="utf-8") if env_file.is_file() else ""
    for name, value in DEFAULTS.items():
        if not re.search(rf"(?m)^\s*(?:export\s+)?{name}\s*=\s*\S", written):
            os.environ.setdefault(name, value)


def _prepare() -> None:
    django.setup(set_prefix=False)
    try:
        call_command("migrate", verbosity=0)
        call_command("seed_demo", link="")
    except OperationalError as error:
        sys.exit(f"pilothouse: DATABASE_URL: {error}")
    except CommandError as error:
        sys.stdout.write(f"No sign-in link: {error}\n")


async def _serve(environment: Environment) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    ports = [environment.port + 1 + number for number in range(WEBS)]
    front = await asyncio.start_server(Front(ports).connected, environment.host, environment.port)
    url = environment.conf.public_url
    processes = [
        *(_keep(f"web.{port}", ["-m", "config.serve"], _web(port, url)) for port in ports),
        *(_keep(f"worker.{n + 1}", ["manage.py", "worker"], {}) for n in range(WORKERS)),
    ]
    async with front, asyncio.TaskGroup() as group:
        kept = [group.create_task(process) for process in processes]
        _say("front", f"Pilothouse on {url}, {WEBS} web processes and {WORKERS} workers behind it")
        await stop.wait()
        for task in kept:
            task.cancel()


def _web(port: int, url: str) -> dict[str, str]:
    return {
        "PILOTHOUSE_HOST": "127.0.0.1",
        "PILOTHOUSE_PORT": str(port),
        "PILOTHOUSE_PUBLIC_URL": url,
    }


async def _keep(name: str, arguments: list[str], env: Mapping[str, str]) -> None:
    """Run it, again whenever it ends; SIGTERM and its good end when cancelled."""
    while True:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            env={**os.environ, **env},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us
        )
        try:
            await _tell(name, process)
        except asyncio.CancelledError:
            process.terminate()
            await _tell(name, process)
            raise
        _say(name, f"ended with status {process.returncode}; starts again")
        await asyncio.sleep(AGAIN_SECONDS)


async def _tell(name: str, process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        _say(name, line.decode(errors="replace").rstrip())
    await process.wait()


def _say(name: str, line: str) -> None:
    sys.stdout.write(f"{name:<10} {line}\n")
    sys.stdout.flush()


class Front:
    """Connections go to the web processes in turn; one that does not answer is passed over."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports
        self._turn = itertools.cycle(ports)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            behind = await self._next()
            if behind is not None:
                there, back = behind
                await asyncio.gather(_pass(reader, back), _pass(there, writer))
        finally:
            writer.close()

    async def _next(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in self._ports:
            with suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", next(self._turn))
        return None


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As it comes, to the end of either side."""
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


if __name__ == "__main__":
    main()
