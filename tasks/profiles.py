"""Model profiles: which model a run asks, and who may say so.

1. The order: the task's profile, its session's, the default one. Where there is none, `wiring` asks
   what the settings name.
2. A key comes in through `save()` and goes out through `key_of()` to a provider, nowhere else. It is
   a reference (`env:NAME`) or sealed; a new base URL erases it, because it was given to another
   server.
3. What a run learns about a server is merged into the row by `remember()`; what a person set or
   another run learnt meanwhile stays. The server that the settings name has a row for that alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import UUID

import msgspec
from django.db import transaction

from agent.providers import CONTEXT_TOKENS, Prices
from agent.providers.quirks import Quirks
from tasks import audit, secrets
from tasks.conf import conf
from tasks.errors import Invalid
from tasks.models import LearntQuirks, ModelProfile, Task
from tasks.statements import Rows

MAX_FALLBACKS = 3
LIMITS = ("steps", "seconds", "tokens", "cost")
RESERVED = frozenset({"model", "messages", "stream", "stream_options", "tools"})
"""Fields of a request that are ours."""
_REFERENCE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")
_OURS = frozenset({"SECRET_KEY", "DATABASE_URL", "REDIS_URL"})
_OPEN_TO_PROFILES = "PILOTHOUSE_LLM_API_KEY"


class KeyMissing(Exception):
    """The profile's key cannot be had."""


# ── which one ─────────────────────────────────────────────────────────────────────────────────


def chosen(task: Task) -> ModelProfile | None:
    """The profile that a run of the task asks first. Load it with its session."""
    return task.model_profile or task.session.model_profile or default()


def default() -> ModelProfile | None:
    return _default.one()


_default = Rows(ModelProfile, "WHERE is_default LIMIT 1")
_learnt = Rows(LearntQuirks, "WHERE server = %s")


def with_fallbacks(profile: ModelProfile) -> list[ModelProfile]:
    """The profile and those that stand in for it, in order."""
    found: list[ModelProfile] = []
    current: ModelProfile | None = profile
    while current is not None and current not in found and len(found) <= MAX_FALLBACKS:
        found.append(current)
        current = current.fallback
    return found


def find(wanted: str) -> ModelProfile:
    """By id or by name. Raises Invalid: names are no secret, everybody may choose."""
    profile = None
    try:
        profile = ModelProfile.objects.filter(pk=UUID(wanted)).first()
    except ValueError:
        pass
    profile = profile or ModelProfile.objects.filter(name=wanted).first()
    if profile is None:
        message = "There is no such model; GET /api/models lists them."
        raise Invalid("unknown_model", message, {"model": message})
    return profile


# ── what a run needs of it ────────────────────────────────────────────────────────────────────


def key_of(profile: ModelProfile) -> str:
    """The key itself, for a provider only. Raises KeyMissing."""
    if not profile.key:
        return ""
    reference = _REFERENCE.fullmatch(profile.key)
    if reference is None:
        try:
            return secrets.unseal(profile.key)
        except secrets.SecretUnreadable as error:
            message = f"The key of the model profile {profile.name} cannot be read: {error}"
            raise KeyMissing(message) from None
    value = conf().variables.get(reference[1], "").strip()
    if not value:
        message = f"The key of the model profile {profile.name} is to be in {reference[1]}, which is not set."
        raise KeyMissing(message)
    return value


def key_hint(profile: ModelProfile) -> str:
    """What people may know of the key."""
    if not profile.key:
        return "none"
    return profile.key if _REFERENCE.fullmatch(profile.key) else "set, not shown"


def quirks_of(row: ModelProfile | LearntQuirks | None) -> Quirks:
    """What the row says, or nothing if it says nonsense."""
    try:
        return Quirks() if row is None else msgspec.convert(row.quirks, Quirks)
    except msgspec.ValidationError:
        return Quirks()


