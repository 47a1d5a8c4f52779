"""`python -m config.serve --prepare`, as `make run` starts it, where it cannot serve."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from config.env import ROOT
from tests.support.daphne import environment


def test_a_taken_port_is_named_before_anything_is_done(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = subprocess.run(
            [sys.executable, "-m", "config.serve", "--prepare"],
            cwd=ROOT,
            env=environment(tmp_path, {"PILOTHOUSE_PORT": str(port)}),
            capture_output=True,
            text=True,
        )
    assert (ended.returncode, ended.stdout) == (1, "")  # no link that leads to another program
    assert ended.stderr == (
        f"pilothouse: cannot listen on 127.0.0.1:{port}: Address already in use. Choose another"
        " port with PILOTHOUSE_PORT, here or in .env.\n"
    )
