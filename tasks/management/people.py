"""Who gives a command, on which workspace, and refusals in words.

A command is given by whoever may open the database, but it acts as a user of Pilothouse: what that
user may not see does not exist here either.
"""

from __future__ import annotations

import getpass
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.contrib.auth.models import User
from django.core.management.base import CommandError
from django.db import DatabaseError, IntegrityError

from tasks import workspaces
from tasks.access import WRITERS, Principal, visible_workspaces
from tasks.errors import ServiceError
from tasks.models import Workspace
from tasks.writer import WriterUnavailable

USAGE = 2
"""Exit status of what was asked for wrongly."""


class Refused(CommandError):
    """One sentence on stderr and exit status 2."""

    def __init__(self, sentence: str, *, returncode: int = USAGE) -> None:
        super().__init__(sentence, returncode=returncode)


@contextmanager
def quiet(verbosity: int) -> Iterator[None]:
    """What runs log at INFO is in the command's own output."""
    root = logging.getLogger()
    before = root.level
    if verbosity < 2:
        root.setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.setLevel(before)


@contextmanager
def in_words() -> Iterator[None]:
    """Refusals of the service and of the database become sentences."""
    try:
        yield
    except ServiceError as refused:
        raise Refused(refused.message) from None
    except WriterUnavailable as trouble:
        raise CommandError(f"The database does not answer: {trouble}") from None
    except DatabaseError as trouble:
        if "no such table" in str(trouble) or "does not exist" in str(trouble):
            raise Refused("The database is not set up yet: run `make setup` first.") from None
        raise CommandError(f"The database does not answer: {trouble}") from None


def on_the_machine() -> str:
    """Who gives a command that acts as no user of Pilothouse: the operating system's user. No user
    of ours can be called so, for the brackets."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in some containers
        name = f"uid {os.getuid()}"
    return f"{name} (command line)"


def the_user(name: str | None, *, may_make: bool = False) -> User:
    """The named user, else the only superuser; with no user at all `local`, if it may be made."""
    if name:
        found = User.objects.filter(username=name).first()
        if found is None:
            raise Refused(f"There is no user called {name}.")
        if not found.is_active:
            raise Refused(f"The user {name} is not active.")
        return found
    superusers = list(User.objects.filter(is_superuser=True, is_active=True)[:2])
    if len(superusers) == 1:
        return superusers[0]
    if superusers:
        raise Refused("There are several superusers: say which one with --user NAME.")
    if may_make and not User.objects.exists():
        return _local()
    raise Refused("There is no superuser: say who you are with --user NAME.")


def _local() -> User:
    try:
        return User.objects.create_superuser("local")  # without a usable password
    except IntegrityError:  # another command made it at the same moment
        return User.objects.get(username="local")


def the_workspace(name_or_path: str, user: User, principal: Principal) -> Workspace:
    """A workspace of theirs by its name, else the one in that folder, registered if it is new."""
    usable = visible_workspaces(principal, WRITERS)
    named = usable.filter(name=name_or_path)
    own = named.filter(owner=user).first() or named.first()
    if own is not None:
        return own
    folder = Path(name_or_path).expanduser()
    if not folder.is_dir():
        raise Refused(_unknown(name_or_path, [each.name for each in usable[:10]]))
    real = folder.resolve()
    registered = usable.filter(root=str(real)).first()
    return registered or workspaces.register(user, _free_name(user, real), real, anywhere=True)


def _unknown(asked: str, known: list[str]) -> str:
    theirs = f" Yours: {', '.join(known)}." if known else ""
    return f"There is neither a workspace nor a folder called {asked}.{theirs}"


def _free_name(user: User, folder: Path) -> str:
    wanted = (folder.name or "root")[:90]
    taken = set(user.workspaces.values_list("name", flat=True))
    numbered = (f"{wanted}-{number}" for number in range(2, len(taken) + 3))
    return next(name for name in (wanted, *numbered) if name not in taken)
