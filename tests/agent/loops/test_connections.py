"""Connections to a real server on loopback: when they are used again, and when they are closed."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import socket
import ssl
import zlib
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from agent.providers import connections
from agent.providers.connections import (
    KEEPALIVE_SECONDS,
    MAX_UNREAD_BYTES,
    Connections,
    ConnectTimeout,
    NoConnection,
    Place,
)
from agent.providers.http1 import Broken
from tests.support.counting import circles
from tests.support.raw_server import ASK, CHUNKED, HI, Server, asked, says, says_last, whole
from tests.support.waiting import happened

OFFERED = 32 * 2**20


async def test_one_request_after_the_other_takes_one_connection(pool):
    async with Server(says(HI)) as server:
        for _ in range(3):
            assert await whole(await asked(pool, server)) == b"Hi"
        assert (server.opened, server.asked) == (1, 3)


async def test_requests_side_by_side_never_wait_for_each_other(pool):
    async with Server(says(HI)) as server:
        replies = [await asked(pool, server) for _ in range(3)]
        assert [await whole(reply) for reply in replies] == [b"Hi"] * 3
        assert server.opened == 3


async def test_a_reply_that_was_closed_twice_disturbs_nobody(pool):
    async with Server(says(HI)) as server:
        first = await asked(pool, server)
        assert await whole(first) == b"Hi"
        second = await asked(pool, server)
        first.close()
        third = await asked(pool, server)
        assert [await whole(second), await whole(third)] == [b"Hi", b"Hi"]
        assert server.opened == 2


async def test_a_body_that_was_not_read_to_its_end_closes_its_connection(pool):
    async with Server(says(CHUNKED + b"2\r\nHi\r\n"), says(HI)) as server:
        reply = await asked(pool, server)
        assert await reply.read() == b"Hi"
        assert not reply.at_end()
        reply.close()
        await server.until_closed(1)
        assert await whole(await asked(pool, server)) == b"Hi"


async def test_a_request_that_was_given_up_closes_its_connection(pool):
    came = asyncio.Event()

    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()

    async with Server(silence) as server:
        asking = asyncio.create_task(asked(pool, server))
        await came.wait()
        asking.cancel()
        await server.until_closed(1)
        assert asking.cancelled()


async def test_no_response_is_left_to_the_collector_whole_or_not(pool):
    async with Server(says(HI), says(HI), says(CHUNKED + b"2\r\nHi\r\n")) as server:
        await whole(await asked(pool, server))  # what is made once for an event loop
        with circles() as found:
            assert await whole(await asked(pool, server)) == b"Hi"
            reply = await asked(pool, server)
            assert await reply.read() == b"Hi"
            reply.close()
            del reply
            await server.until_closed(1)
    assert not found


async def test_a_connection_that_the_server_closed_meanwhile_is_not_used(pool):
    async with Server(says_last(HI)) as server:
        for opened in (1, 2):
            assert await whole(await asked(pool, server)) == b"Hi"
            assert server.opened == opened
            (connection,) = pool._open
            await connection.lost


async def test_the_next_try_after_one_that_was_closed_as_it_was_used_takes_a_new_one(pool):
    async with Server(says(HI), says(HI), says(HI), says_last(b""), says(HI)) as server:
        replies = [await asked(pool, server) for _ in range(3)]
        assert [await whole(reply) for reply in replies] == [b"Hi"] * 3
        with pytest.raises(ConnectionError):
            await asked(pool, server)
        assert await whole(await asked(pool, server)) == b"Hi"
        assert server.opened == 4


async def test_what_nobody_asked_for_closes_a_connection(pool):
    async with Server(says(HI + HI)) as server:
        for opened in (1, 2):
            assert await whole(await asked(pool, server)) == b"Hi"
            assert server.opened == opened


async def test_a_connection_waits_for_its_time_and_no_longer(pool, monkeypatch):
    monkeypatch.setattr(connections, "KEEPALIVE_SECONDS", 0.02)
    async with Server(says(HI)) as server:
        await whole(await asked(pool, server))
        await server.until_closed(1)
        await whole(await asked(pool, server))
        assert server.opened == 2


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 200", CHUNKED[:-2]])
async def test_an_end_before_the_head_is_no_reply(pool, data):
    async with Server(says_last(data)) as server:
        with pytest.raises(ConnectionError):
            await asked(pool, server)


async def test_an_end_in_the_middle_comes_behind_what_was_sent(pool):
    async with Server(says_last(CHUNKED + b"2\r\nHi\r\n5\r\nHel")) as server:
        reply = await asked(pool, server)
        with pytest.raises(Broken):
            await whole(reply)


async def test_a_body_may_end_with_its_connection(pool):
    async with Server(says_last(b"HTTP/1.1 200 OK\r\n\r\nHello")) as server:
        assert await whole(await asked(pool, server)) == b"Hello"


async def test_what_nobody_takes_is_not_read(pool):
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(CHUNKED)
        while sent < OFFERED:
            writer.write(b"10000\r\n%b\r\n" % (b"x" * 65536))
            await writer.drain()
            sent += 65536
        writer.write(b"0\r\n\r\n")

    async with Server(flood, says(HI)) as server:
        reply = await asked(pool, server)
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.1)
        assert sent < OFFERED / 2
        first = await reply.read()
        assert len(first) < 2 * MAX_UNREAD_BYTES
        assert len(first) + len(await whole(reply)) == OFFERED
        assert await whole(await asked(pool, server)) == b"Hi"
        assert server.opened == 1


@pytest.mark.parametrize(("coding", "bits"), [("gzip", 31), ("deflate", 15), ("Deflate", -15)])
async def test_packed_bodies_are_unpacked_a_piece_at_a_time(pool, coding, bits):
    text = b"Hello. " * 1_000_000
    pack = zlib.compressobj(wbits=bits)
    packed = pack.compress(text) + pack.flush()
    head = f"HTTP/1.1 200 OK\r\ncontent-encoding: {coding}\r\ncontent-length: {len(packed)}\r\n\r\n"
    async with Server(says(head.encode() + packed)) as server:
        reply = await asked(pool, server)
        reads = []
        while read := await reply.read():
            reads.append(read)
        assert b"".join(reads) == text
        assert max(map(len, reads)) <= connections.MAX_UNPACKED_BYTES
        reply.close()
        await whole(await asked(pool, server))
        assert server.opened == 1


async def test_damaged_packing_is_a_broken_reply(pool):
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 5\r\n\r\n"
    async with Server(says(head + b"\x1fello")) as server:
        reply = await asked(pool, server)
        with pytest.raises(Broken):
            await reply.read()


async def test_what_comes_behind_the_end_of_a_packed_body_is_not_kept(pool):
    packed, behind = zlib.compress(b"Hello"), 16 * MAX_UNREAD_BYTES
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: deflate\r\ncontent-length: %d\r\n\r\n"
    body = packed + b"x" * behind
    async with Server(says(head % len(body) + body)) as server:
        reply = await asked(pool, server)
        assert await whole(reply) == b"Hello"
        assert reply._unpacker is not None
        assert len(reply._unpacker.unused_data) < behind / 2


async def test_an_answer_before_the_request_was_taken_ends_the_connection(pool):
    over = asyncio.Event()

    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HI)
        await over.wait()
        writer.close()

    request = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % OFFERED
    async with Server(early, says(HI)) as server:
        reply = await pool.post(server.place, request + b"x" * OFFERED, 10)
        assert await whole(reply) == b"Hi"
        assert not pool._idle
        assert await whole(await asked(pool, server)) == b"Hi"
        assert server.opened == 2
        over.set()


async def test_nobody_listens(pool):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but it does not listen
        with pytest.raises(NoConnection):
            await pool.post(Place("127.0.0.1", taken.getsockname()[1], False), ASK, 5)


async def test_a_server_that_does_not_greet_in_time(pool):
    async with Server(says(HI)) as server:
        silent = server.place._replace(tls=True)  # it waits for a request, we for its certificate
        with pytest.raises(ConnectTimeout):
            await pool.post(silent, ASK, 0.05)


async def test_closing_the_pool_closes_what_waits_and_what_is_under_way():
    pool = Connections(ssl.create_default_context())
    async with Server(says(HI), says(HI), says(CHUNKED)) as server:
        await whole(await asked(pool, server))
        first = await asked(pool, server)
        under_way = await asked(pool, server)
        await whole(first)
        await pool.aclose()
        await server.until_closed(2)
        with pytest.raises(ConnectionError):
            await under_way.read()


# ── TLS ───────────────────────────────────────────────────────────────────────────────────────


ADDRESS = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


def certified(
    folder: Path, name: x509.GeneralName = ADDRESS
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context and that of a client who trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(who, who, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([name]), False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "server.pem").write_bytes(private + pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.pem")
    return server, ssl.create_default_context(cadata=pem.decode())


async def test_a_trusted_server_is_asked_over_one_secure_connection(tmp_path):
    theirs, ours = certified(tmp_path)
    pool = Connections(ours)
    async with Server(says(HI), says(CHUNKED + b"2\r\nHi\r\n0\r\n\r\n"), tls=theirs) as server:
        for _ in range(3):
            assert await whole(await asked(pool, server)) == b"Hi"
        assert server.opened == 1
        await pool.aclose()


async def test_what_was_left_unread_pauses_neither_the_wait_for_a_request_nor_the_next_head(
    tmp_path,
):
    """The end of the connection is seen while it waits, and a head that comes in two pieces."""
    theirs, ours = certified(tmp_path)
    long = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % MAX_UNREAD_BYTES
    long += b"x" * MAX_UNREAD_BYTES

    async def in_two_pieces(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HI[:20])
        await asyncio.sleep(0.05)
        writer.write(HI[20:])

    pool = Connections(ours)
    async with Server(says(long), in_two_pieces, says_last(long), tls=theirs) as server:
        first = await asked(pool, server)
        await happened(lambda: first._response.complete)
        first.close()
        (connection,) = pool._open
        assert await whole(await asked(pool, server)) == b"Hi"
        last = await asked(pool, server)
        await happened(lambda: last._response.complete)
        last.close()
        async with asyncio.timeout(KEEPALIVE_SECONDS / 2):
            await connection.lost
        assert server.opened == 1
        await pool.aclose()


async def test_a_dot_at_the_end_of_a_name_is_for_its_look_up_alone(tmp_path, monkeypatch):
    """Such a name is absolute; certificates, and what is said in the handshake, have no dot."""
    theirs, ours = certified(tmp_path, x509.DNSName("model.example"))
    said = []
    theirs.sni_callback = lambda connection, name, context: said.append(name)
    loop, pool, looked_up = asyncio.get_running_loop(), Connections(ours), []

    async def resolved(host, port, **how):
        if host.strip(".") == "model.example":  # uvloop asks for addresses, too
            looked_up.append(host)
            host = "127.0.0.1"
        return await type(loop).getaddrinfo(loop, host, port, **how)

    monkeypatch.setattr(loop, "getaddrinfo", resolved)  # no name is known on every machine
    async with Server(says(HI), says(HI), tls=theirs) as server:
        for host in ("model.example.", "model.example"):
            assert await whole(await pool.post(server.place._replace(host=host), ASK, 10)) == b"Hi"
        await pool.aclose()
    assert looked_up == ["model.example.", "model.example"]
    assert said == ["model.example", "model.example"]


async def test_a_server_that_nobody_vouches_for_is_refused(tmp_path, pool):
    theirs, _ = certified(tmp_path)
    async with Server(says(HI), tls=theirs) as server:
        with pytest.raises(ssl.SSLCertVerificationError):
            await asked(pool, server)
        assert server.asked == 0


async def test_a_server_whose_certificate_is_for_another_name_is_refused(tmp_path):
    theirs, ours = certified(tmp_path)
    pool = Connections(ours)
    async with Server(says(HI), tls=theirs) as server:
        with pytest.raises(ssl.SSLCertVerificationError, match="localhost"):
            await pool.post(server.place._replace(host="localhost"), ASK, 10)
        assert server.asked == 0
        await pool.aclose()
