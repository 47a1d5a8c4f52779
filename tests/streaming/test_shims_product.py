"""The product's own application under the servers that people start it with."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.support.daphne import START_SECONDS, Daphne, manage, migrated


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daphne]:
    """Shared by the tests that leave it as it was."""
    with Daphne(tmp_path_factory.mktemp("product")) as running:
        yield running


def second(server: Daphne, *command: str, **env: str) -> Daphne:
    """Another one on the same state, not started."""
    other = Daphne(server.state, command=list(command) or None, env=env)
    other.log_file = server.state / f"second-{other.port}.log"
    return other


def runserver(*options: str) -> list[str]:
    return [sys.executable, "manage.py", "runserver", "127.0.0.1:{port}", *options]


def test_it_answers_and_holds_the_lock_of_its_database(server: Daphne) -> None:
    assert httpx.get(f"{server.url}/readyz").status_code == 200
    lock = server.state / "db.sqlite3.server.lock"
    assert lock.read_text().splitlines()[0].endswith(f":{server.pid}")


def test_readyz_notices_a_full_disk_and_its_end(server: Daphne) -> None:
    wal = (server.state / "db.sqlite3-wal").stat().st_size
    before = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (min(wal, 4096), before[1]))
    try:
        full = httpx.get(f"{server.url}/readyz")
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, before)
    assert full.status_code == 503
    assert full.json()["error"]["details"] == {"database": "ok", "writer": "unavailable"}
    assert httpx.get(f"{server.url}/readyz").status_code == 200


@pytest.mark.parametrize(
    "options", [[], pytest.param(["--noreload"], marks=pytest.mark.long)], ids=["reload", "plain"]
)
def test_runserver_beside_it_is_refused(server: Daphne, options: list[str]) -> None:
    other = second(server, *runserver(*options))
    other.launch()
    assert other.wait(START_SECONDS) == 1  # it ends while it starts
    last = other.log.splitlines()[-1]
    assert last.startswith("pilothouse: Another server already serves ")
    assert f"process {server.pid} on " in last
    assert "Traceback" not in other.log


def test_a_wrong_setting_is_one_sentence(server: Daphne) -> None:
    other = second(server, PILOTHOUSE_MODE="yes")
    other.launch()
    assert other.wait(START_SECONDS) == 1  # it ends while it starts
    (line,) = other.log.splitlines()
    assert line.startswith("pilothouse: PILOTHOUSE_MODE: write ")


PEOPLE = """
from pathlib import Path
from tests.support.people import make_house
from tests.support.rows import make_session
house = make_house(Path({folder!r}))
print(make_session(house.workspace).pk)
"""


def test_sigterm_ends_its_streams_and_itself_and_forgets_the_holder(tmp_path: Path) -> None:
    migrated(tmp_path)
    folder = str(tmp_path / "desk")
    session = manage(tmp_path, "shell", "-v0", "-c", PEOPLE.format(folder=folder)).split()[-1]
    token = manage(tmp_path, "create_token", "alice").split()[-1]
    with Daphne(tmp_path) as server, ExitStack() as stack:
        headers = {"Authorization": f"Bearer {token}"}
        http = stack.enter_context(httpx.Client(headers=headers, timeout=20))
        url = f"{server.url}/api/sessions/{session}/stream"
        answers = [stack.enter_context(http.stream("GET", url)) for _ in range(5)]
        streams = [answer.iter_raw() for answer in answers]
        assert all(b"connected" in next(stream) for stream in streams)
        server.process.terminate()
        rest = b"".join(b"".join(stream) for stream in streams)
        assert server.wait(8) == 0
        assert b"event: task_" not in rest
        assert "ERROR" not in server.log
        assert (tmp_path / "db.sqlite3.server.lock").read_text() == ""


@pytest.mark.long
@pytest.mark.parametrize("options", [[], ["--noreload"]], ids=["reload", "plain"])
def test_runserver_serves_and_the_next_server_can_follow(
    tmp_path: Path, options: list[str]
) -> None:
    with Daphne(tmp_path, command=runserver(*options)) as server:
        assert httpx.get(f"{server.url}/readyz").status_code == 200
        assert server.terminate(8) == 0
    with Daphne(tmp_path) as server:
        assert httpx.get(f"{server.url}/readyz").status_code == 200
