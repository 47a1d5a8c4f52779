"""Model profiles for tests."""

from __future__ import annotations

from typing import Any

from tasks import profiles
from tasks.models import ModelProfile
from tasks.profiles import NewKey

CANARY = "sk-live-CANARY-7f3a"


def make_profile(name: str = "main", key: str = "", **fields: Any) -> ModelProfile:
    """Saved as the admin saves it; the default one unless the test says otherwise."""
    fields.setdefault("base_url", "http://127.0.0.1:9/v1")
    fields.setdefault("model", f"model-of-{name}")
    fields.setdefault("is_default", name == "main")
    profile = ModelProfile(name=name, **fields)
    assert profiles.problems(profile) == {}
    profiles.save(profile, by="root", key=NewKey(text=key) if key else None)
    return profile
