"""Registering workspaces: which folder may become the one that tools touch.

A root is stored as a real path. It exists, lies under `PILOTHOUSE_WORKSPACES_DIR` unless an
administrator says otherwise, overlaps no other workspace, and never holds our own state: a tool
that could write the database or the audit key would stand above every policy.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from agent.errors import PathRefused
from agent.workspace import Workspace as Guard
from tasks import audit
from tasks.conf import conf
from tasks.errors import Invalid
from tasks.models import Workspace

logger = logging.getLogger(__name__)

OLD_SECONDS = 3600
"""A temporary file of ours that nobody has written to for so long is not in use."""
MAX_NAME = 100
MAX_ROOT = 1024
"""What the columns hold."""


def register(
    owner: AbstractBaseUser, name: str, root: Path | str, *, anywhere: bool = False
) -> Workspace:
    """A new workspace, or Invalid with a sentence that says what is wrong.

    `anywhere` is for commands and administrators: the root may lie outside the workspaces folder.
    """
    name = name.strip()
    with transaction.atomic():
        real = checked_root(owner, name, root, anywhere=anywhere)
        workspace = Workspace.objects.create(owner_id=owner.pk, name=name, root=str(real))
        made = {"owner": owner.pk, "root": str(real)}
        audit.record(
            audit.of_workspace(workspace, "workspace.made", owner.get_username(), after=made)
        )
        return workspace


def roots() -> list[Path]:
    """The folders of all workspaces."""
    return [Path(root) for root in Workspace.objects.values_list("root", flat=True)]


def sweep(folders: Iterable[Path]) -> int:
    """Remove what crashes left half written; how many files. For a thread: it asks no database."""
    removed, before = 0, time.time() - OLD_SECONDS
    for root in folders:
        try:
            removed += Guard(root).sweep(before=before)
        except (PathRefused, OSError) as trouble:
            logger.warning("A workspace could not be swept: %s", trouble)
    return removed


def checked_root(
    owner: AbstractBaseUser, name: str, root: Path | str, *, anywhere: bool = False
) -> Path:
    """The real folder for a new workspace. Raises Invalid like `register`, and makes nothing."""
    if not name or len(name) > MAX_NAME:
        raise Invalid("workspace_name", f"A workspace needs a name of 1 to {MAX_NAME} letters.")
    real = _real_folder(root)
    if not anywhere:
        _refuse_outside(real)
    _refuse_our_state(real)
    _refuse_taken(owner, name, real)
    return real


def _real_folder(root: Path | str) -> Path:
    try:
        real = Path(root).resolve(strict=True)
    except FileNotFoundError:
        raise Invalid("workspace_root", f"The folder {root} does not exist.") from None
    except (OSError, RuntimeError, ValueError) as error:  # no permission, a link to itself, NUL
        raise Invalid("workspace_root", f"The folder {root!s} cannot be opened: {error}.") from None
    if not real.is_dir():
        raise Invalid("workspace_root", f"{root} is not a folder.")
    if len(str(real)) > MAX_ROOT:
        raise Invalid("workspace_root", "The path of the folder is too long.")
    return real


def _refuse_outside(real: Path) -> None:
    home = conf().workspaces_dir.resolve()
    if home not in real.parents:
        raise Invalid(
            "workspace_root",
            f"{real} is not inside {home} (PILOTHOUSE_WORKSPACES_DIR);"
            " an administrator can register a folder elsewhere.",
        )


def _refuse_our_state(real: Path) -> None:
    for state in _our_state():
        if real == state or real in state.parents:
            raise Invalid("workspace_root", f"{real} holds Pilothouse's own state ({state}).")
    for room in (*_our_program(), *_our_skills()):
        if real == room or room in real.parents:
            raise Invalid("workspace_root", f"{real} is part of Pilothouse itself.")
    var, home = conf().var_dir.resolve(), conf().workspaces_dir.resolve()
    if var in real.parents and home not in real.parents:
        raise Invalid("workspace_root", f"{real} is part of Pilothouse's own state ({var}).")


def _our_state() -> Iterator[Path]:
    yield conf().var_dir.resolve()
    yield conf().workspaces_dir.resolve()
    yield from _our_program()
    yield from _our_skills()
    database = settings.DATABASES["default"]
    if database["ENGINE"].endswith("sqlite3"):
        yield Path(database["NAME"]).resolve()


def _our_program() -> Iterator[Path]:
    """A tool that can edit the program is not held by it."""
    root = Path(__file__).resolve().parent.parent
    for room in ("agent", "config", "static", "streaming", "tasks", "templates", ".venv"):
        yield root / room


def _our_skills() -> Iterator[Path]:
    """A tool that writes them would tell every workspace's runs what to do."""
    folder = conf().skills_dir
    if folder is not None:
        yield folder.resolve()


def _refuse_taken(owner: AbstractBaseUser, name: str, real: Path) -> None:
    if Workspace.objects.filter(owner_id=owner.pk, name=name).exists():
        raise Invalid("workspace_name", f"There is a workspace called {name} already.")
    for other in Workspace.objects.values_list("root", flat=True):
        relation = _relation(real, Path(other))
        if relation:
            raise Invalid("workspace_root", f"{real} {relation} of another workspace: {other}.")


def _relation(real: Path, other: Path) -> str | None:
    """How two roots overlap. Names are not enough: file systems that ignore case, bind mounts."""
    ours, theirs = _identity(real), _identity(other)
    if real == other or ours & theirs:
        return "is the folder"
    if other in real.parents or theirs & _identity(*real.parents):
        return "lies inside the folder"
    if real in other.parents or ours & _identity(*other.parents):
        return "contains the folder"
    return None


def _identity(*folders: Path) -> set[tuple[int, int]]:
    found = set()
    for folder in folders:
        try:
            status = folder.stat()
        except OSError:  # a registered folder may have gone, or not be ours to look at
            continue
        found.add((status.st_dev, status.st_ino))
    return found
