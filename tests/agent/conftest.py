from __future__ import annotations

from pathlib import Path

import pytest

from agent import beneath
from agent.beneath import by_kernel, by_steps
from agent.workspace import Workspace
from tests.support.jail import make_jail


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("AAA")
    (tmp_path / "b.txt").write_text("BBB")
    return tmp_path


@pytest.fixture(params=[by_kernel, by_steps], ids=["kernel", "steps"])
def jail(request: pytest.FixtureRequest, tmp_path: Path) -> Workspace:
    """The traps of a hostile workspace, opened in both ways."""
    if not beneath.works(request.param):
        pytest.skip("this kernel has no openat2")
    return make_jail(tmp_path, request.param)
