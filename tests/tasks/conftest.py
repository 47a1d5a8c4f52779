from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import Client

from tasks.writer import writer
from tests.support.people import House, bearer, make_house, see


@pytest.fixture
def house(tmp_path: Path) -> House:
    """Of people; test files that watch runs have one of their own (`tests.support.runs`)."""
    return make_house(tmp_path / "desk")


@pytest.fixture
def seen(house: House) -> None:
    """The approval of the house asks about the target as it is: an answer counts."""
    see(house.approval)


@pytest.fixture
def alice(house: House) -> Client:
    """Her client of the API."""
    return Client(headers=bearer(house.alice))


@pytest.fixture
def stopped_writer() -> Iterator[None]:
    """Its thread, and its connection, end with the test."""
    yield
    writer.stop()
