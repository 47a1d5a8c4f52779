"""One stream payload -> a typed chunk: fast for the usual shape, tolerant for every other.

The typed decoder reads what nearly all chunks are. Whatever it refuses (a list as content, an
object as arguments, a lone surrogate, broken UTF-8, a number as text) is read again without types
and put into the same structs, so that nothing behind this module knows about shapes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from agent.errors import ProviderIncomplete

DONE = b"[DONE]"
REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking", "reasoning_text")


class Call(msgspec.Struct):
    """One entry of a `tool_calls` list."""

    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: Function | None = None
    extra_content: Any = None
    """Opaque; some providers want it back with the call."""


class Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class Part(msgspec.Struct):
    """A `delta`, or the `message` of a whole reply."""

    content: str | None = None
    tool_calls: list[Call] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking: str | None = None
    reasoning_text: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    function_call: Function | None = None
    refusal: str | None = None


class Choice(msgspec.Struct):
    index: int | None = None
    delta: Part | None = None
    message: Part | None = None
    text: str | None = None
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


class Chunk(msgspec.Struct):
    choices: list[Choice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    errors: Any = None
    detail: Any = None
    error_code: Any = None
    other: dict[str, Any] | None = None
    """The whole object, when it has no choices and its meaning lies elsewhere."""


_typed = msgspec.json.Decoder(Chunk)


def decode(payload: bytes) -> Chunk | None:
    """The chunk in `payload`; None for keep-alive texts that are no JSON object.

    Raises ProviderIncomplete when it is a damaged one: text would be missing.
    """
    if payload == DONE or (payload[:1] != b"{" and payload.lstrip()[:1] not in (b"{", b"[")):
        return None
    try:
        chunk = _typed.decode(payload)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _loose(payload)
    if chunk.error or not (chunk.choices or _is_usage(chunk)):
        return _loose(payload)
    return chunk


def _is_usage(chunk: Chunk) -> bool:
    """Whether it tells what the reply cost, and of no failure: the last chunk of most replies."""
    return bool(chunk.usage) and not (chunk.errors or chunk.detail or chunk.error_code)


class Alike:
    """Knows the texts of payloads that are like the one before them in everything else.

    Nearly all chunks of a reply are: only what the quotes of `content` hold differs, and as long as
    no quote and no backslash is in it, the document around it is the same document.
    """

    def __init__(self) -> None:
        self.head = self._tail = b""
        """How the payloads begin that are alike; empty: none is."""
        self._begins = self._ends = 0
        """Where the text is in a payload, the end counted from its end."""
        self._around = b"", b"", b""
        """What is before, behind and between the texts of such events, one line of data each."""
        self._tries = 16
        """Servers that write something new into every chunk are not looked at for ever."""

    def texts(self, payloads: Sequence[bytes], at: int) -> list[str]:
        """What the payloads from `at` on add to the answer, as far as they begin with the head and
        are alike; the one behind them is to be decoded."""
        head, tail, begins, ends = self.head, self._tail, self._begins, self._ends
        found: list[str] = []
        for place in range(at, len(payloads)):
            payload = payloads[place]
            text = payload[begins:ends]
            if payload[:begins] != head or payload[ends:] != tail:
                break
            if b'"' in text or b"\\" in text or len(payload) < begins - ends:
                break
            try:
                found.append(text.decode())
            except UnicodeDecodeError:
                break
        return found

    def at_once(self, events: bytes) -> tuple[str, int]:
        """What events add to the answer, from the first to the last that is alike, and how many bytes
        these are: none, unless all of them are, and are nothing but a line of data each. A tail begins
        with a quote, so that one is left wherever another thing stands between two texts."""
        begin, end, between = self._around
        size = events.rfind(end) + len(end)
        if not (self.head and events.startswith(begin)) or size < len(between):
            return "", 0
        found = events[len(begin) : size - len(end)].split(between)
        texts = b"\n".join(found)  # so that the bytes of a character are in one of them
        odd = b'"' in texts or b"\\" in texts or b"\r" in texts
        if odd or texts.count(b"\n") >= len(found):
            return "", 0
        try:
            return texts.decode().replace("\n", ""), size
        except UnicodeDecodeError:
            return "", 0

    def learn(self, payload: bytes, chunk: Chunk | None) -> None:
        """Look at a payload that had to be decoded; None when there is nothing to learn from it."""
        self.head = b""
        if chunk is None or not self._tries or not chunk.choices or chunk.choices[0].delta is None:
            return
        self._tries -= 1
        only, text = chunk.choices[0], chunk.choices[0].delta.content
        plain = Chunk(choices=[Choice(index=only.index, delta=Part(content=text))])
        if not text or chunk != plain or payload.count(_CONTENT) != 1:
            return
        key, _, rest = payload.partition(_CONTENT)
        between, quote, value = rest.partition(b'"')
        found, end, tail = value.partition(b'"')
        if not between.strip(b": ") and found == text.encode():
            self.head, self._tail = key + _CONTENT + between + quote, end + tail
            self._begins, self._ends = len(self.head), -len(self._tail)
            begin, end = b"data: " + self.head, self._tail + b"\n\n"
            self._around = begin, end, end + begin


_CONTENT = b'"content"'


def _loose(payload: bytes) -> Chunk | None:
    text = payload.decode("utf-8", "replace").strip()
    try:
        value = json.loads(text, strict=False)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            value = value[0]
        return of_object(value) if isinstance(value, dict) else None
    except (ValueError, RecursionError):
        if not text.startswith(("{", "[{")):
            return None  # `[DONE]`
        raise ProviderIncomplete(
            "The model's server sent a damaged piece of the reply.", code="provider_incomplete"
        ) from None


def of_object(value: dict[str, Any]) -> Chunk:
    """A decoded object of any shape as a chunk."""
    choices = value.get("choices")
    found = [_choice(item) for item in _list(choices) if isinstance(item, dict)]
    groq = value.get("x_groq")
    usage = _dict(value.get("usage")) or (
        _dict(groq.get("usage")) if isinstance(groq, dict) else None
    )
    return Chunk(
        choices=found, usage=usage, error=value.get("error"), other=None if found else value
    )


def _choice(value: dict[str, Any]) -> Choice:
    return Choice(
        index=_int(value.get("index")),
        delta=_part(value.get("delta")),
        message=_part(value.get("message")),
        text=_str(value.get("text")),
        finish_reason=_str(value.get("finish_reason")),
        usage=_dict(value.get("usage")),
        error=value.get("error"),
    )


def _part(value: Any) -> Part | None:
    if isinstance(value, str):
        return Part(content=value)
    if not isinstance(value, dict):
        return None
    content, thought = _content(value.get("content"))
    fields = {name: _content(value.get(name))[0] or None for name in REASONING_FIELDS}
    details = [item for item in _list(value.get("reasoning_details")) if isinstance(item, dict)]
    part = Part(
        content=content or None,
        tool_calls=[_call(item) for item in _calls(value.get("tool_calls"))],
        reasoning_details=details or None,
        function_call=_function(value.get("function_call")),
        refusal=_str(value.get("refusal")),
        **fields,
    )
    if thought and not any(fields.values()):
        part.thinking = thought
    return part


def _content(value: Any) -> tuple[str, str]:
    """(text, thought) of a string, a part, or a list of parts."""
    if isinstance(value, str):
        return value, ""
    if isinstance(value, dict):
        for name in ("thinking", "reasoning", "summary"):
            if isinstance(value.get(name), str | list):
                return "", "".join(_content(value[name]))
        if value.get("type") in ("thinking", "reasoning", "thought"):
            return "", "".join(_content(value.get("text") or value.get("content")))
        inner = value.get("text") or value.get("content") or value.get("refusal")
        return _content(inner) if isinstance(inner, str | dict) else ("", "")
    pairs = [_content(item) for item in _list(value) if not isinstance(item, list)]
    return "".join(text for text, _ in pairs), "".join(thought for _, thought in pairs)


def _calls(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        value = [value]
    return [item for item in _list(value) if isinstance(item, dict)]


def _call(value: dict[str, Any]) -> Call:
    flat = value if "name" in value or "arguments" in value else None
    identity = value.get("id")
    return Call(
        index=_int(value.get("index")),
        id=str(identity) if isinstance(identity, str | int) else None,
        type=_str(value.get("type")),
        function=_function(value.get("function") or flat),
        extra_content=value.get("extra_content"),
    )


def _function(value: Any) -> Function | None:
    if not isinstance(value, dict):
        return None
    arguments = value.get("arguments")
    if arguments is not None and not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return Function(name=_str(value.get("name")), arguments=arguments)


def _str(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _dict(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _int(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None
