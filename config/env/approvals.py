"""The settings of approvals: who approves which capability, and when people are reminded."""

from __future__ import annotations

import re

from django.core.exceptions import ImproperlyConfigured

from config.env.reader import Reader


def capabilities(env: Reader, name: str) -> tuple[str, ...]:
    return tuple(_capability(name, word) for word in env.words(name))


def groups(env: Reader, name: str) -> dict[str, str]:
    """`shell:execute=operators, network=security`"""
    found: dict[str, str] = {}
    for word in env.words(name):
        capability, _, group = (part.strip() for part in word.partition("="))
        if not group:
            raise ImproperlyConfigured(f"{name}: write capability=group, not {word!r}.")
        found[_capability(name, capability)] = group
    return found


def _capability(name: str, text: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]*(:[a-z][a-z0-9_]*)*", text):
        raise ImproperlyConfigured(
            f"{name}: write capabilities like shell:execute or write, not {text!r}."
        )
    return text


def moments(env: Reader, name: str) -> tuple[float, ...]:
    if not env.text(name):
        return (0.5,)
    try:
        found = tuple(float(word) for word in env.words(name) if word != "never")
    except ValueError:
        found = (0.0,)
    if not all(0 < moment < float("inf") for moment in found):
        raise ImproperlyConfigured(
            f"{name}: write never, or parts of the time (0.5) and seconds (600), with commas."
        )
    return found
