"""What one server wants differently, as data: set in a model profile or learnt from a refusal.

`learn()` reads a refusal and names the one change that may help. Each quirk only ever moves
forward, so a server that refuses everything is asked a bounded number of times.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec

NO_CONTENT_FILLER = "…"


class Quirks(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How requests to this server differ from the usual. Shared by all who ask one server."""

    stream: bool = True
    """False when the server cannot stream."""
    empty_content: str | None = None
    """The content of an assistant message that only calls tools: null, "" or a filler."""
    reasoning_field: str = ""
    """The message field in which reasoning must be handed back with tool calls; "" is none."""
    system_role: str = "system"
    """`user` puts the system prompt before the first user message."""
    short_ids: bool = False
    """Tool call ids must be nine letters or digits."""
    alternate: bool = False
    """No two messages of a person in a row: they are sent as one. Nor one right behind a result."""
    tool_names: bool = False
    """A result names its tool."""
    bare_calls: bool = False
    """A message that calls tools says nothing besides."""
    signatures: bool = False
    """Calls that another model made need a signature all the same."""
    plain_schemas: tuple[str, ...] = ()
    """Keywords that are left out of the tools' schemas."""
    description_chars: int = 0
    """Of a tool's description at most; 0 is no limit. Those of MCP servers are long."""
    think_open: bool = False
    """The model's text starts inside its reasoning and only closes it: `…</think>answer`."""
    key_header: str = "authorization"
    """The header for the key; any other than `authorization` carries it bare."""
    dropped: tuple[str, ...] = ()
    """Optional fields that the server refuses."""
    renamed: dict[str, str] = {}
    """Optional fields that the server knows by another name."""

    def evolve(self, **changes: Any) -> Quirks:
        return msgspec.structs.replace(self, **changes)

    def adopt(self, before: Quirks, after: Quirks) -> None:
        """Take over what was learnt; others may have learnt something else meanwhile."""
        self.dropped = tuple(dict.fromkeys((*self.dropped, *after.dropped)))
        self.renamed = {**self.renamed, **after.renamed}
        schemas = (*self.plain_schemas, *after.plain_schemas)
        self.plain_schemas = tuple(dict.fromkeys(schemas))
        for name in _LEARNT:
            if getattr(after, name) != getattr(before, name):
                setattr(self, name, getattr(after, name))


