"""Directories and small files, written so that neither a crash nor another user gets in."""

import os
from pathlib import Path

from gridbot_client.filesystem import sync_directory


def make_directory(path: Path, mode: int = 0o711) -> None:
    """Make a directory and its missing parents with `mode`, whatever the umask.

    One that is there already and empty is taken as ours; any other keeps the mode it has.
    """
    if not path.parent.exists():
        make_directory(path.parent)
    path.mkdir(exist_ok=True)
    if not any(path.iterdir()):
        path.chmod(mode)


def write_atomically(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace a small file so that a reader or a crash sees the old text or the new one.

    Once it returns, a crash of the machine leaves the new one.
    """
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        os.fchmod(file.fileno(), mode)  # whatever the umask
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_directory(path.parent)


def write_new(path: Path, content: bytes) -> None:
    """Write a secret where nothing was, for its owner only; FileExistsError when there is one."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    sync_directory(path.parent)
