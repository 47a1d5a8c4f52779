from __future__ import annotations

import pytest
from django.test import Client

from tests.support.admin import signed_in
from tests.support.rows import make_user


@pytest.fixture(autouse=True)
def stopped_writer(stopped_writer: None) -> None:
    """Of every test here."""


@pytest.fixture
def admin() -> Client:
    return signed_in(make_user("admin", is_staff=True, is_superuser=True))
