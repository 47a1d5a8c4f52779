"""A model on loopback that plays what the goal asks for, so many tests can share one server.

A goal that begins with `[A01/one]` plays case A01 (its run `one`) of the provider cases. A goal
that begins with the name of a script plays that script:

    pause = Hold()
    model.script("quote", ["Let me look. ", Call("read_file", path="a.txt")], ["It ", pause, "says AAA."])

Which turn of a script comes next is read off the request's history, so a request that is repeated
after a crash gets the same reply again. Every request has to pass what strict servers demand.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support import cases
from tests.support.provider_server import SSE, Request, delta
from tests.support.stub import Run, StubServer, refused

GUARDS = ("paired", "unique_ids", "args_json_object", "system_first")
PACE = 0.1
"""Cases are played so much faster than they were recorded, unless a test says otherwise."""
WORD_SECONDS = 0.002
_SCENE = re.compile(r"^\[([\w-]+(?:/[\w-]+)?)\]")


@dataclass(eq=False)
class Hold:
    """A place in a reply where the model pauses until the test lets it go on."""

    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        self.released.set()


class Call:
    """A tool call of a scripted reply."""

    def __init__(self, name: str, **arguments: Any) -> None:
        self.name = name
        self.arguments = arguments


Piece = str | Call | Hold
Turn = Sequence[Piece]


def words(count: int) -> list[Piece]:
    """The text `w0 w1 … `, a word per delta."""
    return [f"w{number} " for number in range(count)]


class Model(StubServer):
    """Cases and scripts by the goal, strict about every request."""

    def __init__(self) -> None:
        super().__init__()
        self.pace: dict[str, float] = {}
        """By case; see PACE."""
        self._scripts: dict[str, Sequence[Turn]] = {}

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def script(self, name: str, *turns: Turn) -> str:
        """Makes a script known; its name."""
        self._scripts[name] = turns
        self.runs[name] = Run(turns=[])
        return name

    async def _play(self, request: Request) -> None:
        name, position = scene_of(request.body["messages"])
        if name in self._scripts:
            await self._play_script(name, request, position)
            return
        case = name.partition("/")[0]
        if name not in self.runs:
            pace = self.pace.get(case, PACE)
            turns = [replace(turn, delay=turn.delay * pace) for turn in cases.turns(case)]
            self.runs[name] = Run(turns=turns)
        await super()._play(replace(request, path=f"/{name}/v1/chat/completions"))

    async def _play_script(self, name: str, request: Request, position: int) -> None:
        run, messages = self.runs[name], request.body["messages"]
        run.bodies.append(request.body)
        refusal = refused(GUARDS, request.body, run)
        if refusal:
            run.refusals.append(refusal)
            await request.answer({"error": {"message": refusal}}, 400)
            return
        turns = self._scripts[name]
        number = sum(message["role"] == "assistant" for message in messages[position:])
        turn = turns[number] if number < len(turns) else [f"DONE-{name}"]
        await request.head(200, SSE)
        await _send(turn, request, prefix=f"{name}-{number}")
        await request.end()
        run.played += 1


def scene_of(messages: list[dict[str, Any]]) -> tuple[str, int]:
    """What the newest request that names a scene asks for, and where it stands."""
    for position in range(len(messages) - 1, -1, -1):
        found = _SCENE.match(str(messages[position].get("content")))
        if found and messages[position]["role"] == "user":
            return found[1], position
    raise AssertionError(f"no goal names a scene: {messages}")


async def _send(turn: Turn, request: Request, prefix: str) -> None:
    calls = 0
    for piece in turn:
        if isinstance(piece, str):
            await request.events(delta(piece), delay=WORD_SECONDS)
        elif isinstance(piece, Call):
            await request.events(_call(piece, calls, f"{prefix}-{calls}"))
            calls += 1
        else:
            await _pause(piece, request)
    await request.events(delta("", "tool_calls" if calls else "stop"), "[DONE]")


def _call(call: Call, index: int, identity: str) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    entry = {"index": index, "id": identity, "type": "function", "function": function}
    return {"choices": [{"index": 0, "delta": {"tool_calls": [entry]}, "finish_reason": None}]}


async def _pause(hold: Hold, request: Request) -> None:
    """Until the test says go, or the client is gone."""
    gone = asyncio.create_task(request.until_closed())
    hold.reached.set()
    try:
        while not hold.released.is_set() and not gone.done():
            await asyncio.wait({gone}, timeout=0.01)
    finally:
        closed = gone.done()
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
    if closed:
        raise ConnectionError("the client went away")
