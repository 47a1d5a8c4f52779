"""Open requests have an end that Django honours.

Servers cancel their requests when they stop, and then nothing can be sent any more. So at shutdown a
handler that listens is told `http.disconnect` and ends its stream properly, without a terminal event;
one that makes an answer has the time to finish it, then it is cancelled and the answer is 503. Where
the server itself gives a request up, both happen at once.
"""

from __future__ import annotations

import asyncio
import logging

from streaming.asgi.wire import App, Message, Receive, Scope, Send, send_error

logger = logging.getLogger(__name__)

RETRY_AFTER = ((b"retry-after", b"2"),)
LATE_SECONDS = 0.25
"""What a cancelled answer gets to say that it is none."""


class OpenExchanges:
    """Runs each request as a task of its own and can end them all."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._open: dict[asyncio.Task[None], _Exchange] = {}
        self._draining = False
        self._closed = False

    def begin_draining(self) -> None:
        """From now on a server that cancels its requests waits for `close()` to end them."""
        self._draining = True

    async def close(self, seconds: float) -> None:
        """Ends what is open; what does not end in time is cancelled."""
        self._closed = True
        for exchange in self._open.values():
            exchange.end()
        tasks = set(self._open)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=LATE_SECONDS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._closed:
            await _refuse(send)
            return
        exchange = _Exchange(receive, send)
        task = asyncio.create_task(self._run(scope, exchange))
        self._open[task] = exchange
        task.add_done_callback(self._open.pop)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if not (self._draining or exchange.end()):
                task.cancel()
            await asyncio.wait({task})  # the server gave up, but its generators must end
            raise

    async def _run(self, scope: Scope, exchange: _Exchange) -> None:
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except asyncio.CancelledError:
            if not exchange.ended:
                raise
        await exchange.finish()


class _Exchange:
    """One request and its response, seen from between server and handler."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self.ended = False
        self._waiting: asyncio.Task[object] | None = None
        self._started = False
        self._open_ended = False

    def end(self) -> bool:
        """The handler's next, or present, `receive()` says that the client left. False: it makes
        an answer and does not listen."""
        if self.ended:
            return True
        self.ended = True
        if self._waiting is None:
            return False
        self._waiting.cancel()
        return True

    async def receive(self) -> Message:
        # Waiting for the server and for end() would take one more task per request. Instead
        # end() cancels whoever waits here, and that cancellation stops here.
        if self.ended:
            return {"type": "http.disconnect"}
        # Not by a name of this frame: a task that was cancelled keeps the frames where it stood.
        self._waiting = asyncio.current_task()
        try:
            return await self._receive()
        except asyncio.CancelledError:
            if self._cancelled_by_us_alone():
                return {"type": "http.disconnect"}
            raise
        finally:
            self._waiting = None

    def _cancelled_by_us_alone(self) -> bool:
        """If so, it counts no more."""
        task = asyncio.current_task()
        assert task is not None
        alone = self.ended and task.cancelling() == 1
        if alone:
            task.uncancel()
        return alone

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._started = True
            self._open_ended = True
            for name, _ in message["headers"]:
                if name.lower() == b"content-length":
                    self._open_ended = False
        elif not message.get("more_body", False):
            self._open_ended = False
        await self._send(message)

    async def finish(self) -> None:
        """What a handler that we ended left undone."""
        if not self.ended:
            return
        if not self._started:
            await _refuse(self._send)
        elif self._open_ended:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


async def _refuse(send: Send) -> None:
    await send_error(send, 503, "shutting_down", "The server is stopping; try again.", RETRY_AFTER)
