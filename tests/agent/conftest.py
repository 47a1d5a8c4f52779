from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import beneath
from agent.beneath import Opener, by_kernel, by_steps
from agent.toolbox import Toolbox, ToolContext
from agent.tools import builtin_tools
from agent.workspace import Workspace
from tests.support.jail import make_jail


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("AAA")
    (tmp_path / "b.txt").write_text("BBB")
    return tmp_path


@pytest.fixture(params=[by_kernel, by_steps], ids=["kernel", "steps"])
def opener(request: pytest.FixtureRequest) -> Opener:
    """Each way to open files beneath a folder that this machine knows."""
    if not beneath.works(request.param):
        pytest.skip("this kernel has no openat2")
    found: Opener = request.param
    return found


@pytest.fixture
def jail(opener: Opener, tmp_path: Path) -> Workspace:
    """The traps of a hostile workspace, opened in both ways."""
    return make_jail(tmp_path, opener)


@pytest.fixture
def context(root: Path) -> ToolContext:
    """Of a run in the workspace that the test file furnishes."""
    return ToolContext(workspace=Workspace(root))


@pytest.fixture(scope="module")
def box() -> Iterator[Toolbox]:
    """The product's tools."""
    box = Toolbox(builtin_tools())
    yield box
    box.close()
