"""Claims about the directory that a pilot has on its node."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gridbot_overlay.pilot.start import PREFIX, Scratch


def test_pilots_that_come_and_go_at_once_leave_each_other_alone(tmp_path: Path) -> None:
    def comes_and_goes(_: int) -> bool:
        with Scratch(str(tmp_path)) as scratch:
            (Path(scratch) / "library").mkdir()
            return (Path(scratch) / "lock").exists()

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(comes_and_goes, range(400)))
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_pilot_left_is_removed_by_the_next(tmp_path: Path) -> None:
    left = tmp_path / f"{PREFIX}left"
    left.mkdir()
    (left / "lock").touch()
    strange = tmp_path / "strange"
    strange.mkdir()
    with Scratch(str(tmp_path)) as scratch:
        assert sorted(tmp_path.iterdir()) == sorted([Path(scratch), strange])
