from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import Client

from tasks.writer import writer
from tests.support.admin import signed_in
from tests.support.people import House, make_house
from tests.support.rows import make_user


@pytest.fixture(autouse=True)
def stopped_writer() -> Iterator[None]:
    yield
    writer.stop()


@pytest.fixture
def admin() -> Client:
    return signed_in(make_user("admin", is_staff=True, is_superuser=True))


@pytest.fixture
def house(tmp_path: Path) -> House:
    return make_house(tmp_path / "desk")
