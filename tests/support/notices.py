"""People who can be told: each has an address, and one approval waits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from asgiref.sync import async_to_sync
from django.contrib.auth.models import User

from tasks import notify
from tests.support.people import House, make_house, see


def prepared(tmp_path: Path) -> House:
    house = make_house(tmp_path / "desk")
    see(house.approval)
    for user in User.objects.all():
        user.email = f"{user.username}@example.com"
        user.save()
    return house


def having(settings: Any, **values: Any) -> None:
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, **values)


def look() -> None:
    """Tell everybody whom something waits for."""
    async_to_sync(notify.look)()
