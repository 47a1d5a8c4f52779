"""What a provider said when it failed -> a typed error with a sentence and a hint. Pure.

The same error object reaches us in three ways (an HTTP status with a body, a 200 with a body, an
event inside a stream), so it is read in one place. What it says is data: cleaned, cut, never HTML.
"""

from __future__ import annotations

import html
import re
from typing import Any

import msgspec

from agent.errors import ProviderError, ProviderIncomplete, ProviderRefused, ProviderUnavailable
from agent.providers.waiting import wait_in, wait_named
from agent.text import clean, cut

MAX_MESSAGE = 600
FILTER = frozenset(
    (
        *("content_filter", "content-filter", "safety", "recitation", "sensitive"),
        *("prohibited_content", "blocklist", "spii", "guardrail_intervened"),
    )
)
"""Reasons by which a provider stops what its model writes."""

_OVERFLOW = re.compile(
    r"context.?length|context.?window|context.?size|context.?limit|maximum.?context"
    r"|context_overflow|max_seq_len|maximum model length|maximum prompt length"
    r"|(prompt|input|request|conversation) (is )?too (long|large)\b|too many (input )?tokens"
    r"|reduce the length|(prompt|message size).{0,40}exceeds? (the )?(max|limit)"
    r"|(token|prompt|input).{0,60}exceed\w* .{0,30}(limit|maximum|max |allowed)"
    r"|exceed\w* .{0,30}(token limit|maximum .{0,30}(tokens|input))|more than max tokens"
    r"|too many total text bytes|exceed\w* (the )?context|range of input length"
    r"|must have less than \d+ tokens|max_new_tokens.{0,12}must be <="
    r"|上下文.{0,12}(长度|超|限)|(输入|提示).{0,12}(过长|超过|超出)",
    re.IGNORECASE | re.DOTALL,
)
_OWN_LIMIT = re.compile(
    r"`?max_(completion_|output_)?tokens`?.{0,20}(must be|is too large|should be|cannot|at most)",
    re.IGNORECASE | re.DOTALL,
)
"""About the profile's options, whatever else it mentions."""
_TOOLS = re.compile(
    r"^(?!.*parallel.(tool|function)).*((not|n't) support.{0,20}\b(tool|function).?(s\b|call|use)"
    r"|support.{0,12}tool use|tool choice requires"
    r"|\b(tool|function).?call\w* (is|are) not (supported|enabled))",
    re.IGNORECASE | re.DOTALL,
)
_BAD_CALL = re.compile(
    r"tool_use_failed|failed_generation|malformed_function_call|unexpected_tool_call"
    r"|(failed to|error|cannot) (parse|parsing).{0,20}(tool|function).?call",
    re.IGNORECASE,
)
"""The model wrote a call that its server could not read: the next one may be better."""
_FILTERED = re.compile(
    r"content.?(management.?)?(policy|filter)|responsibleai|data_inspection_failed|safety system",
    re.IGNORECASE,
)
_QUOTA = re.compile(
    r"insufficient.?(quota|balance|credit|funds)|billing|exceeded your|out of credits"
    r"|(credit|account) balance|欠费|余额不足",
    re.IGNORECASE,
)
_NO_MONEY = re.compile(r"(credit|account) balance|billing is not active|余额不足", re.IGNORECASE)
"""What some say under a status that is about the request or the key."""
_AUTH = re.compile(
    r"authenticat|unauthori[sz]ed|permission|forbidden|api.?key|access denied", re.IGNORECASE
)
_BAD_KEY = re.compile(
    r"api.?key.{0,20}(not valid|invalid|incorrect|expired)|(invalid|incorrect|no).{0,6}api.?key",
    re.IGNORECASE,
)
_RATE = re.compile(r"rate.?limit|too many requests|throttl|限流|频率", re.IGNORECASE)
_MODEL = re.compile(
    r"model.{0,80}(not.?found|not exist|unknown|not available)"
    r"|(unknown|invalid|no such|not.?found).{0,20}model",
    re.IGNORECASE | re.DOTALL,
)
_REFUSED = re.compile(
    r"invalid|unsupported|not.?supported|not.?found|bad.?request|not allowed|content.?(policy|filter)",
    re.IGNORECASE,
)
_TAGS = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)

