"""The chat API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, Field

from tasks.api.schemas.common import MAX_COMMENT, ErrorInside, Strict


class ChatIn(Strict):
    session_id: str
    text: str


class ChatOut(BaseModel):
    ok: bool
    task_id: str | None


class ConfirmResultIn(Strict):
    tool_call_id: str
    approved: bool
    arguments: dict[str, Any] | None = None
    answer: str = Field("", max_length=MAX_COMMENT)


class ConfirmIn(Strict):
    session_id: str
    results: list[ConfirmResultIn] = Field(min_length=1, max_length=100)


class ConfirmItemOut(BaseModel):
    tool_call_id: str
    ok: bool
    error: ErrorInside | None = None


class ConfirmOut(BaseModel):
    ok: bool
    results: Sequence[ConfirmItemOut]
