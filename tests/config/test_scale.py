"""What `make scale` takes from `.env`, and what it fills in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from config import scale


@pytest.mark.parametrize(
    ("line", "is_given"),
    [
        ("REDIS_URL=redis://elsewhere:6379/0", True),
        ("export REDIS_URL = redis://elsewhere:6379/0", True),
        ("#REDIS_URL=redis://elsewhere:6379/0", False),
        ("REDIS_URL=", False),
        ("OTHER_REDIS_URL=redis://elsewhere:6379/0", False),
    ],
)
def test_only_what_env_does_not_say_is_filled_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, is_given: bool
) -> None:
    for name in scale.DEFAULTS:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(scale, "ROOT", tmp_path)
    (tmp_path / ".env").write_text(f"DEBUG=1\n{line}\n")

    scale._fill_in()

    assert ("REDIS_URL" not in os.environ) == is_given
    assert os.environ["DATABASE_URL"] == scale.DEFAULTS["DATABASE_URL"]
