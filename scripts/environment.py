#!/usr/bin/env python3
"""The one Python environment of all scripts: `.venv` in the checkout, made once and kept current.

`scripts/environment.py KIND` makes it ready and prints its Python; KIND is `demo` or `dev`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# What pip is told to install, and imports that show whether that is still there.
_KINDS = {
    "demo": (["-e", ".[server]", "matplotlib>=3.8"], "import gridbot, gridbot_server, matplotlib"),
    "dev": (
        ["-e", ".[server,overlay,data,oidc,otel]", "--group", "dev"],
        "import gridbot, mypy, pytest, authlib, opentelemetry.sdk",
    ),
}


_CHECKOUT = Path(__file__).resolve().parent.parent
_FOLDER = _CHECKOUT / ".venv"
_PYTHON = _FOLDER / "bin" / "python"


class InstallFailed(Exception):
    """The environment could not be made; the message names the log to read."""


def ready(kind: str) -> Path | None:
    """Return the environment's Python, or None when it must be installed first."""
    stamp = _stamp(kind)
    if not stamp.exists() or stamp.read_text() != _wanted(kind):
        return None
    probe = subprocess.run([_PYTHON, "-c", _KINDS[kind][1]], stderr=subprocess.DEVNULL)
    return _PYTHON if probe.returncode == 0 else None


def install(kind: str) -> Path:
    """Make the environment, install GridBot from the checkout into it, return its Python."""
    log = _CHECKOUT / "demo-out" / "install.log"
    log.parent.mkdir(exist_ok=True)
    log.unlink(missing_ok=True)
    if not _PYTHON.exists():
        _run([sys.executable, "-m", "venv", str(_FOLDER)], log)
    pip = [str(_PYTHON), "-m", "pip", "install"]
    _run([*pip, "--upgrade", "pip>=25.1"], log)  # the first that knows --group
    _run([*pip, *_KINDS[kind][0]], log)
    _stamp(kind).write_text(_wanted(kind))
    return _PYTHON


def enter(kind: str) -> None:
    """Go on as the same script under the environment's Python; it is installed first if need be."""
    if Path(sys.prefix) == _FOLDER:
        return
    python = _made_ready(kind)
    os.execv(python, [str(python), *sys.argv])


def _made_ready(kind: str) -> Path:
    """Return the environment's Python; what cannot be had ends this process with the reason."""
    if sys.version_info < (3, 11):  # noqa: UP036 - nothing has been installed yet that checks it
        sys.exit(f"GridBot needs Python 3.11 or newer, not {sys.version.split()[0]}")
    try:
        python = ready(kind)
        if python is None:
            print("installing GridBot into .venv, which takes a minute", file=sys.stderr)
            python = install(kind)
    except InstallFailed as error:
        sys.exit(str(error))
    return python


def _stamp(kind: str) -> Path:
    """The file that says what was installed: written last, so that half of it does not count."""
    return _FOLDER / f"gridbot-{kind}-installed"


def _wanted(kind: str) -> str:
    project = (_CHECKOUT / "pyproject.toml").read_bytes()
    return hashlib.sha256(project + repr(_KINDS[kind]).encode()).hexdigest()


def _run(command: Sequence[str], log: Path) -> None:
    with log.open("a") as output:
        ended = subprocess.run(command, cwd=_CHECKOUT, stdout=output, stderr=subprocess.STDOUT)
    if ended.returncode != 0:
        hint = " (on Debian: apt install python3-venv)" if "venv" in command else ""
        raise InstallFailed(f"installing failed at `{' '.join(command)}`{hint}; read {log}")


if __name__ == "__main__":
    print(_made_ready(sys.argv[1]))
