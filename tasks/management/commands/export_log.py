"""`export_log`: the log of a task, of a session or the audit as a signed zip file.

`verify_export.py` in the project's root checks it without this server. `--public-key` prints what
it checks the signature with: tell it to people over a way that they trust.
"""

from __future__ import annotations

import shutil
import uuid
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from tasks import exports
from tasks.exports import Export
from tasks.management.people import Refused, in_words, on_the_machine
from tasks.management.unchecked import UncheckedCommand
from tasks.models import Session, Task


class Command(UncheckedCommand):
    help = "Write a log as a signed zip file, or print the public key that it is checked with."

    def add_arguments(self, parser: ArgumentParser) -> None:
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--task", type=uuid.UUID, metavar="ID", help="one task")
        what.add_argument("--session", type=uuid.UUID, metavar="ID", help="all tasks of a session")
        what.add_argument("--audit", action="store_true", help="the whole audit")
        what.add_argument(
            "--public-key", action="store_true", help="print the key that exports are checked with"
        )
        parser.add_argument("--to", type=Path, metavar="FILE", help="default: a name of its own")

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["public_key"]:
            self.stdout.write(exports.public_key())
            return
        with in_words():
            export = _export(options)
        with export.file:
            target = options["to"] or Path(export.name)
            try:
                with target.open("xb") as file:
                    shutil.copyfileobj(export.file, file)
            except OSError as error:
                raise CommandError(f"{target} cannot be written: {error.strerror}.") from None
        self.stdout.write(f"{target}: {export.size:,} bytes, signed by {exports.public_key()}")


def _export(options: dict[str, Any]) -> Export:
    by = on_the_machine()
    if options["audit"]:
        return exports.of_audit(by)
    if options["task"]:
        task = Task.objects.filter(pk=options["task"]).first()
        if task is None:
            raise Refused(f"There is no task {options['task']}.")
        return exports.of_task(task, by)
    session = Session.objects.filter(pk=options["session"]).first()
    if session is None:
        raise Refused(f"There is no session {options['session']}.")
    return exports.of_session(session, by)
