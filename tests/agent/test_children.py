"""Child processes: whose descriptors are whose."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = """
import asyncio
from pathlib import Path
import uvloop
from agent.children import running

async def main():
    said = []
    for arguments in (["echo", "done"], ["no-such-program"], ["sleep", "60"]):
        try:
            async with running(arguments, cwd=Path("/"), env={}, output=said.append) as child:
                if arguments[0] == "echo":
                    assert await child.wait() == 0
        except FileNotFoundError:
            pass
    assert said == [b"done\\n"]
"""


def _traces() -> bool:
    strace = shutil.which("strace")
    return (
        strace is not None and not subprocess.run([strace, "true"], capture_output=True).returncode
    )


@pytest.mark.skipif(not _traces(), reason="needs strace, and leave to trace")
@pytest.mark.parametrize("run", ["asyncio.run", "uvloop.run"])
def test_no_descriptor_is_closed_twice(run: str, tmp_path: Path) -> None:
    """The second time it is another thread's: what that writes goes nowhere, or elsewhere."""
    trace = tmp_path / "trace"
    strace = ["strace", "-e", "trace=close", "-e", "status=failed", "-o", str(trace)]
    subprocess.run(
        [*strace, sys.executable, "-c", f"{COMMANDS}\n{run}(main())"], cwd=ROOT, check=True
    )
    assert "EBADF" not in trace.read_text()