_HINTS = {
    "provider_auth": "Check the API key: PILOTHOUSE_LLM_API_KEY, or the one in the model profile.",
    "provider_quota": "The account behind this API key is out of credit: top it up or use another key.",
    "provider_model": "Check the model's name and the base URL (usually it ends in /v1).",
    "provider_rate_limited": "Too many requests for this key at the moment: wait, or raise its limit.",
    "provider_overloaded": "The model's server has a problem of its own: try again later.",
    "provider_redirect": "Put the final address into the base URL.",
    "context_overflow": "The conversation is longer than this model can read.",
    "provider_tools": "Pilothouse works by tool calls: choose a model that has them, or start the "
    "server with them (vLLM: --enable-auto-tool-choice and --tool-call-parser).",
    "provider_bad_call": "The model wrote a call that its server could not read: try again, or choose "
    "another model.",
    "provider_filtered": "The provider's content filter stopped it: say it differently, or choose "
    "another model.",
    "provider_refused": "See the server's message; the model profile can change what is sent.",
}


def failure(
    said: str, kind: str = "", *, status: int | None = None, retry_after: float | None = None
) -> ProviderError:
    """The typed error for what the server `said`; `kind` is its own type and code, if any."""
    wait = retry_after if retry_after is not None else wait_in(said)
    code = _code(f"{kind} {said}", kind, status, waits=wait is not None)
    retryable = code in {"provider_rate_limited", "provider_overloaded", "provider_bad_call"}
    number = f" ({status})" if status else ""
    what = "could not answer" if retryable else "refused the request"
    return (ProviderUnavailable if retryable else ProviderRefused)(
        f"The model's server {what}{number}: {said or 'it gave no reason'}",
        code=code,
        hint=_HINTS[code],
        status=status,
        retry_after=wait,
    )


def failure_of(
    body: Any, status: int | None = None, retry_after: float | None = None
) -> ProviderError:
    """The same for a decoded JSON body or stream event."""
    said, kind, number = _read(body)
    if status is None or status < 400:
        status = number
    if retry_after is None:
        waits = [wait for wait in (wait_named(body), wait_in(said)) if wait is not None]
        retry_after = max(waits, default=None)
    return failure(tidy(said), tidy(kind), status=status, retry_after=retry_after)


def is_error(body: Any) -> bool:
    """Whether a decoded body without choices reports an error."""
    if isinstance(body, list):
        return bool(body) and is_error(body[0])
    if not isinstance(body, dict):
        return False
    if any(body.get(name) for name in ("error", "errors", "detail", "error_code")):
        return True
    if body.get("choices") or body.get("usage") or str(body.get("code")) in ("0", "200"):
        return False
    said = any(isinstance(body.get(name), str) and body[name] for name in _SAID)
    return said or bool(_base(body).get("status_code"))


_SAID = ("message", "msg", "error_msg", "Message", "errorMessage", "error_message")


def _base(body: dict[str, Any]) -> dict[str, Any]:
    """Where MiniMax says how it went, in replies as well."""
    base = body.get("base_resp")
    return base if isinstance(base, dict) else {}


def readable(body: bytes) -> tuple[str, Any]:
    """Any error body -> (a sentence for people, the decoded JSON or None)."""
    try:
        return "", msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    text = body.decode("utf-8", "replace")
    line = next((line for line in text.splitlines() if line.startswith("data:")), "")
    if line and text.lstrip()[:1] != "<":  # an error as a stream
        try:
            return "", msgspec.json.decode(line[5:])
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            text = line[5:]
    if text.lstrip()[:1] == "<":
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        text = title[1] if title and title[1].strip() else text
        text = "a web page instead of a reply: " + html.unescape(_TAGS.sub(" ", text))
    return tidy(text), None


def broken_off(*, begun: bool, told: bytes) -> ProviderIncomplete:
    """A reply without an end; `told` is what came instead of one."""
    if begun:
        message = "The model's reply broke off before its end."
    elif told:
        said = tidy(told.decode("utf-8", "replace"))
        message = f"The model's server sent no reply, only: {said}"
    else:
        message = "The model's server closed the connection without a reply."
    return ProviderIncomplete(message, code="provider_incomplete")


