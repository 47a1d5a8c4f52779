"""What a person or a client did that cannot be done, as the API's one error shape."""

from __future__ import annotations

from typing import Any


class ServiceError(Exception):
    """`{"error": {"code", "message", "details"?}}` with a status."""

    status = 400

    def __init__(self, code: str, message: str, details: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details


class Invalid(ServiceError):
    """The request cannot be understood or asks for what is not allowed."""

    status = 400


class NotIdentified(ServiceError):
    """Nobody, or a token or cookie that is no longer good."""

    status = 401

    def __init__(self, message: str = "Sign in, or send an API token.") -> None:
        super().__init__("not_authenticated", message)


class Forbidden(ServiceError):
    """Only for a failed CSRF check and for a token without the scope."""

    status = 403


class NotFound(ServiceError):
    """Unknown, or somebody else's: the answer is the same."""

    status = 404

    def __init__(self, what: str = "object") -> None:
        super().__init__("not_found", f"There is no such {what}.")


class Conflict(ServiceError):
    """The state does not allow it (any more)."""

    status = 409


class TooLarge(ServiceError):
    """More than we read."""

    status = 413


class TooMany(ServiceError):
    """A queue or a rate is full."""

    status = 429

    def __init__(self, code: str, message: str, retry_after: int) -> None:
        super().__init__(code, message)
        self.retry_after = retry_after
        """Seconds after which another try makes sense."""
