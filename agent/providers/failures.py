"""What a provider said when it failed -> a typed error with a sentence and a hint. Pure.

The same error object reaches us in three ways (an HTTP status with a body, a 200 with a body, an
event inside a stream), so it is read in one place. What it says is data: cleaned, cut, never HTML.
"""

from __future__ import annotations

import html
import re
from typing import Any

import msgspec

from agent.errors import ProviderError, ProviderRefused, ProviderUnavailable
from agent.text import clean, cut

MAX_MESSAGE = 600

_OVERFLOW = re.compile(
    r"context.?length|context.?window|context.?size|maximum.?context|context_overflow"
    r"|prompt is too long|input is too long|too many (input )?tokens|reduce the length",
    re.IGNORECASE,
)
_QUOTA = re.compile(
    r"insufficient.?(quota|balance|credit|funds)|billing|exceeded your", re.IGNORECASE
)
_AUTH = re.compile(
    r"authenticat|unauthori[sz]ed|permission|forbidden|api.?key|access denied", re.IGNORECASE
)
_RATE = re.compile(r"rate.?limit|too many requests|throttl", re.IGNORECASE)
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
    "provider_refused": "See the server's message; the model profile can change what is sent.",
}


def failure(
    said: str, kind: str = "", *, status: int | None = None, retry_after: float | None = None
) -> ProviderError:
    """The typed error for what the server `said`; `kind` is its own type and code, if any."""
    code = _code(f"{kind} {said}", kind, status)
    retryable = code in {"provider_rate_limited", "provider_overloaded"}
    number = f" ({status})" if status else ""
    what = "could not answer" if retryable else "refused the request"
    return (ProviderUnavailable if retryable else ProviderRefused)(
        f"The model's server {what}{number}: {said or 'it gave no reason'}",
        code=code,
        hint=_HINTS[code],
        status=status,
        retry_after=retry_after,
    )


def failure_of(
    body: Any, status: int | None = None, retry_after: float | None = None
) -> ProviderError:
    """The same for a decoded JSON body or stream event."""
    said, kind, number = _read(body)
    if status is None or status < 400:
        status = number
    return failure(tidy(said), kind, status=status, retry_after=retry_after)


def is_error(body: Any) -> bool:
    """Whether a decoded body without choices reports an error."""
    if isinstance(body, list):
        return bool(body) and is_error(body[0])
    if not isinstance(body, dict):
        return False
    if body.get("error") or body.get("errors") or body.get("detail"):
        return True
    return isinstance(body.get("message"), str) and not body.get("choices")


def readable(body: bytes) -> tuple[str, Any]:
    """Any error body -> (a sentence for people, the decoded JSON or None)."""
    try:
        return "", msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    text = body.decode("utf-8", "replace")
    if text.lstrip()[:1] == "<":
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        text = title[1] if title and title[1].strip() else text
        text = "a web page instead of a reply: " + html.unescape(_TAGS.sub(" ", text))
    return tidy(text), None


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
    said = body.get("message") or body.get("msg") or body.get("detail") or ""
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
    parts = (body.get(name) for name in ("type", "code", "status"))
    return " ".join(str(part) for part in parts if part)


def _status(body: dict[str, Any]) -> int | None:
    for name in ("code", "status", "status_code"):
        value = str(body.get(name))
        if re.fullmatch("[45][0-9][0-9]", value):
            return int(value)
    return None


def _code(words: str, kind: str, status: int | None) -> str:
    if status not in {401, 403, 429} and _OVERFLOW.search(words):
        return "context_overflow"
    if status is None:
        return _code_of_words(words, kind)
    if status == 402 or (status == 429 and _QUOTA.search(words)):
        return "provider_quota"
    if status in {408, 409, 425, 429}:
        return "provider_rate_limited"
    if status >= 500 and status not in {501, 505}:
        return "provider_overloaded"
    if 300 <= status < 400:
        return "provider_redirect"
    return {401: "provider_auth", 403: "provider_auth", 404: "provider_model"}.get(
        status, "context_overflow" if status == 413 else "provider_refused"
    )


def _code_of_words(words: str, kind: str) -> str:
    """Without a status only the words are left; an unknown failure is worth another try."""
    for pattern, code in (
        (_QUOTA, "provider_quota"),
        (_RATE, "provider_rate_limited"),
        (_MODEL, "provider_model"),
        (_AUTH, "provider_auth"),
    ):
        if pattern.search(words):
            return code
    refused = "invalid_request" in kind or (not kind and _REFUSED.search(words))
    return "provider_refused" if refused else "provider_overloaded"
