"""One model and one server for all tests that leave the server as it is; a desk for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.e2e import Furnished, House, Person
from tests.support.e2e_model import Model
from tests.support.provider_server import serving


@pytest.fixture(scope="session")
def model() -> Iterator[Model]:
    with serving(Model()) as running:
        yield running


@pytest.fixture(scope="session")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Furnished:
    return Furnished(tmp_path_factory.mktemp("furnished"))


@pytest.fixture(scope="session")
def shared_house(
    tmp_path_factory: pytest.TempPathFactory, furnished: Furnished, model: Model
) -> Iterator[House]:
    """The product as it is delivered, under Daphne."""
    house = House(tmp_path_factory.mktemp("shared"), furnished, model)
    with house.server:
        yield house
        house.verify_log()
        assert "Traceback" not in house.server.log


@pytest.fixture
def house(shared_house: House) -> House:
    """A module with a server of its own replaces this one."""
    return shared_house


@pytest.fixture
async def alice(house: House) -> AsyncIterator[Person]:
    async with house.person("alice") as person:
        yield person


@pytest.fixture
async def bob(house: House) -> AsyncIterator[Person]:
    async with house.person("bob") as person:
        yield person
