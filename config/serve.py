"""`python -m config.serve`: Daphne where PILOTHOUSE_HOST and PORT say. `make run` ends here."""

from __future__ import annotations

import os
import sys

from daphne.cli import CommandLineInterface
from django.core.exceptions import ImproperlyConfigured

from config.env import read


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        environment = read()
    except ImproperlyConfigured as error:
        sys.stderr.write(f"pilothouse: {error}\n")
        sys.exit(2)
    host, port = environment.host, str(environment.port)
    sys.stdout.write(
        f"Pilothouse serves {environment.conf.public_url} (listening on {host}:{port})\n"
    )
    sys.stdout.flush()
    CommandLineInterface().run(["-v", "0", "-b", host, "-p", port, "config.asgi:application"])


if __name__ == "__main__":
    main()
