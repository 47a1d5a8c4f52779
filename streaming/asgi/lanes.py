"""Django's handler on a few long-lived threads.

Stock Django makes a thread for every request and keeps it while the response streams: 300 idle
streams are 300 threads, and as many database connections once their views asked the database.
Here each request borrows one of a few single-thread executors, its lane. The threads live as long
as the server, so database connections are reused (`CONN_MAX_AGE` may be None).

A sync view that blocks holds up its lane only: new requests go where the fewest jobs wait. What
only asks the database goes where somebody is awake, since to wake a thread often costs more than
the question.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import closing, suppress
from functools import partial
from io import BytesIO
from typing import IO, Any, ParamSpec, TypeVar

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.db import DEFAULT_DB_ALIAS, close_old_connections, connections, reset_queries
from django.http import FileResponse, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix
from django.utils.log import log_response

from streaming.asgi.headers import head_of
from streaming.asgi.streams import EventStream, Request, is_stream
from streaming.asgi.wire import Message, Receive, Scope, Send
from tasks.lane import Lane, freest, lent_lane, nearest

LANES = 8
OPENING = 16
"""Streams that are on their way through Django at a time: enough to keep the lanes busy. When
hundreds come back at once the others cost nothing yet; memory that was needed once is seldom given
back."""

P = ParamSpec("P")
T = TypeVar("T")


class _Borrowed(Executor):
    """A lane in the hands of one request, from its first job on. Django's signals before and after
    a request look after the connections of its thread, which costs two hops; here the first job
    does it on its way."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = lanes
        self._lane: Lane | None = None

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if self._lane is not None:
            return self._lane.submit(fn, *args, **kwargs)
        return self._borrow(freest(self._lanes)).submit(_tidily, fn, *args, **kwargs)

    def ask(self, work: Callable[[], T]) -> asyncio.Future[T]:
        if self._lane is not None:
            return self._lane.ask(work)
        return self._borrow(nearest(self._lanes, time.monotonic())).ask(partial(_tidily, work))

    def _borrow(self, lane: Lane) -> Lane:
        lane.requests += 1
        self._lane = lane
        return lane

    def give_back(self) -> None:
        """Connections that may live for ever wait for the next request; nobody waits for others."""
        if self._lane is None:
            return
        self._lane.requests -= 1
        lasting = connections.settings[DEFAULT_DB_ALIAS]["CONN_MAX_AGE"] is None
        if not lasting:
            with suppress(RuntimeError):  # shut down before the request's end: that closed them
                self._lane.submit(close_old_connections)


def _tidily(fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """A connection that is too old, or that broke in the request before, is opened anew."""
    reset_queries()
    close_old_connections()
    return fn(*args, **kwargs)


class LaneHandler(ASGIHandler):
    """Lends each request that needs one a lane. Settings and apps must be ready before one is made.

    Between a request and its view, and behind its answer, nothing leaves the event loop.
    """

    def __init__(self, lanes: int = LANES) -> None:
        super().__init__()
        self._lanes = [Lane(f"lane-{number}") for number in range(lanes)]
        self._opening = asyncio.Semaphore(OPENING)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        borrowed = _Borrowed(self._lanes)
        request = Request(receive, send)
        lent = lent_lane.set(borrowed)
        try:
            async with ThreadSensitiveContext(executor=borrowed):
                if is_stream(scope):
                    # First: who never sends it would keep the others from their turn.
                    if not await request.take_body():
                        return
                    async with self._opening:
                        # A task of its own: what Django puts into its context goes with it.
                        await asyncio.create_task(self.handle(scope, request.receive, request))
                    scope["headers"] = ()
                else:
                    await self.handle(scope, request.receive, request)
                # Whatever its path looked like: nobody else sends what was kept.
                await request.finish()
        finally:
            lent_lane.reset(lent)
            borrowed.give_back()
            await request.forget()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As Django's, without its signals and without tasks of its own. A client who leaves ends
        a stream; an answer that is being made is made, and whoever cancels us cancels the view."""
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        with closing(body):
            if prefix := get_script_prefix(scope):
                set_script_prefix(prefix)
            request, refused = self.create_request(scope, body)
            if request is None:
                assert refused is not None
                response: HttpResponseBase = refused
            else:
                response = await self.get_response_async(request)
            try:
                if response.streaming and not isinstance(response, EventStream):
                    await self._stream(response, receive, send)
                else:
                    await self.send_response(response, send)
            finally:
                await _close(response)

    async def read_body(self, receive: Receive) -> IO[bytes]:
        """As Django's, which makes a temporary file also of what comes in one piece."""
        taken = [await receive()]
        if taken[0]["type"] == "http.request" and not taken[0].get("more_body"):
            return BytesIO(taken[0].get("body", b""))

        async def again() -> Message:
            return taken.pop() if taken else await receive()

        body: IO[bytes] = await super().read_body(again)
        return body

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        """As Django's, which takes every refusal to a thread to log it."""
        response: HttpResponseBase = await vars(self)["_middleware_chain"](request)
        if vars(request).get("_files"):
            vars(response)["_resource_closers"].append(request.close)
        if response.status_code >= 400:
            of: Any = response
            log_response("%s: %s", of.reason_phrase, request.path, response=of, request=request)
        if isinstance(response, FileResponse):
            response.block_size = self.chunk_size
        return response

    async def send_response(self, response: HttpResponseBase, send: Send) -> None:
        """A stream is kept until the handler has ended; a short answer is a head and a body."""
        if isinstance(response, EventStream) and isinstance(send, Request):
            send.keep(response)
        elif isinstance(response, HttpResponse) and self._is_short(response):
            await send(head_of(response))
            body = {"type": "http.response.body", "body": response.content, "more_body": False}
            await send(body)
        else:
            await super().send_response(response, send)

    def _is_short(self, response: HttpResponse) -> bool:
        return not response.cookies and len(response.content) <= self.chunk_size

    async def _stream(self, response: HttpResponseBase, receive: Receive, send: Send) -> None:
        """Send until the end, or until the client leaves."""
        sending = asyncio.current_task()
        assert sending is not None
        left = False

        async def listen() -> None:
            nonlocal left
            await receive()  # behind the body comes nothing but the end
            left = True
            sending.cancel()

        listening = asyncio.create_task(listen())
        try:
            await self.send_response(response, send)
            if left:
                await asyncio.sleep(0)  # our own cancellation, which came too late for the stream
        except asyncio.CancelledError:
            if not left or sending.uncancel() > 0:
                raise
        finally:
            listening.cancel()
            await asyncio.wait({listening})

    async def close(self, seconds: float) -> None:
        """Closes each lane's database connections and ends it; a blocked lane is left behind."""
        loop = asyncio.get_running_loop()
        ending = [loop.run_in_executor(lane, connections.close_all) for lane in self._lanes]
        for lane in self._lanes:
            lane.shutdown(wait=False)
        await asyncio.wait(ending, timeout=seconds)


async def _close(response: HttpResponseBase) -> None:
    """Only what holds files is closed in a thread."""
    if vars(response)["_resource_closers"]:
        await sync_to_async(response.close)()
    response.closed = True
