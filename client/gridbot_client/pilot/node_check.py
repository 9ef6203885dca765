"""Checks a node before it asks for jobs: disk, memory, and a job with a known answer."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

LEAST_DISK_MB = 200
LEAST_MEMORY_MB = 128
_SECONDS = 60.0
_QUESTION = b"gridbot " * 4096
# Reads a file, writes its hash into another: disk, processes and arithmetic in one.
_PROGRAM = (
    "import hashlib, pathlib;"
    "pathlib.Path('answer').write_text("
    "hashlib.sha256(pathlib.Path('question').read_bytes()).hexdigest())"
)


def trouble(folder: Path) -> str:
    """Return the first failed check in words, or "" if the node can work in `folder`."""
    return disk(folder) or memory() or known_answer(folder)


def disk(folder: Path) -> str:
    """Return why there is too little room for files, or ""."""
    free = shutil.disk_usage(folder).free >> 20
    if free < LEAST_DISK_MB:
        return f"{folder} has {free} MB free disk space; {LEAST_DISK_MB} MB needed"
    return ""


def memory() -> str:
    """Return why there is too little memory, or ""."""
    free = psutil.virtual_memory().available >> 20
    if free < LEAST_MEMORY_MB:
        return f"{free} MB free memory; {LEAST_MEMORY_MB} MB needed"
    return ""


def known_answer(folder: Path) -> str:
    """Run a job whose answer is known; return what went wrong, or ""."""
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix="check.") as name:
            place = Path(name)
            (place / "question").write_bytes(_QUESTION)
            argv = [sys.executable, "-c", _PROGRAM]
            # With the client's environment, which this Python may need (environment modules).
            ended = subprocess.run(
                argv, cwd=place, timeout=_SECONDS, capture_output=True, check=False
            )
            if ended.returncode:
                words = ended.stderr.decode(errors="replace").strip()[-500:]
                return f"the test job ended with exit code {ended.returncode}: {words}"
            if (place / "answer").read_text() != hashlib.sha256(_QUESTION).hexdigest():
                return "the test job gave a wrong answer"
    except (OSError, subprocess.SubprocessError) as error:
        return f"the test job could not run: {error}"
    return ""
