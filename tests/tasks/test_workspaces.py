"""Which folder may become a workspace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

import tasks
from tasks.conf import conf
from tasks.errors import Invalid
from tasks.models import Workspace
from tasks.workspaces import register

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice() -> User:
    return User.objects.create_user("alice")


@pytest.fixture
def home(tmp_path: Path, settings: Any) -> Path:
    """The workspaces folder of this test."""
    home = tmp_path / "var" / "workspaces"
    home.mkdir(parents=True)
    settings.PILOTHOUSE = replace(conf(), workspaces_dir=home, var_dir=tmp_path / "var")
    return home


def folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def refused(owner: User, root: Path | str, *, name: str = "desk", anywhere: bool = False) -> str:
    before = Workspace.objects.count()
    with pytest.raises(Invalid) as error:
        register(owner, name, root, anywhere=anywhere)
    assert Workspace.objects.count() == before
    assert error.value.status == 400
    return error.value.message


def test_folder_below_the_workspaces_folder_is_registered(alice: User, home: Path) -> None:
    workspace = register(alice, " desk ", folder(home / "desk"))

    assert (workspace.name, workspace.root, workspace.owner) == ("desk", str(home / "desk"), alice)


def test_missing_root_is_refused(alice: User, home: Path) -> None:
    assert "does not exist" in refused(alice, home / "nowhere")


def test_file_is_refused(alice: User, home: Path) -> None:
    (home / "file").write_text("")
    assert "is not a folder" in refused(alice, home / "file")


@pytest.mark.parametrize("root", ["a\x00b", "loop", "x" * 5000])
def test_unusable_root_is_refused(alice: User, home: Path, root: str) -> None:
    (home / "loop").symlink_to("loop")
    refused(alice, str(home / root))


def test_root_elsewhere_needs_an_administrator(alice: User, home: Path, tmp_path: Path) -> None:
    elsewhere = folder(tmp_path / "projects" / "one")

    assert "PILOTHOUSE_WORKSPACES_DIR" in refused(alice, elsewhere)
    assert register(alice, "desk", elsewhere, anywhere=True).root == str(elsewhere)


def test_link_that_leads_outside_is_outside(alice: User, home: Path, tmp_path: Path) -> None:
    (home / "link").symlink_to(folder(tmp_path / "projects"))

    refused(alice, home / "link")
    refused(alice, home / ".." / ".." / "projects")


def test_real_path_is_stored(alice: User, home: Path) -> None:
    (home / "link").symlink_to(folder(home / "desk"))

    assert register(alice, "desk", home / "link").root == str(home / "desk")


@pytest.mark.parametrize(
    ("second", "says"), [("a", "is the"), ("a/b", "inside"), ("link", "is the")]
)
def test_root_of_another_workspace_is_refused(
    alice: User, home: Path, second: str, says: str
) -> None:
    folder(home / "a" / "b")
    (home / "link").symlink_to("a")
    register(User.objects.create_user("bob"), "bobs", home / "a")

    assert says in refused(alice, home / second)


def test_root_around_another_workspace_is_refused(alice: User, home: Path) -> None:
    register(alice, "inner", folder(home / "a" / "b"))

    assert "contains" in refused(alice, home / "a")


def test_neighbour_with_a_common_prefix_is_fine(alice: User, home: Path) -> None:
    register(alice, "one", folder(home / "desk"))
    register(alice, "two", folder(home / "desk-2"))


def test_workspace_whose_folder_is_gone_still_holds_its_place(alice: User, home: Path) -> None:
    register(alice, "inner", folder(home / "a" / "b"))
    (home / "a" / "b").rmdir()

    assert "contains" in refused(alice, home / "a")


@pytest.mark.parametrize(
    "root", ["/", "{tmp}", "{tmp}/var", "{tmp}/var/workspaces", "{tmp}/var/keys"]
)
def test_our_own_state_is_refused_to_everybody(
    alice: User, home: Path, tmp_path: Path, root: str
) -> None:
    folder(tmp_path / "var" / "keys")

    assert "own state" in refused(alice, root.format(tmp=tmp_path), anywhere=True)


def test_folder_of_the_program_is_refused(alice: User, home: Path) -> None:
    assert "own state" in refused(alice, Path(tasks.__file__).parents[1], anywhere=True)


@pytest.mark.parametrize("name", ["", "  ", "x" * 101])
def test_bad_name_is_refused(alice: User, home: Path, name: str) -> None:
    refused(alice, folder(home / "desk"), name=name)


def test_name_is_unique_per_owner(alice: User, home: Path) -> None:
    register(alice, "desk", folder(home / "one"))

    assert "already" in refused(alice, folder(home / "two"))
    register(User.objects.create_user("bob"), "desk", home / "two")
