"""A real HTTP server on loopback that behaves like the model servers of this world, by path.

    async with ProviderServer() as server:
        provider = OpenAIProvider(client, base_url=server.url("hang"), …)

`server.url(name)` is a base URL; a POST to `…/chat/completions` below it plays the scene of that
name (see `SCENES`). `serving()` runs one in a thread, for tests without an event loop. Every
request is kept in `requests`; `closed` counts connections that the client closed on a scene that
was still going on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

SSE = {"content-type": "text/event-stream"}
JSON = {"content-type": "application/json"}


@dataclass(kw_only=True)
class Request:
    """What came in, and the way back."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    reader: asyncio.StreamReader = field(repr=False)
    writer: asyncio.StreamWriter = field(repr=False)

    @property
    def scene(self) -> str:
        return self.path.strip("/").split("/")[0]

    async def head(self, status: int, headers: dict[str, str]) -> None:
        """Begin a chunked answer."""
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in headers.items())]
        await self.send_raw("\r\n".join([*lines, "transfer-encoding: chunked", "", ""]).encode())

    async def chunk(self, data: bytes) -> None:
        await self.send_raw(b"%x\r\n%s\r\n" % (len(data), data))

    async def events(self, *values: Any, delay: float = 0.0) -> None:
        for value in values:
            text = value if isinstance(value, str) else json.dumps(value)
            await self.chunk(f"data: {text}\n\n".encode())
            await asyncio.sleep(delay)

    async def end(self) -> None:
        await self.send_raw(b"0\r\n\r\n")

    async def answer(
        self, body: Any, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        """A whole body at once: bytes as they are, anything else as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        await self.head(status, JSON if headers is None else headers)
        if data:
            await self.chunk(data)
        await self.end()

    async def send_raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until_closed(self) -> None:
        """Say nothing until the client goes away."""
        while await self.reader.read(1024):
            pass


def delta(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


def whole(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


Scene = Callable[[Request], Awaitable[None]]


async def normal(request: Request) -> None:
    """Streams when asked to, else one document."""
    if not request.body.get("stream"):
        await request.answer(whole("Hello."))
        return
    await request.head(200, SSE)
    await request.events(delta("Hel"), delta("lo."), delta("", "stop"), "[DONE]")
    await request.end()


async def slow(request: Request) -> None:
    await request.head(200, SSE)
    await request.events(*(delta(f"{n} ") for n in range(10)), delta("", "stop"), delay=0.02)
    await request.end()


async def hang(request: Request) -> None:
    """Some text, then silence with an open connection."""
    await request.head(200, SSE)
    await request.events(delta("Hel"))
    await request.until_closed()


async def mute(request: Request) -> None:
    """Not even a status line."""
    await request.until_closed()


async def lingering(request: Request) -> None:
    """A finish reason, but neither `[DONE]` nor an end."""
    await request.head(200, SSE)
    await request.events(delta("Hello."), delta("", "stop"))
    await request.until_closed()


async def chatty(request: Request) -> None:
    """Comments for ever after the finish reason."""
    await request.head(200, SSE)
    await request.events(delta("Hello."), delta("", "stop"))
    while not request.writer.is_closing():
        await request.chunk(b": ping\n\n")
        await asyncio.sleep(0.01)


async def cut(request: Request) -> None:
    """Reset in the middle of an event."""
    await request.head(200, SSE)
    await request.events(delta("Hel"))
    await request.chunk(b'data: {"choi')
    await asyncio.sleep(0.02)
    request.writer.transport.abort()


async def dropped(request: Request) -> None:
    """Closed without a byte."""
    request.writer.transport.abort()


async def short(request: Request) -> None:
    """A clean end of the connection, but no end of the reply."""
    await request.head(200, SSE)
    await request.events(delta("Hel"))
    await request.end()


async def limited(request: Request) -> None:
    error = {"error": {"message": "Slow down", "type": "requests"}}
    await request.answer(error, 429, JSON | {"retry-after": "2"})


async def malformed(request: Request) -> None:
    await request.send_raw(b"NOT HTTP AT ALL\r\n\r\n")


async def damaged(request: Request) -> None:
    await request.head(200, SSE)
    await request.events(delta("Hel"), '{"choices":[{"del', delta("", "stop"))
    await request.end()


async def proxy(request: Request) -> None:
    page = b"<html><head><title>502 Bad Gateway</title></head><body><h1>nginx</h1></body></html>"
    await request.answer(page, 502, {"content-type": "text/html"})


async def login(request: Request) -> None:
    page = b"<!doctype html><title>Please sign in</title>"
    await request.answer(page, 200, {"content-type": "text/html"})


async def unauthorized(request: Request) -> None:
    key = request.headers.get("authorization", "").removeprefix("Bearer ")
    await request.answer(
        {"error": {"message": f"Incorrect API key provided: {key} ({key[:7]}***)."}}, 401
    )


async def document(request: Request) -> None:
    """One document although a stream was asked for."""
    await request.answer(whole("Hello."))


async def disguised(request: Request) -> None:
    """A stream under the wrong content type."""
    await request.head(200, JSON)
    await request.events(delta("Hello."), delta("", "stop"), "[DONE]")
    await request.end()


async def truncated(request: Request) -> None:
    await request.answer(json.dumps(whole("Hello.")).encode()[:40])


async def streamless(request: Request) -> None:
    if request.body.get("stream"):
        await request.answer(
            {"error": {"message": "Streaming is not supported by this model"}}, 400
        )
    else:
        await request.answer(whole("Hello."))


async def flood(request: Request) -> None:
    """More than anybody should read."""
    await request.head(200, SSE)
    block = b": " + b"x" * 65_000 + b"\n\n"
    while not request.writer.is_closing():
        await request.chunk(block)


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        *(normal, slow, hang, mute, lingering, chatty, cut, dropped, short, limited, malformed),
        *(damaged, proxy, login, unauthorized, document, disguised, truncated, streamless, flood),
    )
}


class ProviderServer:
    """Plays scenes to whoever connects. Extra scenes may be given by name."""

    def __init__(self, **scenes: Scene) -> None:
        self._scenes = SCENES | scenes
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None
        self._closing = False
        self.requests: list[Request] = []
        self.connections = 0
        self.closed = 0
        self.port = 0

    def url(self, scene: str) -> str:
        return f"http://127.0.0.1:{self.port}/{scene}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._server is not None
        self._server.close()
        self._closing = True  # since Python 3.12 the end waits for every connection
        for writer in self._open.values():
            writer.transport.abort()
        await asyncio.gather(*self._open)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._closing:
            writer.transport.abort()
            return
        self._open[task] = writer
        self.connections += 1
        try:
            while request := await read_request(reader, writer):
                self.requests.append(request)
                await self._play(request)
                self.closed += reader.at_eof()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.closed += 1
        finally:
            del self._open[task]
            writer.close()

    async def _play(self, request: Request) -> None:
        scene = self._scenes.get(request.scene)
        if scene is None or not request.path.endswith("/chat/completions"):
            await request.answer({"error": {"message": "no such route"}}, 404)
            return
        await scene(request)


async def read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> Request | None:
    line = await reader.readline()
    if not line.strip():
        return None
    headers = {}
    while field_line := (await reader.readline()).decode("latin-1").strip():
        name, _, value = field_line.partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(
        path=line.decode("latin-1").split(" ")[1].partition("?")[0],
        headers=headers,
        body=json.loads(body or b"{}"),
        reader=reader,
        writer=writer,
    )


S = TypeVar("S", bound=ProviderServer)


@contextlib.contextmanager
def serving(server: S) -> Iterator[S]:
    """The server in a thread of its own, for as long as the block lasts."""
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with server:
            ready.set()
            await stop.wait()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run, name="provider-server")
    thread.start()
    ready.wait(10)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
