"""Checkpoints of a Python program that runs as a job: `gridbot submit --checkpoint state.json`.

>>> from gridbot import checkpoint                              # doctest: +SKIP
>>> state = checkpoint.load({"step": 0, "sum": 0.0})
>>> while state["step"] < 1_000_000:
...     state = advance(state)
...     if checkpoint.is_due():
...         checkpoint.save(state)

`save` writes the file and ends the process with the exit code 85: the job is started again at once,
or on another machine, and `load` returns what was saved.  A checkpoint is JSON, or bytes: never a
pickle, because it comes from another machine.  The module needs nothing but the standard library:
where jobs have no GridBot, this file may be sent along as an input.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

EXIT_CODE = 85
FILE = "state.json"

_began = time.monotonic()
_is_asked = False


def load(default: Any = None, file: str | os.PathLike[str] = FILE) -> Any:
    """What was saved as JSON before; `default` at the first start.

    Raises ValueError if the file is not JSON.
    """
    found = load_bytes(file)
    return default if found is None else json.loads(found)


def load_bytes(file: str | os.PathLike[str] = FILE) -> bytes | None:
    """The bytes that were saved before; None at the first start."""
    _listen()
    try:
        return Path(file).read_bytes()
    except FileNotFoundError:
        return None


def is_due() -> bool:
    """Whether to save now: the machine is wanted for other things, or the time has come.

    The time is that of `--checkpoint-every`, from the start of the process on.
    """
    _listen()
    every = float(os.environ.get("GRIDBOT_CHECKPOINT_EVERY", "inf"))
    return _is_asked or time.monotonic() - _began >= every


def save(state: Any, file: str | os.PathLike[str] = FILE, exit_code: int = EXIT_CODE) -> NoReturn:
    """Save bytes as they are, or else JSON, and end the process to be started again.

    The file is replaced atomically: a crash leaves the one before.  Raises TypeError and OSError.
    """
    keep(state, file)
    sys.exit(exit_code)


def keep(state: Any, file: str | os.PathLike[str] = FILE) -> None:
    """Write the file as `save` does, and go on: one of several files, before the last one."""
    content = state if isinstance(state, bytes) else json.dumps(state).encode()
    fresh = Path(f"{os.fspath(file)}.new")
    with fresh.open("wb") as target:
        target.write(content)
        target.flush()
        os.fsync(target.fileno())
    fresh.replace(file)


def progress(part: float) -> None:
    """Say how far the job is, from 0 to 1; nothing happens outside of a job."""
    if path := os.environ.get("GRIDBOT_PROGRESS"):
        fresh = Path(f"{path}.new")
        fresh.write_text(f"{part:.6f}")
        fresh.replace(path)


def _listen() -> None:
    """Note SIGTERM, with which a job is asked to save, unless the program has its own way."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _note)


def _note(*_: object) -> None:
    global _is_asked  # a signal finds nothing else
    _is_asked = True
