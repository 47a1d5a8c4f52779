"""`python -m config.serve`: Daphne where PILOTHOUSE_HOST and PORT say.

`--prepare`, as `make run` calls it: first the database is migrated, the demo is made where there is
no user yet, and a sign-in link is printed. Beside a running server, or where something else listens
at its address, it changes nothing and says so.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import NoReturn

import django
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command

from config import loop
from config.env import Environment, read


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        environment = read()
    except ImproperlyConfigured as error:
        _refuse(str(error), 2)
    if "--prepare" in sys.argv[1:]:
        _prepare(environment)
    serve(environment.host, environment.port)


def serve(host: str, port: int, application: str = "config.asgi:application") -> None:
    """Daphne, until it is told to stop."""
    loop.install()
    from daphne.cli import CommandLineInterface  # ties Twisted to a loop when it is imported

    CommandLineInterface().run(["-v", "0", "-b", host, "-p", str(port), application])


def _prepare(environment: Environment) -> None:
    django.setup(set_prefix=False)
    _refuse_beside_a_server(environment)
    _refuse_a_taken_address(environment.host, environment.port)
    call_command("migrate", verbosity=0)
    try:
        call_command("seed_demo", link="")
    except CommandError as error:
        sys.stdout.write(f"No sign-in link: {error}\n")  # e.g. several people may administer it
    host, port = environment.host, environment.port
    sys.stdout.write(f"Pilothouse on {environment.conf.public_url} (listening on {host}:{port})\n")
    sys.stdout.flush()


def _refuse_beside_a_server(environment: Environment) -> None:
    """Its database must not be migrated under it."""
    from tasks import server_lock  # needs the settings, so not before `django.setup()`

    conf = environment.conf
    try:
        lock = server_lock.acquire("", address=conf.public_url, var_dir=conf.var_dir)
    except server_lock.ServerLockedError as error:
        _refuse(str(error), 1)
    else:
        lock.release()


def _refuse_a_taken_address(host: str, port: int) -> None:
    """No link is printed that leads to another program. Who takes it from now on until Daphne
    listens is named by Daphne."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Daphne's has it
            probe.bind((host, port))
    except OSError as error:
        _refuse(
            f"cannot listen on {host}:{port}: {error.strerror}. Choose another port with"
            " PILOTHOUSE_PORT, here or in .env.",
            1,
        )


def _refuse(reason: str, status: int) -> NoReturn:
    sys.stderr.write(f"pilothouse: {reason}\n")
    sys.exit(status)


if __name__ == "__main__":
    main()
