"""Keys: from the environment, or from files that are made once, whoever starts first."""

from __future__ import annotations

import base64
import os
import re
import secrets
import tempfile
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from config.env.reader import Reader

KEY_BYTES = 32


def key_file(path: Path, name: str) -> str:
    """The key in the file, made now if there is none: 64 hex digits, readable by us alone.

    Two processes may start at once: each writes a whole file of its own and tries to link it to
    the name. The first link stands, and the loser reads the winner's key.
    """
    if not path.exists():
        _link_new_key(path, name)
    try:
        key = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ImproperlyConfigured(f"{name}: cannot read {path} ({error}).") from error
    if not re.fullmatch(r"[0-9a-f]{64}", key):
        raise ImproperlyConfigured(
            f"{name}: {path} does not hold 64 hexadecimal digits; restore it from a backup."
        )
    return key


def _link_new_key(path: Path, name: str) -> None:
    try:
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # mode 0600
        try:
            with os.fdopen(handle, "w", encoding="ascii") as file:
                file.write(secrets.token_hex(KEY_BYTES) + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.link(draft, path)
        except FileExistsError:
            pass  # another process got there first; its key is the key
        finally:
            Path(draft).unlink()
    except OSError as error:
        raise ImproperlyConfigured(f"{name}: cannot make {path} ({error}).") from error


def hex_key(env: Reader, path: Path, name: str) -> bytes:
    text = env.text(name)
    if text and not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise ImproperlyConfigured(f"{name}: write 64 hexadecimal digits (openssl rand -hex 32).")
    return bytes.fromhex(text or key_file(path, name))


def webhook_key(env: Reader, name: str) -> bytes:
    text = env.text(name)
    try:
        key = base64.b64decode(text.removeprefix("whsec_"), validate=True)
    except ValueError:
        key = b""
    if text and not 24 <= len(key) <= 64:
        raise ImproperlyConfigured(
            f"{name}: write whsec_ and the base64 of 24 to 64 random bytes (openssl rand -base64 33)."
        )
    return key
