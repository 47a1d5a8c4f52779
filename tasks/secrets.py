"""Secrets that have to be read again, kept unreadable in the database.

They are sealed with a key that is not in the database: `PILOTHOUSE_SECRETS_KEY`, or a file under
`PILOTHOUSE_VAR_DIR`. Without that key a copy of the database gives none of them away.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode

from cryptography.fernet import Fernet, InvalidToken

from tasks.conf import conf

SEALED = "sealed:"


class SecretUnreadable(Exception):
    """It was sealed with another key."""


def seal(secret: str) -> str:
    """The text to store instead of the secret."""
    return SEALED + _fernet().encrypt(secret.encode()).decode()


def unseal(stored: str) -> str:
    """Raises SecretUnreadable."""
    try:
        return _fernet().decrypt(stored.removeprefix(SEALED).encode()).decode()
    except InvalidToken:
        raise SecretUnreadable("It was sealed with another PILOTHOUSE_SECRETS_KEY.") from None


def _fernet() -> Fernet:
    return Fernet(urlsafe_b64encode(conf().secrets_key))
