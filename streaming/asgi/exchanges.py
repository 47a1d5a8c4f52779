"""Open requests have an end that Django honours.

Cancelling Django's handler, as servers do when they stop, leaves the tasks inside it alone: no
`finally` of a stream ever runs. The one thing that it understands is a client who leaves. So at
shutdown, and whenever a server cancels a request, the handler is told `http.disconnect` and is
given the time to finish; then a stream is ended properly, without a terminal event, and a request
without an answer yet gets 503.
"""

from __future__ import annotations

import asyncio
import logging

from streaming.asgi.wire import App, Message, Receive, Scope, Send, send_error

logger = logging.getLogger(__name__)

RETRY_AFTER = ((b"retry-after", b"2"),)


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
            if not self._draining:
                exchange.end()
            await asyncio.wait({task})  # the server gave up, but its generators must end
            raise

    async def _run(self, scope: Scope, exchange: _Exchange) -> None:
        await self._app(scope, exchange.receive, exchange.send)
        await exchange.finish()


class _Exchange:
    """One request and its response, seen from between server and handler."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._waiting: asyncio.Task[object] | None = None
        self._ended = False
        self._started = False
        self._open_ended = False

    def end(self) -> None:
        """The handler's next, or present, `receive()` says that the client left."""
        if self._ended:
            return
        self._ended = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def receive(self) -> Message:
        # Waiting for the server and for end() would take one more task per request. Instead
        # end() cancels whoever waits here, and that cancellation stops here.
        if self._ended:
            return {"type": "http.disconnect"}
        task = self._waiting = asyncio.current_task()
        assert task is not None
        try:
            return await self._receive()
        except asyncio.CancelledError:
            if self._cancelled_by_us_alone(task):
                task.uncancel()
                return {"type": "http.disconnect"}
            raise
        finally:
            self._waiting = None

    def _cancelled_by_us_alone(self, task: asyncio.Task[object]) -> bool:
        return self._ended and task.cancelling() == 1

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._started = True
            self._open_ended = all(
                name.lower() != b"content-length" for name, _ in message["headers"]
            )
        elif not message.get("more_body", False):
            self._open_ended = False
        await self._send(message)

    async def finish(self) -> None:
        """What a handler that we ended left undone."""
        if not self._ended:
            return
        if not self._started:
            await _refuse(self._send)
        elif self._open_ended:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


async def _refuse(send: Send) -> None:
    await send_error(send, 503, "shutting_down", "The server is stopping; try again.", RETRY_AFTER)
