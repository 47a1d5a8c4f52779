"""Any OpenAI-compatible `/chat/completions` endpoint: one attempt per call, streamed or not.

1. What the body is decides how it is read, not what the headers say: servers stream under
   `application/json` and send JSON or a proxy's web page under `text/event-stream`.
2. Every failure leaves as a ProviderError with a hint and without the key; its cause is cut off,
   because the texts of HTTP libraries carry addresses and headers.
3. A refusal that names something optional is learnt (`quirks`) and marked `adapted`.
4. Leaving the generator, by cancel or by close, closes the connection.
5. Limits of time hold, here and for whoever waits, also when bytes come faster than they are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from agent.errors import ProviderError
from agent.events import Delta
from agent.messages import Reply
from agent.providers import ModelRequest
from agent.providers.assembler import Assembler
from agent.providers.client import Answer, Client
from agent.providers.failures import failure, failure_of, is_error, readable
from agent.providers.quirks import Quirks, learn
from agent.providers.reading import BodyReader
from agent.providers.transport import (
    FAILURES,
    credentials,
    endpoint,
    transport_failure,
)
from agent.providers.waiting import retry_after
from agent.providers.wire import Bodies, request_body
from agent.scrub import Scrubber
from agent.waits import Limit, Waits

MAX_ERROR_BYTES = 64 * 1024
ERROR_BODY_SECONDS = 10.0
TAIL_SECONDS = 2.0
"""After a finish reason only usage and `[DONE]` can follow; some servers never close."""
DONE_SECONDS = 0.02
"""After `[DONE]` only the end can follow; seeing it keeps the connection usable."""
_LEARNABLE = frozenset({None, 400, 404, 405, 415, 422, 500, 501})
_ABOUT_THE_REQUEST = frozenset(
    {"provider_refused", "provider_model", "provider_overloaded", "provider_tools"}
)


class OpenAIProvider:
    """A model behind an OpenAI-compatible endpoint. The client is shared and not closed here."""

    def __init__(
        self,
        client: Client,
        *,
        base_url: str,
        model: str,
        api_key: str = "",
        stream: bool = True,
        first_byte_seconds: float = 120.0,
        idle_seconds: float = 60.0,
        connect_seconds: float = 10.0,
        quirks: Quirks | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.quirks = quirks or Quirks()
        """What was known or learnt so far; worth keeping with the model profile."""
        self._stream = stream
        self._client = client
        self._base_url = base_url.strip()
        self._api_key = api_key.strip()
        self._first_byte_seconds = first_byte_seconds
        self._idle_seconds = idle_seconds
        self._connect_seconds = connect_seconds
        self._options = dict(options or {})
        self._bodies = Bodies(model, self._options)
        self._scrub = Scrubber(self._api_key)

    async def aclose(self) -> None:
        """Nothing is held between calls; the connections belong to the client."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Ask once; see `agent.providers.Provider`."""
        quirks = self.quirks.evolve(stream=self.quirks.stream and self._stream)
        content = self._bodies.encoded(request, quirks)
        assembler = self._assembler(request, len(content))
        reader = BodyReader(assembler)
        limit = Limit(asyncio.get_running_loop().time() + self._first_byte_seconds)
        try:
            answer = await self._answer(content, limit)
            try:
                patience, waits = Patience(self._first_byte_seconds), Waits(limit)
                read = await self._read(answer, assembler, patience, waits)
                while read:
                    for delta in reader.feed(read):
                        yield delta
                    quick = not assembler.settled and waits.may_skip()
                    read = answer.take() if quick else b""
                    read = read or await self._read(answer, assembler, patience, waits)
            finally:
                answer.close()
            for delta in reader.close():
                yield delta
            rest, reply = assembler.finish()
        except ProviderError as error:
            raise self._told(error, quirks, request) from None
        if assembler.ended_unopened:
            self.quirks.think_open = True
        for delta in rest:
            yield delta
        yield reply

    def _assembler(self, request: ModelRequest, sent: int) -> Assembler:
        return Assembler(
            request.step,
            request.new_block_id,
            input_chars=sent,
            think_open=self.quirks.think_open,
            scrub=self._scrub,
            tools=frozenset([tool.name for tool in request.tools]),
        )

    # ── the connection ────────────────────────────────────────────────────────────────────────

    async def _answer(self, content: bytes, limit: Limit) -> Answer:
        """One that is no refusal, its body not read yet; to be closed by the caller."""
        try:
            url, headers = endpoint(self._base_url), self._headers()
            with limit:
                answer = await self._client.post(url, content, headers, self._connect_seconds)
        except FAILURES as error:
            raise transport_failure(error, self._base_url, self._first_byte_seconds) from None
        if 200 <= answer.status < 300:
            return answer
        try:
            raise await self._refusal(answer)
        finally:
            answer.close()

    def _headers(self) -> dict[str, str]:
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",
        }
        if self._api_key:
            self._api_key.encode("ascii")  # anything else would be sent in some encoding
            name = self.quirks.key_header.lower()
            prefix = "Bearer " if name == "authorization" else ""
            headers[name] = prefix + self._api_key
        elif basic := credentials(self._base_url):
            headers["authorization"] = basic
        return headers

    async def _read(
        self, answer: Answer, assembler: Assembler, patience: Patience, waits: Waits
    ) -> bytes:
        """The body as it arrives, empty at its end. Silence is an error, unless the reply may end
        here."""
        until = None if answer.at_end() else patience.until(assembler)
        if until is None:
            return b""
        try:
            read = await waits.on(answer.read(), until)
        except FAILURES as error:
            if assembler.ended:
                return b""
            raise transport_failure(error, self._base_url, patience.seconds, reading=True) from None
        patience.seconds = self._idle_seconds
        return read

    # ── refusals ──────────────────────────────────────────────────────────────────────────────

    async def _refusal(self, answer: Answer) -> ProviderError:
        said, body = readable(await self._error_body(answer))
        wait = retry_after(answer.headers)
        if is_error(body):
            return failure_of(body, answer.status, wait)
        if 300 <= answer.status < 400:
            said = f"it redirects to {answer.headers.get('location', 'another address')}"
        return failure(said, status=answer.status, retry_after=wait)

    async def _error_body(self, answer: Answer) -> bytes:
        """Its beginning; a server that fails may well fail to say why."""
        body = bytearray()
        try:
            async with asyncio.timeout(ERROR_BODY_SECONDS):
                while len(body) <= MAX_ERROR_BYTES and (read := await answer.read()):
                    body += read
        except FAILURES:
            pass
        return bytes(body[:MAX_ERROR_BYTES])

    def _told(self, error: ProviderError, sent: Quirks, request: ModelRequest) -> ProviderError:
        """The error without keys; marked when there is something else to try at once."""
        learnt = None
        if error.status in _LEARNABLE and error.code in _ABOUT_THE_REQUEST:
            body = request_body(request, self.model, sent, self._options)
            learnt = learn(sent, str(error), body)
        if learnt is not None:
            self.quirks.adopt(sent, learnt)
        return type(error)(
            self._scrub(str(error)),
            code=error.code,
            hint=error.hint,
            status=error.status,
            retry_after=error.retry_after,
            adapted=learnt is not None,
        )


class Patience:
    """Until when to wait for the next read."""

    def __init__(self, seconds: float, now: Callable[[], float] | None = None) -> None:
        self.seconds = seconds
        self._now = now or asyncio.get_running_loop().time
        self._last: float | None = None
        self._progress = -1

    def until(self, assembler: Assembler) -> float | None:
        """A time of the loop's clock; None when the reply has ended and its tail took too long.

        Some servers write a finish reason into every chunk: text behind it means that it goes on.
        """
        now = self._now()
        if assembler.progress != self._progress:
            self._progress, self._last = assembler.progress, None
        if not assembler.settled:
            return now + self.seconds
        self._last = self._last or now + TAIL_SECONDS
        if now >= self._last:
            return None
        return min(self._last, now + DONE_SECONDS) if assembler.done else self._last
