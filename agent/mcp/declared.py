"""MCP servers as the settings declare them: how each is reached, and which of its tools may be used
with which capability. Pure; complaints are sentences that say what to write.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from agent.bounds import MEMORY, Bounds
from agent.errors import ToolFailed
from agent.policy import ALLOWED_ACTIONS, ASKED_ACTIONS, CAPABILITY
from agent.scrub import Scrubber
from agent.urls import Location, locate

MAX_NAME = 64
"""Characters of a tool's name that every provider takes."""
MAX_TOOL = 200
"""Characters of a tool's name as its server calls it."""
MIN_SECONDS = 0.1
MAX_SECONDS = 3600
MIN_MEMORY_MB = 16
MAX_MEMORY_MB = 1024 * 1024
RISKS = ("low", "medium", "high")
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,23}")
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9-]+")
_REFERENCE = re.compile(r"(?P<scheme>[A-Za-z]+ )?env:(?P<name>[A-Za-z_][A-Za-z0-9_]*)")
_OURS = frozenset({"SECRET_KEY", "DATABASE_URL", "REDIS_URL", "EMAIL_URL"})
_PREFIX = "PILOTHOUSE_"
_MB = 1024 * 1024
_ITS_OWN = frozenset({"accept", "content-length", "content-type", "host", "transfer-encoding"})


class Misdeclared(ValueError):
    """The settings declare something that cannot be."""


@dataclass(frozen=True, kw_only=True)
class DeclaredTool:
    """A tool that may be used."""

    name: str
    """As the server calls it."""
    offered_as: str
    """As models and rules call it: unique, and a name that every provider takes."""
    capability: str
    risk: str
    paths: tuple[str, ...] = ()
    """Arguments that are paths of the workspace, or lists of them."""

    @property
    def reads(self) -> bool:
        """It has no effect, says who declared it."""
        return self.capability.rpartition(":")[2] in ALLOWED_ACTIONS


@dataclass(frozen=True, kw_only=True, eq=False)
class Server:
    """One server. It has a `command` or a `location`."""

    name: str
    tools: Mapping[str, DeclaredTool]
    """By the server's own names."""
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Beside what every child gets."""
    sandbox: bool = True
    network: bool = False
    reads: tuple[Path, ...] = ()
    """Directories that it sees in the sandbox, beside the system and the workspace."""
    bounds: Bounds = field(default_factory=Bounds)
    location: Location | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    private: bool = False
    """Its address may be one of a private network."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values of `env` and `headers` that nobody may read."""
    seconds: float = 60
    """Of one call."""
    start_seconds: float = 20

    @property
    def writes(self) -> bool:
        """It is a program that may change files of the workspace."""
        return self.location is None and not all(tool.reads for tool in self.tools.values())

    @cached_property
    def scrub(self) -> Callable[[str], str]:
        """Takes the server's secrets out of what it says."""
        scrubbers = [Scrubber(secret) for secret in self.secrets]
        return lambda text: reduce(lambda said, each: each.known(said), scrubbers, text)

    @property
    def where(self) -> str:
        """For people, and for the log: nothing secret."""
        return self.location.origin if self.location else Scrubber()(self.whole)

    @property
    def whole(self) -> str:
        """For digests only: the path of an address or an argument may be as good as a key."""
        return self.location.url if self.location else " ".join(self.command)


class _ToolEntry(msgspec.Struct, forbid_unknown_fields=True):
    capability: str
    paths: list[str] = []
    risk: str = ""


class _ServerEntry(msgspec.Struct, forbid_unknown_fields=True):
    tools: dict[str, _ToolEntry]
    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    sandbox: bool = True
    network: bool = False
    reads: list[str] = []
    memory_mb: int = MEMORY // _MB
    url: str = ""
    headers: dict[str, str] = {}
    private: bool = False
    seconds: float = 60
    start_seconds: float = 20


def read_servers(text: str, variables: Mapping[str, str]) -> dict[str, Server]:
    """The servers that JSON text declares, by name; `variables` is where `env:NAME` is looked up.
    Raises Misdeclared."""
    try:
        entries = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError as error:
        raise Misdeclared(
            f"write a JSON object of servers, or the path of a file with one ({error})"
        ) from None
    servers = {
        name: _Reader(name, _entry(name, raw), variables).server() for name, raw in entries.items()
    }
    offered = [tool.offered_as for server in servers.values() for tool in server.tools.values()]
    for name in offered:
        if offered.count(name) > 1:
            raise Misdeclared(
                f"two tools would both be called {name}; give one server another name"
            )
    return servers


def offered_name(server: str, tool: str) -> str:
    """`mcp_<server>_<tool>`; what no provider would take is replaced, and a digest keeps it unique."""
    whole = f"mcp_{server}_{tool}"
    if len(whole) <= MAX_NAME and _PLAIN.fullmatch(tool):
        return whole
    digest = hashlib.sha256(f"{server}\n{tool}".encode("utf-8", "replace")).hexdigest()[:8]
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", whole)
    return f"{plain[: MAX_NAME - 9]}_{digest}"


def _entry(name: str, raw: msgspec.Raw) -> _ServerEntry:
    try:
        return msgspec.json.decode(raw, type=_ServerEntry)
    except msgspec.DecodeError as error:
        said, _, where = str(error).partition(" - at ")
        said = said.replace("Object contains unknown field", "there is no field")
        said = said.replace("Object missing required field", "write the field")
        place = where.strip("`").removeprefix("$").strip(".").replace("[...]", ".*")
        beside = f" (in {place})" if place else ""
        raise Misdeclared(f"{name}: {said}{beside}; docs/mcp.md shows how it is written") from None


