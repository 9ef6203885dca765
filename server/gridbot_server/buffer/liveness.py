"""Which web processes live: each holds a lock as long, so that its slots can be told from others'.

A lock, not a process id: those are reused, and a zombie looks alive.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def path_of(buffer_path: Path, generation: int) -> Path:
    """The file that a web process keeps locked while it lives."""
    return buffer_path.with_suffix(f".{generation}.alive")


def hold(buffer_path: Path, generation: int) -> int:
    """Lock the file of a web process; return the descriptor that keeps it locked."""
    path = path_of(buffer_path, generation)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def is_dead(buffer_path: Path, generation: int) -> bool:
    """Whether the web process of that generation has ended."""
    try:
        descriptor = os.open(path_of(buffer_path, generation), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