def prices_of(profile: ModelProfile) -> Prices | None:
    if profile.price_input is None or profile.price_output is None:
        return None
    cached = profile.price_cached
    return Prices(
        input=float(profile.price_input),
        output=float(profile.price_output),
        cached=None if cached is None else float(cached),
    )


def context_of(profile: ModelProfile) -> int:
    return profile.context_size or CONTEXT_TOKENS


def currency() -> str:
    """All profiles have their prices in one."""
    priced = ModelProfile.objects.filter(price_input__isnull=False)
    return priced.values_list("currency", flat=True).first() or "USD"


def remember(profile_id: UUID, before: Quirks, after: Quirks) -> None:
    """Command: what a run learnt goes into the row as it is now."""
    profile = ModelProfile.objects.select_for_update().filter(pk=profile_id).first()
    if profile is None:
        return
    quirks = quirks_of(profile)
    quirks.adopt(before, after)
    ModelProfile.objects.filter(pk=profile_id).update(quirks=msgspec.to_builtins(quirks))


def server_of(base_url: str, model: str) -> str:
    """The key of `LearntQuirks`."""
    return hashlib.sha256(f"{base_url}\n{model}".encode()).hexdigest()


def quirks_of_server(server: str) -> Quirks:
    return quirks_of(_learnt.one(server))


def remember_server(server: str, before: Quirks, after: Quirks) -> None:
    """Command: the same for the server that the settings name."""
    row, _ = LearntQuirks.objects.select_for_update().get_or_create(pk=server)
    quirks = quirks_of(row)
    quirks.adopt(before, after)
    LearntQuirks.objects.filter(pk=server).update(quirks=msgspec.to_builtins(quirks))


def forget_server(server: str) -> None:
    """Command: it may have changed."""
    LearntQuirks.objects.filter(pk=server).delete()


# ── changing ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class NewKey:
    """What to do about the key; `None` for it means: leave it, unless the base URL changes."""

    text: str
    """`env:NAME`, a key, or "" for none."""


def problems(profile: ModelProfile) -> dict[str, str]:
    """What is wrong with it, by field; empty when it can be saved."""
    checks = {
        "base_url": _url_problem(profile.base_url),
        "limits": _limits_problem(profile.limits),
        "options": _options_problem(profile.options),
        "quirks": _quirks_problem(profile.quirks),
        "fallback": _fallback_problem(profile),
        "currency": _currency_problem(profile),
        "price_output": _price_problem(profile),
    }
    return {field: problem for field, problem in checks.items() if problem}


def key_problem(text: str) -> str:
    """What is wrong with a key that somebody typed."""
    text = text.strip()
    if any(not " " < character <= "~" for character in text):
        return "A key is one word of ASCII characters."
    if not text.startswith("env:"):
        return ""
    named = _REFERENCE.fullmatch(text)
    if named is None:
        return "Write env:NAME, with the name of a variable."
    ours = named[1] in _OURS or named[1].startswith("PILOTHOUSE_")
    if ours and named[1] != _OPEN_TO_PROFILES:
        return f"{named[1]} is a secret of Pilothouse itself and is not sent to a model."
    return ""


def save(profile: ModelProfile, *, by: str, key: NewKey | None = None) -> None:
    """Store a new or changed profile; the audit says who changed what. Not for the event loop."""
    with transaction.atomic():
        old = ModelProfile.objects.select_for_update().filter(pk=profile.pk).first()
        if key is not None:
            profile.key = _stored_key(key.text.strip())
        elif old is None or old.base_url != profile.base_url:
            profile.key = ""
        else:
            profile.key = old.key
        if profile.is_default:
            others = ModelProfile.objects.filter(is_default=True).exclude(pk=profile.pk)
            others.update(is_default=False)
        profile.save()
        _note(old, profile, by)


def delete(profile: ModelProfile, *, by: str) -> None:
    """Sessions and tasks that named it ask the default one from now on."""
    with transaction.atomic():
        _note(profile, None, by)
        profile.delete()


