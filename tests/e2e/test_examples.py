"""What the documentation gives to copy into a shell, run as it stands."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from config.env import ROOT
from tests.support.browser import Site
from tests.support.documents import blocks


@pytest.mark.long
@pytest.mark.parametrize("page", ["README.md", "docs/agui.md", "docs/api.md", "docs/operations.md"])
def test_examples_of_the_pages_run(page: str, tmp_path: Path) -> None:
    """Against a fresh server with the demo, all of a page in one shell; watching has an end here."""
    told = [text for place, text in blocks("sh", "bash") if place.startswith(f"{page}:")]
    runnable = [text for text in told if "curl" in text or "verify_export" in text]
    assert runnable
    with Site(tmp_path / "state") as site:
        script = "set -euo pipefail\n" + "\n".join(runnable)
        script = script.replace("http://127.0.0.1:8000", site.url)
        script = re.sub(
            r"curl -N (.*?)(\s+#.*)?$", r"{ curl -N -s -m 4 \1 || true; }", script, flags=re.M
        )
        script = script.replace(
            ".venv/bin/python manage.py", f"{ROOT}/.venv/bin/python {ROOT}/manage.py"
        )
        script = script.replace("verify_export.py", str(ROOT / "verify_export.py"))
        script = script.replace("var/workspaces/demo", str(site.workspace))
        env = {**os.environ, **site.server.env}
        here = tmp_path / "here"
        here.mkdir()
        (here / "report.pdf").touch()
        ran = subprocess.run(
            ["bash", "-c", script], cwd=here, env=env, text=True, capture_output=True
        )
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stdout + ran.stderr
    left = {path.name for path in here.iterdir()}
    assert left <= {"report.pdf", "audit.zip"}, "copied commands leave files in the reader's folder"
