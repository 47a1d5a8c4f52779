"""`worker`: in scale-out, a process that runs tasks. Start as many as you like, anywhere."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from tasks.conf import conf
from tasks.management.people import in_words
from tasks.management.unchecked import UncheckedCommand
from tasks.server_lock import ServerLockedError


class Command(UncheckedCommand):
    help = "Run tasks from the queue until SIGTERM. Needs DATABASE_URL (PostgreSQL) and REDIS_URL."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--concurrency",
            type=int,
            default=200,
            metavar="N",
            help="how many runs at a time (200); they mostly wait for models",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        if not conf().scale_out:
            raise CommandError(
                "Without REDIS_URL the server runs its tasks itself: there is nothing for a worker"
                " to do. Write REDIS_URL and DATABASE_URL, or stop here."
            )
        if options["concurrency"] < 1:
            raise CommandError("--concurrency must be at least 1.")
        from tasks.worker.process import PartBroke, serve  # of the extra `scale`

        try:
            with in_words():
                asyncio.run(serve(options["concurrency"]))
        except (ServerLockedError, PartBroke) as error:
            raise CommandError(str(error)) from error
