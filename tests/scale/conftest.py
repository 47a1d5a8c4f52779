"""The same product as several processes, on a PostgreSQL and a Redis of our own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support import services
from tests.support.e2e import Person
from tests.support.e2e_model import Model
from tests.support.provider_server import serving
from tests.support.scaled import ScaledHouse, Services
from tests.support.services import Redis


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.scale)
            if (
                item.get_closest_marker("timeout") is None
            ):  # the first one waits for the start of all
                item.add_marker(pytest.mark.timeout(400))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure tells what the processes and the queue were doing."""
    report = yield
    house = getattr(item, "funcargs", {}).get("house")
    if report.failed and isinstance(house, ScaledHouse):
        try:
            report.sections += house.account()
        except psycopg.OperationalError as trouble:  # the test had stopped the database
            report.sections.append(("database", str(trouble)))
    return report


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    """One that nothing else uses."""
    if absent := services.missing():
        pytest.skip(f"scale-out needs {absent}")
    server = Redis()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def model() -> Iterator[Model]:
    with serving(Model()) as running:
        yield running


@pytest.fixture(scope="session")
def scale(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    if absent := services.missing():
        pytest.skip(f"scale-out needs {absent}")
    stand = Services(tmp_path_factory.mktemp("template"))
    try:
        stand.furnish()
        yield stand
    finally:
        stand.remove()


@pytest.fixture(scope="session")
def shared_house(
    tmp_path_factory: pytest.TempPathFactory, scale: Services, model: Model
) -> Iterator[ScaledHouse]:
    """Two web processes and two workers, with gates for tests that kill them."""
    house = ScaledHouse(tmp_path_factory.mktemp("scaled"), scale, model, held=True)
    with house.server:
        yield house
        house.verify_log()


@pytest.fixture
def house(shared_house: ScaledHouse) -> ScaledHouse:
    """Complete: whoever was killed by the test before has been started again."""
    shared_house.complete()
    return shared_house


@pytest.fixture
async def alice(house: ScaledHouse) -> AsyncIterator[Person]:
    async with house.person("alice") as person:
        yield person


@pytest.fixture
async def bob(house: ScaledHouse) -> AsyncIterator[Person]:
    async with house.person("bob") as person:
        yield person
