"""The provider cases: exact bytes that real servers sent, and what must come of them.

A case is a folder with `turns.json` (status, headers, how it ends, what a strict provider refuses),
`chunks*.json` (base64, cut as the network cut it) and, for the parser, `expect.json`.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CASES = Path(__file__).resolve().parent.parent / "agent" / "data" / "provider_cases"


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One answer of the server."""

    status: int
    headers: dict[str, str]
    end: str
    """close, abort (reset) or hang"""
    guards: tuple[str, ...]
    delay: float
    chunks: tuple[bytes, ...]


def turns(case: str) -> list[Turn]:
    folder = CASES / case
    return [
        Turn(
            status=turn["status"],
            headers=turn["headers"],
            end=turn["end"],
            guards=tuple(turn["guards"]),
            delay=turn["delay_ms"] / 1000,
            chunks=tuple(
                base64.b64decode(chunk)
                for chunk in json.loads((folder / turn["chunks"]).read_text("utf-8"))
            ),
        )
        for turn in json.loads((folder / "turns.json").read_text("utf-8"))
    ]


def expected(case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CASES / case / "expect.json").read_text("utf-8"))
    return found


def names(prefix: str) -> list[str]:
    """Every case whose name starts with `prefix`, in order."""
    return sorted(folder.name for folder in CASES.iterdir() if folder.name.startswith(prefix))
