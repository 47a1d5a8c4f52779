"""Typed access to the environment and `.env`; every complaint names its variable."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured

_LINE = re.compile(r"\s*(?:export\s+)?(?P<name>[A-Za-z_]\w*)\s*=\s*(?P<value>.*?)\s*")
_REMARK = re.compile(r"""(?P<value>"[^"]*"|'[^']*'|[^"'].*?|)(?:\s+|^)\#.*""")


def _assignments(file: Path) -> Iterator[str]:
    """NAME=value lines, without remarks. A line that sets nothing is a typo, not left out."""
    for number, line in enumerate(file.read_text(encoding="utf-8-sig").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise ImproperlyConfigured(
                f".env, line {number}: write NAME=value, or # before a remark."
            )
        remark = _REMARK.fullmatch(found["value"])
        yield f"{found['name']}={remark['value'] if remark else found['value']}"


class Reader:
    """Typed access to one environment; every complaint names its variable."""

    def __init__(self, environ_: Mapping[str, str], root: Path) -> None:
        class Merged(environ.Env):  # type: ignore[misc] # the library is untyped
            ENVIRON = dict(environ_)  # its class attribute; never the process's own

        if (root / ".env").is_file():
            Merged.read_env(StringIO("\n".join(_assignments(root / ".env"))))
        self.root = root
        self.values: dict[str, str] = Merged.ENVIRON
        self.db_url: Callable[..., dict[str, Any]] = Merged.db_url_config
        self.email_url: Callable[..., dict[str, Any]] = Merged.email_url_config
        self.email_schemes = frozenset(Merged.EMAIL_SCHEMES)

    def text(self, name: str, default: str = "") -> str:
        return self.values.get(name, "").strip() or default

    def path(self, name: str, default: str) -> Path:
        return self.root / Path(self.text(name, default)).expanduser()

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name).lower()
        if text in ("1", "true", "yes", "on"):
            return True
        if text in ("0", "false", "no", "off"):
            return False
        if text:
            raise ImproperlyConfigured(f"{name}: write 1 or 0, not {text!r}.")
        return default

    def words(self, name: str) -> list[str]:
        """What stands between commas."""
        return [word.strip() for word in self.text(name).split(",") if word.strip()]

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        text = self.text(name, default)
        if text not in choices:
            allowed = ", ".join(choices[:-1]) + f" or {choices[-1]}"
            raise ImproperlyConfigured(f"{name}: write {allowed}, not {text!r}.")
        return text

    def number(self, name: str, kind: type[int] | type[float], least: float) -> float | None:
        text = self.text(name)
        if not text:
            return None
        noun = "a whole number" if kind is int else "a number"
        try:
            value = kind(text)
        except ValueError:
            raise ImproperlyConfigured(f"{name}: write {noun}, not {text!r}.") from None
        if not least <= value < float("inf"):
            raise ImproperlyConfigured(f"{name}: write {noun} of at least {least:g}, not {text!r}.")
        return value

    def url(self, name: str, default: str = "") -> str:
        text = self.text(name, default).rstrip("/")
        if not text:
            return ""
        try:
            parts = urlsplit(text)
            good = parts.scheme in ("http", "https") and bool(parts.hostname)
            _ = parts.port
        except ValueError:
            good = False
        if not good:
            # Not what stands there: an address may be as good as a key.
            raise ImproperlyConfigured(f"{name}: write a URL like https://host.example.")
        return text