def tidy(text: str) -> str:
    """One bounded line of storable text."""
    return cut(" ".join(clean(text[: 4 * MAX_MESSAGE]).split()), MAX_MESSAGE)


def _read(body: Any, depth: int = 4) -> tuple[str, str, int | None]:
    """(message, type and code as words, HTTP status) of any of the known shapes."""
    if isinstance(body, list) and body:
        return _read_list(body, depth)
    if not isinstance(body, dict):
        return (body if isinstance(body, str) else ""), "", None
    inner = body.get("error") or body.get("errors") or body.get("detail")
    if isinstance(inner, dict | list) and inner and depth:
        return _read(inner, depth - 1)
    if isinstance(inner, str):
        return inner, _words(body), _status(body)
    said = next((body[name] for name in (*_SAID, "detail") if body.get(name)), "")
    said = said or _base(body).get("status_msg") or ""
    metadata = body.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("raw"), str):
        said = f"{said}: {metadata['raw']}"  # a router's own message says nothing, this one does
    said = said if isinstance(said, str) else str(said)
    named = body.get("param") or body.get("loc")
    if named:  # the field that is meant; refusals are learnt by it
        said = f"{'.'.join(map(str, named)) if isinstance(named, list) else named}: {said}"
    return said, _words(body), _status(body)


def _read_list(bodies: list[Any], depth: int) -> tuple[str, str, int | None]:
    """Validators list what they refuse; the first few say enough."""
    read = [_read(body, depth - 1) for body in bodies[:3] if depth]
    if not read:
        return "", "", None
    return "; ".join(said for said, _, _ in read if said), read[0][1], read[0][2]


def _words(body: dict[str, Any]) -> str:
    parts = (body.get(name) for name in ("type", "code", "status", "error_code"))
    return " ".join(str(part) for part in parts if part)


def _status(body: dict[str, Any]) -> int | None:
    for name in ("code", "status", "status_code"):
        value = str(body.get(name))
        if re.fullmatch("[45][0-9][0-9]", value):
            return int(value)
    return None


def _code(words: str, kind: str, status: int | None, *, waits: bool) -> str:
    if status not in {401, 403} and (told := _code_of_request(words, status)):
        return told
    if status is None:
        return _code_of_words(words, kind)
    if status == 402 or (status == 429 and _is_about_money(words, waits)):
        return "provider_quota"
    if status in {400, 403} and _NO_MONEY.search(words):
        return "provider_quota"
    if status == 400 and _BAD_KEY.search(words):
        return "provider_auth"
    if status < 500 and status != 429 and _FILTERED.search(words):
        return "provider_filtered"
    if status in {408, 409, 425, 429}:
        return "provider_rate_limited"
    if status in {498, 499} or (status >= 500 and status not in {501, 505}):
        return "provider_overloaded"
    if 300 <= status < 400:
        return "provider_redirect"
    return {401: "provider_auth", 403: "provider_auth", 404: "provider_model"}.get(
        status, "context_overflow" if status == 413 else "provider_refused"
    )


def _code_of_request(words: str, status: int | None) -> str:
    """What is wrong with what we asked, whatever the status; "" when it is something else."""
    if _BAD_CALL.search(words):
        return "provider_bad_call"
    if _TOOLS.search(words):
        return "provider_tools"
    too_long = _OVERFLOW.search(words) and not _OWN_LIMIT.search(words)
    if too_long and (status != 429 or "request too large" in words.lower()):
        return "context_overflow"
    return ""


def _is_about_money(words: str, waits: bool) -> bool:
    """Some say "exceeded your quota" of a minute, and when to come back."""
    return "insufficient" in words.lower() or (not waits and bool(_QUOTA.search(words)))


def _code_of_words(words: str, kind: str) -> str:
    """Without a status only the words are left; an unknown failure is worth another try."""
    for pattern, code in (
        (_QUOTA, "provider_quota"),
        (_RATE, "provider_rate_limited"),
        (_FILTERED, "provider_filtered"),
        (_MODEL, "provider_model"),
        (_AUTH, "provider_auth"),
    ):
        if pattern.search(words):
            return code
    refused = "invalid_request" in kind or (not kind and _REFUSED.search(words))
    return "provider_refused" if refused else "provider_overloaded"
