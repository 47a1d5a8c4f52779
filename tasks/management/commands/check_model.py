"""Does a model work? A tiny streamed conversation with a tool call, and what came of it.

Exit status: 0 everything works, 1 something does not, 2 usage.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from asgiref.sync import async_to_sync
from django.core.management.base import CommandParser

from agent.providers.check import Report
from tasks import profiles, wiring
from tasks.errors import Invalid
from tasks.management.people import in_words
from tasks.management.unchecked import UncheckedCommand
from tasks.models import ModelProfile
from tasks.writer import writer


class Command(UncheckedCommand):
    help = "Talk to a model: connection, stream, tool call, usage, and what its server wants differently."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "profile",
            nargs="?",
            default="",
            help="name or id of a model profile; without it, what a task would ask",
        )

        parser.add_argument(
            "--forget",
            action="store_true",
            help="first forget what was learnt of the server that the settings name",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        with in_words():
            self._try(options)

    def _try(self, options: dict[str, Any]) -> None:
        try:
            profile = _profile(options["profile"])
        except Invalid:
            known = ", ".join(ModelProfile.objects.values_list("name", flat=True)) or "none"
            self.stderr.write(
                f"There is no model profile {options['profile']}; there are: {known}."
            )
            sys.exit(2)
        if profile is None and wiring.in_force()[1]:
            self.stderr.write("There is no model to talk to: the scripted demo plays a fixed part.")
            sys.exit(1)
        if options["forget"]:
            writer.run_sync(partial(profiles.forget_server, wiring.server_of_settings()))
        try:
            report = async_to_sync(wiring.try_out)(profile)
        except wiring.NoModel as missing:
            self.stderr.write(f"{missing} {missing.hint}")
            sys.exit(1)
        self._show(report)
        sys.exit(0 if report.ok else 1)

    def _show(self, report: Report) -> None:
        for finding in report.findings:
            mark = "ok  " if finding.ok else "FAIL"
            self.stdout.write(f"{mark}  {finding.what:<11} {finding.said}")


def _profile(wanted: str) -> ModelProfile | None:
    return profiles.find(wanted) if wanted else profiles.default()
