"""The ASGI edge under real servers: what only Daphne, uvicorn and the kernel can show."""

from __future__ import annotations

import itertools
import json
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.daphne import START_SECONDS, Daphne, plain_daphne_command, uvicorn_command

PROBE = "tests.support.probe:application"
MIB = 1024 * 1024
SOCKET_BUFFERS = 8 * MIB
"""More than the kernel keeps for both ends of a loopback connection."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daphne]:
    """Shared by the tests that leave it as it was."""
    state = tmp_path_factory.mktemp("server")
    with Daphne(state, application=PROBE, env={"PROBE_PATIENCE": "0.4"}) as running:
        yield running


def probe(state: Path, *, command: list[str] | None = None, drain: float = 0.1) -> Daphne:
    env = {"PILOTHOUSE_DRAIN_SECONDS": str(drain), "PROBE_EXIT": "1.5"}
    return Daphne(state, application=PROBE, env=env, command=command)


def stats(server: Daphne) -> dict[str, Any]:
    answer: dict[str, Any] = httpx.get(f"{server.url}/stats", timeout=10).json()
    return answer


def eventually(check: Callable[[], bool], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


def settled(server: Daphne) -> bool:
    """Nothing was yielded for half a second, whereas a free sender would yield hundreds of MB."""
    first = stats(server)["yielded"]
    time.sleep(0.5)
    return bool(stats(server)["yielded"] == first)


def threads(server: Daphne) -> int:
    return len(list(Path(f"/proc/{server.pid}/task").iterdir()))


def resident(server: Daphne) -> int:
    pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
    return pages * 4096


def open_streams(server: Daphne, path: str, count: int, stack: ExitStack) -> list[Iterator[bytes]]:
    http = stack.enter_context(httpx.Client(timeout=20, limits=httpx.Limits(max_connections=200)))
    streams = []
    for _ in range(count):
        answer = stack.enter_context(http.stream("GET", f"{server.url}{path}"))
        streams.append(answer.iter_raw())
        assert next(streams[-1])
    return streams


def unread(server: Daphne, path: str) -> socket.socket:
    """A client that asks and never reads."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)  # the kernel takes less, too
    connection.connect(("127.0.0.1", server.port))
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return connection


def test_a_hundred_idle_streams_share_the_lanes(server: Daphne) -> None:
    base = threads(server)
    with ExitStack() as stack:
        streams = open_streams(server, "/idle", 100, stack)
        assert stats(server)["open"] == len(streams)
        assert threads(server) <= base + 16
    eventually(lambda: stats(server)["open"] == 0)


def test_a_client_that_does_not_read_makes_the_sender_wait(server: Daphne) -> None:
    before, memory = stats(server), resident(server)
    with unread(server, "/flood"):
        eventually(lambda: settled(server))
        assert 0 < stats(server)["yielded"] - before["yielded"] < SOCKET_BUFFERS
        assert resident(server) - memory < SOCKET_BUFFERS


def test_what_a_client_takes_at_once_waits_for_no_turn_of_the_reactor(server: Daphne) -> None:
    before = stats(server)["watched"]
    body = httpx.get(f"{server.url}/words", timeout=20).text
    assert body == "".join(f"{number} " for number in range(100))
    assert stats(server)["watched"] == before
    assert stats(server)["loop"] == "uvloop"


def test_a_request_is_no_line_of_a_log_that_nobody_reads(server: Daphne) -> None:
    before = stats(server)["logged"]
    assert httpx.get(f"{server.url}/healthz").is_success
    assert stats(server)["logged"] == before


def test_what_is_written_goes_out_in_its_order_whatever_its_size(server: Daphne) -> None:
    wanted = "".join(f"{number} " * (2_000 if number % 3 == 0 else 1) for number in range(600))
    assert httpx.get(server.url + "/mixed").text == wanted


def test_daphne_s_own_command_serves_on_asyncio_s_loop(tmp_path: Path) -> None:
    with probe(tmp_path, command=plain_daphne_command(PROBE)) as server:
        assert httpx.get(f"{server.url}/words", timeout=20).text.endswith("99 ")
        assert (stats(server)["loop"], stats(server)["watched"]) == ("asyncio", 0)
        assert server.terminate() == 0


@pytest.mark.long
def test_a_client_that_takes_nothing_for_too_long_is_cut(server: Daphne) -> None:
    before = stats(server)
    with unread(server, "/flood"):
        eventually(lambda: bool(stats(server)["ended"] > before["ended"]), 30)
    assert stats(server)["yielded"] - before["yielded"] < SOCKET_BUFFERS


@pytest.mark.long
def test_a_slow_client_gets_more_when_it_reads_on(server: Daphne) -> None:
    before = stats(server)
    with unread(server, "/flood") as connection:
        eventually(lambda: bool(stats(server)["yielded"] > before["yielded"]))
        wanted, taken = SOCKET_BUFFERS, 0
        while taken < wanted:
            time.sleep(0.001)
            piece = connection.recv(256 * 1024)
            assert piece, "cut although it reads"
            taken += len(piece)
    eventually(lambda: stats(server)["open"] == 0)


def test_concurrent_sync_views_with_async_inside_do_not_deadlock(server: Daphne) -> None:
    with ThreadPoolExecutor(20) as pool, httpx.Client(timeout=20) as http:
        answers = list(pool.map(lambda _: http.get(f"{server.url}/sync").json(), range(50)))
    assert answers == [{"users": 0, "same_thread": True}] * 50