_LEARNT = (
    *("stream", "empty_content", "reasoning_field", "system_role", "short_ids", "alternate"),
    *("tool_names", "bare_calls", "signatures", "think_open", "description_chars"),
)
_MESSAGE_FIELDS = ("reasoning_content", "reasoning", "reasoning_details", "extra_content")
_REQUIRED = {"model", "messages", "stream", "tools"}
_OTHER_NAME = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}
_NO_STREAM = re.compile(
    r"stream(ing)?\b.{0,60}(not|n't|un)\W?(be )?(support|allow|available|enabled|true)"
    r"|(not|n't) support.{0,30}stream(ing)?\b|unsupported.{0,30}stream(ing)?\b"
    r"|stream\b.{0,20}must be (set to )?false|must be verified to stream",
    re.IGNORECASE | re.DOTALL,
)
_REASONING = re.compile(
    r"\b(reasoning_content|reasoning_details|reasoning|thinking)\b.{0,80}"
    r"(pass|back|required|missing|must(?! not)|expected)"
    r"|missing.{0,20}\b(reasoning_content|reasoning_details|reasoning)\b",
    re.IGNORECASE | re.DOTALL,
)
_REASONING_FIELD = re.compile(r"\b(reasoning_content|reasoning_details)\b", re.IGNORECASE)
"""Certainly a field, where `thinking` may be the mode that wants it."""
_NULL = re.compile(
    r"content.{0,80}(\bnil\b|\bnull\b|\bnone\b|required|missing|valid string|a string)"
    r"|(\bnull\b|\bnone\b|missing).{0,40}content|NoneType",
    re.IGNORECASE | re.DOTALL,
)
_EMPTY = re.compile(
    r"content.{0,60}(non-?empty|not be (empty|blank)|is (empty|blank)|at least 1|too short)"
    r"|(empty|blank|whitespace).{0,20}content",
    re.IGNORECASE | re.DOTALL,
)
_SYSTEM = re.compile(
    r"(system|developer).{0,30}(not.{0,12}(support|allow)|unsupported)"
    r"|(unsupported|invalid).{0,30}(role|system)",
    re.IGNORECASE | re.DOTALL,
)
_OTHER_ROLES = re.compile(r"only (?!.*system).{0,40}roles? (is|are) supported", re.IGNORECASE)
"""Templates name the roles that they know."""
_ALTERNATE = re.compile(
    r"roles?.{0,20}must alternate|alternat.{0,40}roles?|consecutive.{0,30}(role|user|message)"
    r"|unexpected role.{0,4}user.{0,20}after|multiple.{0,20}user.{0,20}row",
    re.IGNORECASE | re.DOTALL,
)
_IDS = re.compile(
    r"tool.?(call|use)s?\b.{0,8}id.{0,120}(length|a-z|alphanumeric|characters|pattern)"
    r"|tool.?call.?id.{0,120}(length|a-z|alphanumeric|characters|pattern)",
    re.IGNORECASE | re.DOTALL,
)
_TOOL_NAMES = re.compile(
    r"(tool|function).{0,40}(message|response|result).{0,60}\bname\b"
    r"|function_response\.name|\bname\b.{0,40}(tool|function).{0,20}(message|response|result)",
    re.IGNORECASE | re.DOTALL,
)
_BARE = re.compile(
    r"either content or tool.?calls.{0,12}not both|content.{0,40}tool.?calls.{0,40}"
    r"(together|at the same time|mutually)",
    re.IGNORECASE | re.DOTALL,
)
_SIGNED = re.compile(r"missing.{0,12}thought.?signature", re.IGNORECASE | re.DOTALL)
_DESCRIPTION = re.compile(
    r"tools?\b.{0,40}\bdescription\b.{0,60}(?:maximum length|at most|max\w*)\D{0,12}(\d{3,5})\b",
    re.IGNORECASE | re.DOTALL,
)
_VAGUE = re.compile(r"request contains an invalid argument", re.IGNORECASE)
"""All that Google says, for instance of a result without its tool's name."""
_PLAIN_KEYWORDS = re.compile(
    r"\b(additionalProperties|\$schema|default|format|pattern|minLength|maxLength|minItems|maxItems"
    r"|minimum|maximum|exclusiveMinimum|exclusiveMaximum|title|examples|const|uniqueItems)\b"
)


def learn(quirks: Quirks, said: str, body: dict[str, Any]) -> Quirks | None:
    """The quirks to try next after the server refused `body` with the words `said`."""
    for rule in _RULES:
        learnt = rule(quirks, said, body)
        if learnt is not None and learnt != quirks:
            return learnt
    return None


def _field(quirks: Quirks, said: str, body: dict[str, Any]) -> Quirks | None:
    sent = [name for name in body if name not in _REQUIRED and len(name) > 2]
    sent += [name for name in _MESSAGE_FIELDS if _was_sent(name, body)]
    for name in sent:
        if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", said):
            continue
        if name in _MESSAGE_FIELDS and _REASONING.search(said):
            continue  # it is wanted, not refused
        other = _OTHER_NAME.get(name, "")
        if other and other in said:
            return quirks.evolve(renamed={**quirks.renamed, name: other})
        return quirks.evolve(dropped=(*quirks.dropped, name))
    return None


def _was_sent(name: str, body: dict[str, Any]) -> bool:
    for message in body["messages"]:
        if name in message or any(name in call for call in message.get("tool_calls", ())):
            return True
    return False


def _stream(quirks: Quirks, said: str, body: dict[str, Any]) -> Quirks | None:
    return quirks.evolve(stream=False) if body.get("stream") and _NO_STREAM.search(said) else None


