"""The page's scripts without a browser: `node --test`, as one of ours."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

NODE = shutil.which("node")
HERE = Path(__file__).parent


@pytest.mark.skipif(NODE is None, reason="node is not installed (Debian: apt-get install nodejs)")
@pytest.mark.parametrize("path", sorted(HERE.glob("*.test.js")), ids=lambda path: path.name)
def test_scripts_keep_their_promises(path: Path) -> None:
    done = subprocess.run(
        [str(NODE), "--test", str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
