"""Of many who create one file at the same time one does, and the others hear it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from agent.beneath import Opener
from agent.errors import TargetChanged
from agent.renaming import Way, by_claim, by_kernel, by_link, name_new
from agent.workspace import ABSENT, Workspace

CREATORS = 8
ROUNDS = 40


def at_once(create: Callable[[int], None]) -> list[int]:
    """Everybody creates in the same moment: who was not refused."""
    start = Barrier(CREATORS)

    def one(me: int) -> bool:
        start.wait()
        try:
            create(me)
        except (TargetChanged, FileExistsError):
            return False
        return True

    with ThreadPoolExecutor(CREATORS) as pool:
        return [me for me, did in enumerate(pool.map(one, range(CREATORS))) if did]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_of_many_writes_of_a_new_file_one_creates_it(tmp_path: Path, opener: Opener) -> None:
    workspace = Workspace(tmp_path, opener)
    for turn in range(ROUNDS):
        path = f"new/{turn}.txt"
        created = at_once(lambda me, path=path: workspace.write_atomic(path, b"%d" % me, expected=ABSENT))  # type: ignore[misc]  # fmt: skip
        (winner,) = created
        assert (tmp_path / path).read_bytes() == b"%d" % winner
    assert len(list((tmp_path / "new").iterdir())) == ROUNDS


@pytest.mark.parametrize("way", [by_kernel, by_link, by_claim])
def test_each_way_gives_a_name_once(tmp_path: Path, directory: int, way: Way) -> None:
    for turn in range(ROUNDS):
        for me in range(CREATORS):
            (tmp_path / f"temporary {me}").write_bytes(b"%d" % me)
        name = f"{turn}.txt"
        (winner,) = at_once(lambda me, name=name: way(directory, f"temporary {me}", name))  # type: ignore[misc]
        assert (tmp_path / name).read_bytes() == b"%d" % winner


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM])
def test_a_way_that_is_unknown_here_is_followed_by_the_next(
    tmp_path: Path, directory: int, code: int
) -> None:
    def unknown(directory: int, temporary: str, name: str) -> None:
        raise OSError(code, os.strerror(code))

    (tmp_path / "a").write_bytes(b"A")
    (tmp_path / "b").write_bytes(b"B")
    name_new(directory, "a", "new", (unknown, unknown, by_link))
    with pytest.raises(FileExistsError):
        name_new(directory, "b", "new", (unknown, by_link, by_claim))
    assert (tmp_path / "new").read_bytes() == b"A"
    with pytest.raises(OSError, match=os.strerror(code)):
        name_new(directory, "b", "other", (unknown, unknown))


def test_a_disk_that_fails_is_not_asked_in_another_way(tmp_path: Path, directory: int) -> None:
    with pytest.raises(FileNotFoundError):
        name_new(directory, "gone", "new")
    assert not list(tmp_path.iterdir())


def test_a_link_in_the_place_of_the_name_is_not_followed(tmp_path: Path, directory: int) -> None:
    (tmp_path / "a").write_bytes(b"A")
    (tmp_path / "link").symlink_to("elsewhere")
    for way in (by_kernel, by_link, by_claim):
        with pytest.raises(FileExistsError):
            way(directory, "a", "link")
    assert not (tmp_path / "elsewhere").exists()
