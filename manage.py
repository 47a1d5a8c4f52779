#!/usr/bin/env python3
"""Django's command line. A wrong setting is one sentence and exit status 2, not a traceback."""

from __future__ import annotations

import os
import sys

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        settings.INSTALLED_APPS  # noqa: B018 - read them now: Django itself would put it off
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.stderr.write(f"pilothouse: {error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
