"""Shared folders: jobs see them at every level, and no job changes what another one sees."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sandbox.cage import LIMITS
from tests.sandbox.test_places import BOT, House
from tests.sandbox.test_walls import Machine, Makes, base, best, machine  # noqa: F401

from gridbot_client.protocol.messages import ReplicaId
from gridbot_client.walls.levels import Sandbox
from gridbot_client.work.confinement import Plain, ShownFolder
from gridbot_client.work.processes import Census
from gridbot_client.work.runner import ReplicaProgram, Runner, Stop
from gridbot_client.work.shared import NoRoomForFolder, SharedFolders
from gridbot_client.work.slots import slot_of

MB = 1 << 20
ATTACKS = (
    "echo bad > deps/data", "echo bad >> deps/sub/.dot", "rm -rf deps/sub", "mv deps/data deps/x",
    "chmod 777 deps deps/data", "touch -d @1 deps/data", "touch deps/new", "mkdir deps/new",
    "ln -s /etc deps/sub/link", "echo bad > deps/link", "truncate -s 0 $(realpath deps)/data",
    "rm -rf $(realpath deps)",
)  # fmt: skip
LOOK = "cd deps && cat data link sub/.dot && ls -A . sub && ./prog && stat -c %a prog data"


def make(top: Path) -> None:
    (top / "sub").mkdir(parents=True)
    (top / "data").write_text("data\n")
    (top / "sub" / ".dot").write_text("dot\n")
    (top / "link").symlink_to("data")
    (top / "prog").write_text("#!/bin/sh\necho runs\n")
    (top / "prog").chmod(0o755)


class Sharing:
    """One client at a level, with shared folders."""

    def __init__(self, client: Machine, level: int | None) -> None:
        client.folder.joinpath("shared").mkdir()
        self.path = client.folder / "shared"
        self.client = client
        self.confinement = Plain() if level is None else client.confinement
        self.folders = SharedFolders(self.path, 100 * MB)
        self.made = 0

    def run(self, script: str, *, is_stranger: bool, name: str = "deps") -> str:
        """Run a script that sees the folder; what it printed."""

        def made(top: Path) -> None:
            self.made += 1
            make(top)

        slot = slot_of(self.client.folder / "slots", ReplicaId(1, 1, 1))
        slot.path.mkdir(exist_ok=True)
        slot.reset()
        is_guarded = self.confinement.keeps_cells
        with self.folders.lent("key", made, MB, is_guarded=is_guarded) as folder:
            Runner(self.confinement, Census()).run(
                ReplicaProgram(
                    ["sh", "-c", script], shown=[ShownFolder(folder, slot.work / name)]
                ),
                slot, LIMITS, Stop(), lambda _: None, is_stranger=is_stranger,
            )  # fmt: skip
        return slot.stdout.read_text() + slot.stderr.read_text()


@pytest.fixture(params=[None, 0, 1, 2, 3])
def sharing(request: pytest.FixtureRequest, machine: Makes) -> Sharing:  # noqa: F811
    level = request.param
    client = machine(most=level or 0)
    if level and client.sandbox.level < level:
        pytest.skip(client.sandbox.obstacle)
    return Sharing(client, level)


def may_be_strangers(sharing: Sharing) -> list[bool]:
    return [who for who in (False, True) if not sharing.confinement.refusal(is_stranger=who)]


SEEN = "data\ndata\ndot\n.:\ndata\nlink\nprog\nsub\n\nsub:\n.dot\nruns\n555\n444\n"


def test_a_job_sees_the_folder_at_its_place(sharing: Sharing) -> None:
    for who in may_be_strangers(sharing):
        assert sharing.run(LOOK, is_stranger=who) == SEEN
        below = LOOK.replace("deps", "a/b", 1)
        assert sharing.run(below, is_stranger=who, name="a/b") == SEEN
    assert sharing.made == 1


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_job_changes_what_the_next_one_sees(sharing: Sharing, attack: str) -> None:
    for who in may_be_strangers(sharing):
        sharing.run(attack, is_stranger=who)
        assert sharing.run(LOOK, is_stranger=who) == SEEN
    if sharing.confinement.keeps_cells:
        assert sharing.made == 1


def test_from_level_2_on_the_way_up_from_a_folder_leads_to_the_job(
    machine: Makes,  # noqa: F811
    best: Sandbox,  # noqa: F811
) -> None:
    sharing = Sharing(machine(most=best.level), best.level)
    assert sharing.run("echo x > y; cat deps/../y", is_stranger=True) == "x\n"


# --- cells that stay


@pytest.fixture
def house(machine: Makes, best: Sandbox) -> Iterator[House]:  # noqa: F811
    made = House(machine())
    yield made
    made.places.close()


@pytest.mark.parametrize("name", ["deps", "a/b", "tmp/deps"])
def test_a_kept_cell_shows_the_folder_to_each_replica(house: House, name: str) -> None:
    folder = house.machine.base / "folder"
    make(folder)

    def run(script: str) -> str:
        with house.places.taken(house.slot(), BOT) as place:
            shown = [ShownFolder(folder, place.slot.work / name)]
            house.end_of(ReplicaProgram(["sh", "-c", script], shown=shown), place, BOT)
            return place.slot.stdout.read_text() + place.slot.stderr.read_text()

    for _ in range(3):
        assert run(f"cat {name}/data; echo x > left; ls -A; mkdir b").startswith("data\n")
    assert house.cells() == ["1"]
    # What leads to the folder is the task's to move; then nobody else gets the cell.
    run(f"mv {name.partition('/')[0]} elsewhere; mkdir -p {name}; echo false > {name}/data")
    assert run(f"cat {name}/data") == "data\n"


# --- the cache


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


def filled(size: int):  # type: ignore[no-untyped-def]
    def make(top: Path) -> None:
        top.mkdir()
        (top / "data").write_bytes(os.urandom(size))

    return make


def names(shared: Path) -> list[str]:
    return sorted(path.name for path in shared.iterdir())


def test_a_folder_is_made_once_and_outlives_the_client(shared: Path) -> None:
    for _ in range(2):
        folders = SharedFolders(shared, 100 * MB)
        for _ in range(2):
            with folders.lent("key", filled(MB), MB, is_guarded=True) as folder:
                assert folder.parent.name == "1"


def test_half_a_folder_is_removed_and_made_anew(shared: Path) -> None:
    class Crash(BaseException):
        pass

    def crash(top: Path) -> None:
        top.mkdir()
        (top / "half").write_text("half")
        raise Crash

    with pytest.raises(Crash), SharedFolders(shared, MB).lent("key", crash, 0, is_guarded=True):
        pass
    assert names(shared) == []
    make(shared / "7" / "tree")  # as a killed client leaves it
    folders = SharedFolders(shared, 100 * MB)
    assert names(shared) == []
    with folders.lent("key", filled(1), 1, is_guarded=True) as folder:
        assert [path.name for path in folder.iterdir()] == ["data"]


def test_what_changed_while_no_client_ran_is_made_anew(shared: Path) -> None:
    with SharedFolders(shared, 100 * MB).lent("key", make, MB, is_guarded=True) as folder:
        pass
    folder.chmod(0o755)
    (folder / "data").chmod(0o644)
    (folder / "data").write_text("DATA\n")
    (folder / "data").chmod(0o444)
    with SharedFolders(shared, 100 * MB).lent("key", make, MB, is_guarded=True) as folder:
        assert (folder / "data").read_text() == "data\n"
    assert len(names(shared)) == 1


def test_the_least_recently_used_folder_goes_and_never_one_in_use(shared: Path) -> None:
    folders = SharedFolders(shared, 10 * MB)

    def use(key: str) -> Path:
        with folders.lent(key, filled(3 * MB), 3 * MB, is_guarded=True) as folder:
            return folder

    with folders.lent("a", filled(3 * MB), 3 * MB, is_guarded=True) as in_use:
        first = use("b")
        second = use("c")
        use("b")
        use("d")
        assert [path.exists() for path in (in_use, first, second)] == [True, True, False]
        use("e")
        use("f")
        assert [path.exists() for path in (in_use, first)] == [True, False]


def test_a_folder_beyond_the_bound_is_refused_by_name(shared: Path) -> None:
    folders = SharedFolders(shared, 10 * MB)
    with (
        pytest.raises(NoRoomForFolder, match="needs 11 MB, and this machine keeps at most 10 MB"),
        folders.lent("key", filled(1), 11 * MB, is_guarded=True),
    ):
        pass