class _Reader:
    """Reads one entry."""

    def __init__(self, name: str, entry: _ServerEntry, variables: Mapping[str, str]) -> None:
        self._name = name
        self._entry = entry
        self._variables = variables
        self._secrets: list[str] = []

    def server(self) -> Server:
        entry = self._entry
        if not _NAME.fullmatch(self._name):
            self._refuse(
                "a server's name has up to 24 of a-z, 0-9, _ and -, and begins with a letter"
            )
        if bool(entry.command) == bool(entry.url):
            self._refuse("write either command (a program) or url (an address)")
        if not entry.tools:
            self._refuse('write tools: {"name": {"capability": "notes:read"}}; others are not used')
        for what, seconds in (("seconds", entry.seconds), ("start_seconds", entry.start_seconds)):
            if not MIN_SECONDS <= seconds <= MAX_SECONDS:
                self._refuse(f"{what}: write a number of {MIN_SECONDS} to {MAX_SECONDS:,}")
        how = self._program() if entry.command else self._address()
        tools = {name: self._tool(name, each) for name, each in entry.tools.items()}
        return Server(
            name=self._name,
            tools=tools,
            seconds=entry.seconds,
            start_seconds=entry.start_seconds,
            secrets=tuple(self._secrets),
            **how,
        )

    def _tool(self, name: str, entry: _ToolEntry) -> DeclaredTool:
        if not 0 < len(name) <= MAX_TOOL:
            self._refuse(f"tools: a name has 1 to {MAX_TOOL} characters")
        action = entry.capability.rpartition(":")[2]
        if (
            not CAPABILITY.fullmatch(entry.capability)
            or action not in ALLOWED_ACTIONS | ASKED_ACTIONS
        ):
            actions = ", ".join(sorted(ALLOWED_ACTIONS | ASKED_ACTIONS))
            self._refuse(
                f"tools.{name}.capability: write resource:action, such as notes:read; the action is"
                f" one of {actions}"
            )
        if entry.risk and entry.risk not in RISKS:
            self._refuse(f"tools.{name}.risk: write {', '.join(RISKS[:-1])} or {RISKS[-1]}")
        return DeclaredTool(
            name=name,
            offered_as=offered_name(self._name, name),
            capability=entry.capability,
            risk=entry.risk or ("low" if action in ALLOWED_ACTIONS else "medium"),
            paths=tuple(dict.fromkeys(entry.paths)),
        )

    def _program(self) -> dict[str, Any]:
        entry = self._entry
        if entry.headers or entry.private:
            self._refuse("headers and private belong to a server with a url")
        if any("\0" in word for word in (entry.command, *entry.args)):
            self._refuse("command and args: a NUL cannot be in them")
        for name in entry.env:
            if not _VARIABLE.fullmatch(name):
                self._refuse(f"env: {name!r} is not the name of a variable")
        if not MIN_MEMORY_MB <= entry.memory_mb <= MAX_MEMORY_MB:
            self._refuse(f"memory_mb: write a number of {MIN_MEMORY_MB} to {MAX_MEMORY_MB:,}")
        return {
            "command": (entry.command, *entry.args),
            "env": {name: self._value("env", name, text) for name, text in entry.env.items()},
            "sandbox": entry.sandbox,
            "network": entry.network,
            "reads": tuple(map(self._directory, entry.reads)),
            "bounds": Bounds(memory=entry.memory_mb * _MB),
        }

    def _address(self) -> dict[str, Any]:
        entry = self._entry
        of_programs = ("args", "env", "sandbox", "network", "reads", "memory_mb")
        plain = _ServerEntry(tools={})
        if any(getattr(entry, name) != getattr(plain, name) for name in of_programs):
            *names, last = of_programs
            self._refuse(f"{', '.join(names)} and {last} belong to a server with a command")
        try:
            location = locate(entry.url)
        except ToolFailed as refusal:
            self._refuse(f"url: {refusal}")
        if entry.headers and location.scheme == "http" and not entry.private:
            self._refuse("url: headers go over https only; write https://, or private: true")
        for name in entry.headers:
            if not _HEADER.fullmatch(name) or name.lower() in _ITS_OWN:
                self._refuse(f"headers: {name!r} cannot be set")
        headers = {name: self._value("headers", name, text) for name, text in entry.headers.items()}
        return {"location": location, "headers": headers, "private": entry.private}

    def _value(self, place: str, name: str, text: str) -> str:
        """The text itself, or the variable that `env:NAME` (`Bearer env:NAME`) names."""
        reference = _REFERENCE.fullmatch(text)
        if reference is None:
            if not all(" " <= character <= "~" for character in text):
                self._refuse(f"{place}.{name}: write one line of ASCII, or env:NAME")
            return text
        wanted = reference["name"]
        if wanted in _OURS or wanted.startswith(_PREFIX):
            self._refuse(f"{place}.{name}: {wanted} is a secret of Pilothouse itself")
        value = self._variables.get(wanted, "").strip()
        if not value or not value.isprintable():
            self._refuse(
                f"{place}.{name}: the variable {wanted} is not set, or not one line of text"
            )
        self._secrets.append(value)
        return (reference["scheme"] or "") + value

    def _directory(self, text: str) -> Path:
        path = Path(text)
        if not path.is_absolute() or ".." in path.parts or not path.is_dir():
            self._refuse(f"reads: {text} is not a folder; write absolute paths")
        return path

    def _refuse(self, why: str) -> NoReturn:
        raise Misdeclared(f"{self._name}: {why}")
