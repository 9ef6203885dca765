"""The client as a service of systemd, which starts it with the machine and after a crash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gridbot_client.storage import Folder
from gridbot_client.upkeep import background

NAME = "gridbot-client.service"
_INSTEAD = "gridbot client start"

# Delegate: the client makes a cgroup for each task.  KillMode: it ends its tasks by itself, and
# keeps what they have done; what is left after TimeoutStopSec systemd ends.
_UNIT = """\
[Unit]
Description=GridBot client, which runs jobs of others when this machine has time
Documentation=man:systemd.service(5)
Wants=network-online.target
After=network-online.target

[Service]
ExecStart={command}
Restart=on-failure
RestartSec=30
Delegate=yes
KillMode=mixed
TimeoutStopSec=60
Nice=10

[Install]
WantedBy={target}
"""


class ServiceError(Exception):
    """The service could not be changed; the message says what to do."""


def install(folder: Path, options: Sequence[str], *, is_system: bool) -> Path:
    """Write the unit, enable it and start it; return where it lies.

    `options` are those of `gridbot client run`.  A unit that is there is replaced, and a client
    that runs in the background makes room for the service's.  Raises ServiceError, NotStopped.
    """
    _check()
    path = _path(is_system)
    is_new = not path.exists()
    command = [sys.executable, "-m", "gridbot", "client", "run", "--quiet", "--data", str(folder)]
    text = _UNIT.format(
        command=" ".join(map(_quoted, [*command, *options])),
        target="multi-user.target" if is_system else "default.target",
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise ServiceError(f"{path}: {error.strerror}; as another user, try --user") from None
    try:
        _systemctl(is_system, "daemon-reload")
    except ServiceError as error:
        if is_new:
            path.unlink()
        raise ServiceError(f"{error}; without systemd: {_INSTEAD}") from None
    _systemctl(is_system, "enable", NAME)
    background.stop(Folder(folder))
    _systemctl(is_system, "restart", NAME)
    return path


def runs(folder: Path, *, is_system: bool) -> bool:
    """Whether there is a service that runs the client of a folder."""
    path = _path(is_system)
    return path.exists() and _quoted(str(folder)) in path.read_text()


def uninstall(*, is_system: bool) -> bool:
    """Stop the service and remove it; False if there is none.  Raises ServiceError."""
    path = _path(is_system)
    if not path.exists():
        return False
    _systemctl(is_system, "disable", "--now", NAME)
    path.unlink()
    _systemctl(is_system, "daemon-reload")
    return True


def _path(is_system: bool) -> Path:
    if is_system:
        return Path("/etc/systemd/system") / NAME
    usual = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return usual / "systemd" / "user" / NAME


def _quoted(word: str) -> str:
    """A word of a command line, as systemd.service(5) reads it."""
    for special, plain in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        word = word.replace(special, plain)
    return f'"{word}"'


def _check() -> None:
    if shutil.which("systemctl") is None:
        raise ServiceError(
            f"this machine has no systemd; to run the client in the background: {_INSTEAD}"
        )


def _systemctl(is_system: bool, *arguments: str) -> None:
    _check()
    command = ["systemctl", *([] if is_system else ["--user"]), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        said = ended.stderr.strip() or f"exit code {ended.returncode}"
        raise ServiceError(f"{' '.join(command)}: {said}")
