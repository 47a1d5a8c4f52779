from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.runs import House, make_house


@pytest.fixture
def house(tmp_path: Path) -> House:
    return make_house(tmp_path / "desk")