def _reasoning(quirks: Quirks, said: str, body: dict[str, Any]) -> Quirks | None:
    named = _REASONING.search(said)
    if named is None or quirks.reasoning_field:
        return None
    surely = _REASONING_FIELD.search(said)
    field = (surely[0] if surely else named[1] or named[3]).lower()
    return None if field in quirks.dropped else quirks.evolve(reasoning_field=field)


def _content(quirks: Quirks, said: str, body: dict[str, Any]) -> Quirks | None:
    contents = [message.get("content") for message in body["messages"]]
    if quirks.empty_content is None and None in contents:
        if _EMPTY.search(said):
            return quirks.evolve(empty_content=NO_CONTENT_FILLER)
        return quirks.evolve(empty_content="") if _NULL.search(said) else None
    if quirks.empty_content == "" and "" in contents and _EMPTY.search(said):
        return quirks.evolve(empty_content=NO_CONTENT_FILLER)
    return None


def _ids(quirks: Quirks, said: str, body: dict[str, Any]) -> Quirks | None:
    return quirks.evolve(short_ids=True) if not quirks.short_ids and _IDS.search(said) else None


def _alternate(quirks: Quirks, said: str, body: dict[str, Any]) -> Quirks | None:
    roles = [message["role"] for message in body["messages"]]
    odd = any(one in ("user", "tool") and other == "user" for one, other in pairwise(roles))
    if quirks.alternate or not odd or not _ALTERNATE.search(said):
        return None
    return quirks.evolve(alternate=True)


def _tools(quirks: Quirks, said: str, body: dict[str, Any]) -> Quirks | None:
    """What a server wants of calls and their results."""
    results = [message for message in body["messages"] if message["role"] == "tool"]
    if not results:
        return None
    if not quirks.signatures and _SIGNED.search(said):
        return quirks.evolve(signatures=True)
    if not quirks.tool_names and (_TOOL_NAMES.search(said) or _VAGUE.search(said)):
        return quirks.evolve(tool_names=True)
    if not quirks.bare_calls and _BARE.search(said):
        return quirks.evolve(bare_calls=True)
    return None


def _schemas(quirks: Quirks, said: str, body: dict[str, Any]) -> Quirks | None:
    known: set[str] = set()
    for tool in body.get("tools", ()):
        plain_schema(tool["function"]["parameters"], (), known)
    refused = known & {found[0] for found in _PLAIN_KEYWORDS.finditer(said)}
    if not refused or not re.search(r"schema|tool|function|unknown name", said, re.IGNORECASE):
        return None
    return quirks.evolve(plain_schemas=(*quirks.plain_schemas, *sorted(refused)))


def _descriptions(quirks: Quirks, said: str, body: dict[str, Any]) -> Quirks | None:
    found = _DESCRIPTION.search(said)
    limit = int(found[1]) if found else 0
    sizes = [len(each["function"]["description"]) for each in body.get("tools", ())]
    return quirks.evolve(description_chars=limit) if 0 < limit < max(sizes, default=0) else None


def plain_schema(schema: Any, without: Sequence[str], seen: set[str] | None = None) -> Any:
    """A JSON Schema without these keywords; `seen` gets all that it has. Names of properties are no
    keywords."""
    if isinstance(schema, list):
        return [plain_schema(item, without, seen) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if seen is not None:
        seen.update(schema)
    plain = {}
    for keyword, value in schema.items():
        if keyword == "properties" and isinstance(value, dict):
            plain[keyword] = {
                name: plain_schema(each, without, seen) for name, each in value.items()
            }
        elif keyword not in without:
            plain[keyword] = plain_schema(value, without, seen)
    return plain


def _system(quirks: Quirks, said: str, body: dict[str, Any]) -> Quirks | None:
    refused = _SYSTEM.search(said) and "system" in said.lower()
    if quirks.system_role == "system" and (refused or _OTHER_ROLES.search(said)):
        return quirks.evolve(system_role="user")
    return None


_RULES = (
    *(_descriptions, _field, _stream, _reasoning, _schemas, _tools, _content, _ids, _alternate),
    _system,
)
