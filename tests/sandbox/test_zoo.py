"""No hostile task does harm, at any level that this machine offers."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator

import pytest
from tests.sandbox.cage import PYTHON, Cage, highest
from tests.sandbox.zoo import ZOO, Beast

from gridbot_client.walls import cgroups
from gridbot_client.walls.levels import Sandbox

LEVELS = (1, 2, 3)


@pytest.fixture(scope="session")
def offered() -> Sandbox:
    """What this machine offers.  CI must offer level 2, and 3 where a cgroup is writable."""
    found = highest()
    if "CI" in os.environ:
        least = 3 if cgroups.find() else 2
        assert found.level >= least, found.obstacle
    return found


class Cages(dict[int, Cage]):
    """One cage for each level, made when it is wanted."""

    def __missing__(self, level: int) -> Cage:
        self[level] = made = Cage(level)
        return made


@pytest.fixture(scope="session")
def cages() -> Iterator[Cages]:
    made = Cages()
    yield made
    for cage in made.values():
        cage.close()


def wanted(beast: Beast, level: int, offered: Sandbox) -> None:
    if level > offered.level:
        pytest.skip(f"this machine offers level {offered.level}: {offered.obstacle}")
    if beast.only_x86 and platform.machine() != "x86_64":
        pytest.skip("this attack is written in numbers of x86_64")
    assert os.access(PYTHON, os.X_OK), "the zoo needs the system's Python"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("beast", ZOO, ids=lambda beast: f"{beast.kind}: {beast.name}")
def test_a_hostile_task_does_no_harm(
    beast: Beast, level: int, offered: Sandbox, cages: Cages
) -> None:
    wanted(beast, level, offered)
    verdict = cages[level].let_in(beast)
    if level <= beast.below:
        assert not verdict.is_confined, "a gap was closed: remove its mark"
    else:
        assert verdict.harm == [], (verdict.end, verdict.text)


def test_the_zoo_is_large_and_knows_its_gaps() -> None:
    assert len(ZOO) >= 60
    assert len({beast.name for beast in ZOO}) == len(ZOO)
    assert not [beast for beast in ZOO if beast.below >= 2]
