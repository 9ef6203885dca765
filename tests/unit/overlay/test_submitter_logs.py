"""Claims about the folder that pilots log to, which an operator may use for other things, too."""

import os
from pathlib import Path

from gridbot_overlay.submitters.commands import Commands
from gridbot_overlay.submitters.logs import Logs

OURS = "gb0a1b2cn17.44_3.err"
NOT_OURS = ("mine.err", "gb-notes.err", "gb0a1b2cn.err", "gb0a1b2cn17.sh", "slurm-44.err")


def aged(folder: Path, *names: str, days: float = 9.0) -> None:
    for name in names:
        file = folder / name
        file.write_text("x")
        os.utime(file, (file.stat().st_mtime - days * 86_400,) * 2)


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_old_logs_of_pilots_are_dropped_and_nothing_else_is(tmp_path: Path) -> None:
    aged(tmp_path, OURS, "gb0a1b2cnk3x9z0.44_3.err", *NOT_OURS)
    aged(tmp_path, young := "gb0a1b2cn18.45.err", days=6.0)
    Logs(Commands(), str(tmp_path)).prepare()
    assert names(tmp_path) == {*NOT_OURS, young}


def test_check_makes_the_folder_and_deletes_nothing(tmp_path: Path) -> None:
    aged(tmp_path, OURS, *NOT_OURS)
    assert Logs(Commands(), str(tmp_path)).check().is_good
    assert names(tmp_path) == {OURS, *NOT_OURS}
    assert Logs(Commands(), str(tmp_path / "new")).check().is_good
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_old_scripts_are_dropped_by_the_same_rule(tmp_path: Path) -> None:
    aged(tmp_path, OURS, "gb0a1b2cn17.sh", "backup.sh")
    Logs(Commands(), str(tmp_path)).drop_old("sh")
    assert names(tmp_path) == {OURS, "backup.sh"}
