"""`seed_demo`: somebody to sign in as and something to work on, on a machine that has neither.

Files first, then the user and the workspace in one transaction: interrupted anywhere, it can run
again. With any user in the database it changes nothing and prints no secret.
"""

from __future__ import annotations

import shutil
import tempfile
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from tasks import workspaces
from tasks.conf import conf
from tasks.management.people import Refused, in_words, the_user
from tasks.management.unchecked import UncheckedCommand
from tasks.signin import MINUTES, make_link

FILES = Path(__file__).resolve().parents[3] / "demo" / "workspace"
NAME = "demo"
ADMIN = "admin"


class Command(UncheckedCommand):
    help = "Make the user admin and the workspace demo, if there is no user yet."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--link",
            nargs="?",
            const="",
            metavar="USER",
            help="print a fresh one-time sign-in link (default: for admin)",
        )

    def handle(self, *_args: Any, link: str | None = None, **_options: Any) -> None:
        with in_words():
            made = None if User.objects.exists() else self._seed()
            if made is not None:
                self._print_link(made)
            elif link is not None:
                self._print_link(_whom(link))
            else:
                self.stdout.write(
                    "There are users already: nothing to do."
                    " A sign-in link: .venv/bin/python manage.py seed_demo --link"
                )

    def _seed(self) -> User | None:
        """None when somebody else was quicker."""
        folder = conf().workspaces_dir / NAME
        copy_missing(FILES, folder)
        try:
            with transaction.atomic():
                admin = User.objects.create_superuser(ADMIN)  # without a usable password
                workspaces.register(admin, NAME, folder)
        except IntegrityError:
            return None
        self.stdout.write(f"Made the user {ADMIN} and the workspace {NAME} in {folder}.")
        return admin

    def _print_link(self, user: User) -> None:
        self.stdout.write(f"Sign in as {user} (once, within {MINUTES} minutes):")
        self.stdout.write(f"  {make_link(user)}")


def _whom(name: str) -> User:
    if name:
        return the_user(name)
    admin = User.objects.filter(username=ADMIN, is_active=True).first()
    return admin or the_user(None)


def copy_missing(source: Path, folder: Path) -> None:
    """Every file of `source` that `folder` does not have. Each appears whole or not at all."""
    try:
        for file in sorted(each for each in source.rglob("*") if each.is_file()):
            target = folder / file.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                _copy(file, target, folder.parent)
    except OSError as error:
        raise Refused(f"The demo files cannot be copied to {folder}: {error.strerror}.") from None


def _copy(file: Path, target: Path, drafts: Path) -> None:
    with tempfile.NamedTemporaryFile(dir=drafts, prefix=".seed-", delete=False) as draft:
        draft.write(file.read_bytes())
    path = Path(draft.name)
    shutil.copymode(file, path)
    path.replace(target)
