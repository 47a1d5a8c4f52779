"""Turns of a scripted model that reads and writes, ready made or to order."""

from __future__ import annotations

from agent.providers.scripted import ScriptedCall, Turn

DONE = Turn(text="Done.")
WRITE = Turn(
    calls=(ScriptedCall(name="write_file", arguments={"path": "out.md", "content": "# R\n"}),)
)
READ = Turn(calls=(ScriptedCall(name="read_file", arguments={"path": "a.txt"}),))


def read(path: str = "a.txt", id: str = "") -> ScriptedCall:
    return ScriptedCall(name="read_file", arguments={"path": path}, id=id)


def write(content: str = "new", path: str = "out.txt", id: str = "") -> ScriptedCall:
    return ScriptedCall(name="write_file", arguments={"path": path, "content": content}, id=id)


def writes(path: str = "out.md", content: str = "one\n") -> Turn:
    return calls(write(content, path))


def calls(*wanted: ScriptedCall) -> Turn:
    return Turn(calls=wanted)
