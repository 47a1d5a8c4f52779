"""What Django's own deployment check says of a server that people reach over https."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from config.env import ROOT
from tests.support.daphne import environment

PROGRAM = """
import config.asgi
from django.conf import settings
from django.core.checks import run_checks
from django.test import override_settings

ours = {
    "config.middleware.Sessions": "django.contrib.sessions.middleware.SessionMiddleware",
}
with override_settings(MIDDLEWARE=[ours.get(name, name) for name in settings.MIDDLEWARE]):
    # By their own names nothing is silenced but what HSTS says about other hosts.
    for problem in run_checks(include_deployment_checks=True):
        if problem.id not in ("security.W005", "security.W021"):
            print(problem)
print(settings.SESSION_COOKIE_SECURE, settings.CSRF_COOKIE_SECURE, settings.LANGUAGE_COOKIE_SECURE,
      settings.SESSION_COOKIE_HTTPONLY, settings.SESSION_COOKIE_SAMESITE, settings.CSRF_COOKIE_SAMESITE,
      settings.SECURE_HSTS_SECONDS, settings.DEBUG)
"""


def run(tmp_path: Path, *command: str) -> str:
    env = environment(tmp_path, {"PILOTHOUSE_PUBLIC_URL": "https://pilothouse.example.org"})
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_the_deployment_check_is_clean(tmp_path: Path) -> None:
    assert "no issues" in run(tmp_path, "manage.py", "check", "--deploy", "--fail-level", "WARNING")
    assert run(tmp_path, "-c", PROGRAM) == "True True True True Lax Lax 31536000 False\n"