def _stored_key(text: str) -> str:
    return text if not text or _REFERENCE.fullmatch(text) else secrets.seal(text)


def _note(old: ModelProfile | None, new: ModelProfile | None, by: str) -> None:
    profile = cast(ModelProfile, new or old)
    before, after = _shown(old), _shown(new)
    if old is not None and new is not None:
        changed = [name for name in after if before[name] != after[name]]
        before, after = ({name: side[name] for name in changed} for side in (before, after))
    new_key = old is not None and new is not None and old.key != new.key
    verb = "made" if old is None else "deleted" if new is None else "changed"
    audit.note(
        audit.Change(
            action=f"model.{verb}",
            by=by,
            object_type="model",
            object_id=str(profile.pk),
            name=profile.name,
            before=before,
            after=after,
            note="the key changed" if new_key else "",
        )
    )


_AUDITED = (
    *("name", "base_url", "model", "stream", "context_size", "currency"),
    *("limits", "options", "quirks", "is_default"),
)


def _shown(profile: ModelProfile | None) -> dict[str, Any]:
    if profile is None:
        return {}
    prices = ("price_input", "price_cached", "price_output")
    return {
        **{name: getattr(profile, name) for name in _AUDITED},
        **{name: _plain(getattr(profile, name)) for name in prices},
        "fallback": None if profile.fallback is None else profile.fallback.name,
        "key": key_hint(profile),
    }


def _plain(price: Any) -> float | None:
    return None if price is None else float(price)


# ── problems ──────────────────────────────────────────────────────────────────────────────────


def _url_problem(text: str) -> str:
    try:
        parts = urlsplit(text.strip())
        _ = parts.port
    except ValueError:
        return "Write a URL like https://host.example/v1."
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "Write a URL like https://host.example/v1."
    if parts.username or parts.password:
        return "A password in the URL would be shown: put it into the key."
    return ""


def _limits_problem(limits: Any) -> str:
    if not isinstance(limits, dict) or not limits.keys() <= set(LIMITS):
        return f"Write an object with any of {', '.join(LIMITS)}."
    fine = all(
        isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e15
        for value in limits.values()
    )
    return "" if fine else "Each limit is a number above 0."


def _options_problem(options: Any) -> str:
    if not isinstance(options, dict):
        return 'Write an object, like {"temperature": 0.2}.'
    taken = ", ".join(sorted(RESERVED & options.keys()))
    return f"These fields are Pilothouse's own: {taken}." if taken else ""


def _quirks_problem(quirks: Any) -> str:
    known = [field.name for field in msgspec.structs.fields(Quirks)]
    if not isinstance(quirks, dict) or not quirks.keys() <= set(known):
        return f"Write an object with any of {', '.join(known)}."
    try:
        msgspec.convert(quirks, Quirks)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _fallback_problem(profile: ModelProfile) -> str:
    return "" if profile not in _after(profile) else "It would stand in for itself in the end."


def _after(profile: ModelProfile) -> Iterator[ModelProfile]:
    current, steps = profile.fallback, 0
    while current is not None and steps < 100:
        yield current
        current, steps = current.fallback, steps + 1


def _currency_problem(profile: ModelProfile) -> str:
    if not re.fullmatch("[A-Z]{3}", profile.currency):
        return "Write three capital letters, like USD."
    priced = ModelProfile.objects.filter(price_input__isnull=False).exclude(pk=profile.pk)
    other = priced.exclude(currency=profile.currency).first()
    if profile.price_input is None or other is None:
        return ""
    return f"Budgets add prices up, so all profiles have one currency: {other.name} has {other.currency}."


def _price_problem(profile: ModelProfile) -> str:
    prices = (profile.price_input, profile.price_cached, profile.price_output)
    if any(price is not None and price < 0 for price in prices):
        return "A price is not negative."
    if (profile.price_input is None) != (profile.price_output is None):
        return "Give both the price of input and of output, or neither."
    return ""
