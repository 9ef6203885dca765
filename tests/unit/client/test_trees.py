"""Claims about measuring and removing what hostile tasks wrote."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gridbot_client.work import trees

MEGABYTE = 1 << 20


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "tree"
    made.mkdir()
    yield made
    trees.remove(made)


def nest(tree: Path, depth: int) -> None:
    """Make directories in directories, far beyond the longest path."""
    here = os.open(tree, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d" * 100, dir_fd=here)
        below = os.open("d" * 100, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def test_bytes_and_files_count_up_to_their_limits(tree: Path) -> None:
    (tree / "d").mkdir()
    for number in range(10):
        (tree / "d" / str(number)).write_bytes(bytes(MEGABYTE))
    assert not trees.exceeds(tree, 11 * MEGABYTE, 11)
    assert trees.exceeds(tree, 9 * MEGABYTE, 11)
    assert trees.exceeds(tree, 11 * MEGABYTE, 10)


def test_holes_are_free_and_links_are_not_followed(tree: Path) -> None:
    with (tree / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    (tree / "link").symlink_to("/usr")
    assert not trees.exceeds(tree, MEGABYTE, 2)


def test_a_tree_that_is_nested_too_deep_exceeds_its_limits(tree: Path) -> None:
    nest(tree, 50)
    assert not trees.exceeds(tree, 1 << 40, 1 << 40)
    trees.remove(tree)
    tree.mkdir()
    nest(tree, 3000)
    assert trees.exceeds(tree, 1 << 40, 1 << 40)


def test_a_tree_is_removed_however_deep_and_closed_it_is(tree: Path) -> None:
    nest(tree, 3000)
    (tree / "closed" / "in").mkdir(parents=True)
    (tree / "closed" / "in" / "file").write_text("x")
    (tree / "closed" / "in").chmod(0)
    (tree / "closed").chmod(0)
    tree.chmod(0)
    trees.remove(tree)
    assert not tree.exists()


def test_what_links_lead_to_stays(tree: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    (tree / "link").symlink_to(outside)
    trees.remove(tree)
    trees.remove(tmp_path / "nothing")
    assert outside.stat().st_mode & 0o777 == 0o500
    (tmp_path / "link").symlink_to(outside)
    trees.remove(tmp_path / "link")
    assert outside.exists() and not (tmp_path / "link").is_symlink()
