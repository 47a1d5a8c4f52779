"""A server with a scripted model for all, a browser for each module, a window for each test.

A browser lives no longer than its module: playwright keeps an event loop running in this thread,
beside which no asynchronous test can run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import EXECUTABLE, Browser, Site, Watched, asking
from tests.support.e2e_model import Model
from tests.support.provider_server import serving

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = pytest.mark.skipif(
        not Path(EXECUTABLE).exists(), reason="Debian's chromium is not installed"
    )
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(missing)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as running:
        yield running


@pytest.fixture(scope="session")
def model() -> Iterator[Model]:
    with serving(Model()) as running:
        yield running


@pytest.fixture(scope="session")
def scripted_site(tmp_path_factory: pytest.TempPathFactory, model: Model) -> Iterator[Site]:
    """The product with the scripted model instead of the demo's."""
    with Site(tmp_path_factory.mktemp("site"), asking(model)) as running:
        yield running
        assert "Traceback" not in running.server.log


@pytest.fixture(scope="module")
def site(scripted_site: Site) -> Site:
    """A module with a server of its own replaces this one."""
    return scripted_site


@pytest.fixture
def window(browser: Browser, site: Site) -> Iterator[Watched]:
    """Admin's window. What must not happen in it fails the test, whatever the test is about."""
    opened = browser.signed_in(site)
    yield opened
    problems = opened.problems
    opened.context.close()
    assert problems == []
