"""A look at passwords that takes as long as it must for a race to be lost."""

from __future__ import annotations

import threading
from typing import Any

from django.contrib.auth.backends import BaseBackend
from django.http import HttpRequest


class Crowd:
    """So many at once: each is looked at or turned away, and only then the looking comes to its end."""

    def __init__(self, size: int) -> None:
        self._everybody = threading.Barrier(size)
        self.looked_at = 0

    def arrive(self) -> None:
        self._everybody.wait(30)


crowd = Crowd(1)


class SlowBackend(BaseBackend):
    """Knows no password."""

    def authenticate(self, request: HttpRequest | None, **credentials: Any) -> None:
        crowd.looked_at += 1
        crowd.arrive()
