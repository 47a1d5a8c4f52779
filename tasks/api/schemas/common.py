"""What all schemas share: strict input, times as text, and refusals."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from tasks.events import wire_time

MAX_COMMENT = 10_000
Mode = Literal["ask", "deny", "read_only"]


def stamp(moment: datetime | None) -> str | None:
    return None if moment is None else wire_time(moment)


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ErrorInside(BaseModel):
    code: str
    message: str
    details: Any = None


class ErrorOut(BaseModel):
    """Every refusal."""

    error: ErrorInside


def answers(status: int, body: Any, *refusals: int) -> dict[Any, Any]:
    """The answers of an operation, for ninja: one good one and the refusals it may meet."""
    return {status: body, frozenset({400, 401, 403, *refusals}): ErrorOut}
