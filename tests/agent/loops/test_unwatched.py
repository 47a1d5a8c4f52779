"""Sockets that nobody watches: runs under load come now and then, and find what has come since."""

from __future__ import annotations

import asyncio

import pytest

from agent.providers.connections import KEEPALIVE_SECONDS, Connection, Reply
from tests.support.counting import python_calls
from tests.support.raw_server import CHUNKED, HI, Server, asked, says, whole


class Talk:
    """A body that the test writes while it is read."""

    async def play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        writer.write(CHUNKED)

    async def say(self, *texts: bytes) -> None:
        """Each with time for the client's event loop to see it."""
        for text in texts:
            self._writer.write(b"%x\r\n%b\r\n" % (len(text), text))
            await asyncio.sleep(0.01)

    async def hear(self, reply: Reply) -> bytes:
        """What is said while somebody waits for it."""
        reading = asyncio.ensure_future(reply.read())
        await asyncio.sleep(0)
        await self.say(b"waited for")
        return await reading

    def end(self) -> None:
        self._writer.write(b"0\r\n\r\n")

    def break_off(self) -> None:
        self._writer.transport.abort()


async def test_who_comes_now_and_then_finds_all_that_has_come(pool):
    """Without the event loop, which has its part again when somebody waits."""
    talk = Talk()
    async with Server(talk.play, says(HI)) as server:
        reply = await asked(pool, server)
        assert await talk.hear(reply) == b"waited for"
        await talk.say(b"a", b"b")
        assert reply.take() == b"ab"
        with python_calls() as names:
            for _ in range(3):
                await talk.say(b"a", b"b")
                assert reply.take() == b"ab"
        assert Connection.data_received.__qualname__ not in names
        assert reply.take() == b""
        assert await talk.hear(reply) == b"waited for"
        await talk.say(b"c")
        talk.end()
        assert await whole(reply) == b"c"
        assert await whole(await asked(pool, server)) == b"Hi"
        assert server.opened == 1


async def test_who_comes_now_and_then_finds_the_end(pool):
    talk = Talk()
    async with Server(talk.play, says(HI)) as server:
        reply = await asked(pool, server)
        await talk.say(b"a", b"b")
        talk.end()
        await asyncio.sleep(0.01)
        assert reply.take() == b"ab"
        assert reply.at_end()
        reply.close()
        assert await whole(await asked(pool, server)) == b"Hi"
        assert server.opened == 1


async def test_who_found_the_end_sees_the_connection_closed_while_it_waits(pool):
    talk = Talk()
    async with Server(talk.play) as server:
        reply = await asked(pool, server)
        await talk.say(b"a", b"b")
        talk.end()
        await asyncio.sleep(0.01)
        assert reply.take() == b"ab"
        reply.close()
        (connection,) = pool._open
        talk.break_off()
        async with asyncio.timeout(KEEPALIVE_SECONDS / 2):
            await connection.lost


@pytest.mark.parametrize("closed_by", [Talk.break_off, lambda talk: talk._writer.close()])
async def test_who_comes_now_and_then_hears_that_it_broke_off(pool, closed_by):
    talk = Talk()
    async with Server(talk.play) as server:
        reply = await asked(pool, server)
        await talk.say(b"a", b"b")
        closed_by(talk)
        await asyncio.sleep(0.01)
        reply.take()
        with pytest.raises(ConnectionError):
            await whole(reply)


async def test_a_pool_may_close_while_nobody_reads(pool):
    talk = Talk()
    async with Server(talk.play) as server:
        reply = await asked(pool, server)
        await talk.say(b"a", b"b")
        await pool.aclose()
        assert reply.take() in (b"", b"a", b"ab")
        with pytest.raises(ConnectionError):
            await whole(reply)