def conversation(server: Daphne, head: str, body: Iterable[bytes]) -> tuple[bytes, int]:
    """All that it answers until it closes, and how many bytes of the body it took."""
    sent = 0
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(f"{head}\r\nHost: localhost\r\n".encode())
        with suppress(ConnectionError):
            for piece in body:
                connection.sendall(piece)
                sent += len(piece)
        received = b""
        with suppress(ConnectionError):
            while read := connection.recv(65_536):
                received += read
    return received, sent


def error_in(answer: bytes, status: int) -> str:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer
    return str(json.loads(body)["error"]["code"])


def test_an_endless_body_is_answered_and_cut_off(server: Daphne) -> None:
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    body = itertools.chain([b"Transfer-Encoding: chunked\r\n\r\n"], itertools.repeat(chunk, 3000))
    answer, sent = conversation(server, "POST /length HTTP/1.1", body)
    assert error_in(answer, 413) == "too_large"
    assert sent < 16 * MIB + 3 * SOCKET_BUFFERS
    assert httpx.post(f"{server.url}/length", content=b"x").json() == {"length": 1}


@pytest.mark.parametrize("length", ["99999999999999999999", str(64 * MIB)])
def test_an_absurd_length_is_refused_without_waiting_for_the_body(
    server: Daphne, length: str
) -> None:
    answer, _ = conversation(
        server, "POST /length HTTP/1.1", [f"Content-Length: {length}\r\n\r\n".encode()]
    )
    assert error_in(answer, 413) == "too_large"


def test_a_form_that_is_none_reaches_the_application(server: Daphne) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    answer = httpx.post(f"{server.url}/length", content=b"zz", headers=headers)
    assert answer.json() == {"length": 2}


@pytest.mark.parametrize("chunked", [False, True])
def test_a_long_body_gets_413_and_costs_no_memory(server: Daphne, chunked: bool) -> None:
    memory = resident(server)
    pieces, piece = 15, b"x" * MIB
    content = (piece for _ in range(pieces)) if chunked else piece * pieces
    answer = httpx.post(f"{server.url}/length", content=content, timeout=20)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "too_large"
    assert resident(server) - memory < pieces * MIB * 3 / 4
    fits = httpx.post(f"{server.url}/length", content=b"x" * 2 * MIB, timeout=20)
    assert fits.json() == {"length": 2 * MIB}


@pytest.mark.parametrize("chunked", [False, True])
def test_an_uploaded_file_may_be_longer_by_its_path_as_it_was_sent(
    server: Daphne, chunked: bool
) -> None:
    """What one of the two bounds let pass and the other cut would be taken for the whole."""
    pieces = [b"x" * MIB] * 4
    for method, path, most in (
        ("PUT", "/longer", 4),
        ("PUT", "/longer?path=%2Fx", 4),
        ("POST", "/longer", 2),
        ("PUT", "/longe%72", 2),
        ("PUT", "//longer", 2),
        ("PUT", "/length", 2),
    ):
        for count in (most, most + 0.5):
            body = b"".join(pieces)[: int(count * MIB)] + (b"y" * MIB * 2 if count > 4 else b"")
            content = iter([body]) if chunked else body
            answer = httpx.request(method, server.url + path, content=content, timeout=20)
            if answer.status_code == 200:
                assert answer.json() == {"length": len(body)}, path
            assert (answer.status_code == 413) == (count > most), (method, path, count)


def test_a_second_server_on_the_same_database_is_refused_in_one_sentence(
    server: Daphne,
) -> None:
    second = probe(server.state)
    second.log_file = server.state / "second.log"
    second.launch()
    assert second.wait(START_SECONDS) == 1  # it ends while it starts
    (line,) = second.log.splitlines()
    assert line.startswith("pilothouse: Another server already serves ")
    assert f"process {server.pid} on " in line
    assert "db.sqlite3.server.lock" in line
    assert stats(server)


def test_sigterm_ends_open_streams_and_the_server(tmp_path: Path) -> None:
    with probe(tmp_path) as server, ExitStack() as stack:
        streams = open_streams(server, "/idle", 5, stack)
        server.process.terminate()
        assert [list(stream) for stream in streams] == [[]] * 5
        assert server.wait(8) == 0
        assert server.log.count("a stream ended") == 5
        assert server.log.rstrip().endswith("stopped")


def test_uvicorn_ends_open_streams_too(tmp_path: Path) -> None:
    with probe(tmp_path, command=uvicorn_command(PROBE)) as server, ExitStack() as stack:
        assert httpx.get(f"{server.url}/sync").json() == {"users": 0, "same_thread": True}
        streams = open_streams(server, "/idle", 5, stack)
        server.process.terminate()
        assert [list(stream) for stream in streams] == [[]] * 5
        server.wait(8)
        assert server.log.count("a stream ended") == 5
        assert "ERROR" not in server.log
        assert server.log.rstrip().endswith("stopped")


@pytest.mark.long
def test_after_kill_9_the_next_server_knows_whose_runs_to_take_over(tmp_path: Path) -> None:
    with probe(tmp_path) as server:
        first = server.pid
        server.kill9()
        server.start()
        assert f"started after 'probe:{first}'" in server.log
        with ThreadPoolExecutor(1) as pool:
            hanging = pool.submit(httpx.get, f"{server.url}/sleep?seconds=60", timeout=30)
            eventually(lambda: stats(server)["threads"] > 2)
            server.process.terminate()
            assert hanging.exception() or hanging.result().status_code == 503
            assert server.wait(8) == 1, "a view that never ends does not keep the server"
        assert "Not everything ended within" in server.log
