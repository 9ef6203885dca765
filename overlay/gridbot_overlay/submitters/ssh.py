"""Any kind of grid with a command line, on a login node that is reached by the system's ssh.

All commands share one connection, which ssh itself keeps (ControlMaster), so that a login node
sees one login and not one for each command.  Scripts go through stdin; what must lie on the login
node lies in a private folder there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from gridbot_overlay.decide.model import CheckResult, Grid, PilotOrder, Sighting
from gridbot_overlay.submitters import KINDS, GridError, Submitter, rendering
from gridbot_overlay.submitters.commands import Commands

OPTIONS: dict[str, Any] = {
    "via": "slurm",  # the kind of grid behind the login node; its own options stand beside these
    "host": "",
    "user": "",
    "port": 22,
    "identity": "",  # a file with a private key; without it ssh looks for one as always
    "ssh": [],  # further arguments, such as ["-J", "gate.example"] or ["-F", "/etc/my/config"]
}
_KINDS = ("grid_engine", "htcondor", "pbs", "slurm")  # those that speak by commands only
_HOST = re.compile(r"[A-Za-z0-9_.:%-]{1,255}")
_USER = re.compile(r"[A-Za-z0-9_.-]{0,64}")
# A socket's path has at most 107 bytes; ssh appends 17 while it makes the socket.
_LONGEST_PATH = 90
_SETTINGS = {
    "BatchMode": "yes",  # there is nobody to ask
    "ConnectTimeout": "15",
    "ServerAliveInterval": "10",
    "ServerAliveCountMax": "3",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "ClearAllForwardings": "yes",
    "PermitLocalCommand": "no",
    "LogLevel": "ERROR",
}


class Ssh:
    """Pilots of another kind of grid, whose commands run on a login node."""

    def __init__(self, grid: Grid, folder: Path) -> None:
        own = {name: value for name, value in grid.options.items() if name in OPTIONS}
        options = rendering.options(replace(grid, options=own), OPTIONS, has_nodes=True)
        _check(grid, options)
        self._grid = grid
        self._folder = folder
        self._through = login(options, folder)
        self._kind: str = options["via"]
        self._others = {name: value for name, value in grid.options.items() if name not in own}
        self._behind(logs="/")  # now says what is wrong with the other kind's options

    def submit(self, order: PilotOrder) -> list[str]:
        """Submit as the kind behind the login node does."""
        return self._submitter.submit(order)

    def pilots(self, prefix: str) -> list[Sighting]:
        """Return what the kind behind the login node sees."""
        return self._submitter.pilots(prefix)

    def cancel(self, native_ids: Sequence[str]) -> None:
        """Cancel as the kind behind the login node does."""
        self._submitter.cancel(native_ids)

    def tail(self, native_id: str, tag: str) -> str:
        """Return the end of the pilot's stderr, which the login node can read."""
        return self._submitter.tail(native_id, tag)

    def check(self) -> list[CheckResult]:
        """Look at the connection, then at what the other kind looks at."""
        try:
            submitter, home = self._submitter, self._home
        except GridError as error:
            return [CheckResult("ssh", False, str(error))]
        shared = "" if _shares_connection(self._folder) else "; each command logs in anew"
        found = CheckResult("ssh", True, f"{self._through[-1]} lets us in, to {home}{shared}")
        return [found, *submitter.check()]

    @cached_property
    def _submitter(self) -> Submitter:
        _control(self._folder).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if "logs" in self._others:
            return self._behind()
        return self._behind(logs=f"{self._home}/.gridbot/{self._grid.name}/logs")

    @cached_property
    def _home(self) -> str:
        """Ask for our folder on the login node: paths must be whole, and quoted ones hold no ~."""
        said = Commands(through=self._through).run("sh", "-c", 'printf %s "$HOME"')
        if not said.startswith("/"):
            raise GridError(f"{self._through[-1]} has no home for us but {said[:100]!r}")
        return said

    def _behind(self, **more: Any) -> Submitter:
        options = {**self._others, **more, "through": list(self._through)}
        return KINDS[self._kind](
            replace(self._grid, kind=self._kind, options=options), self._folder
        )


def login(options: dict[str, Any], folder: Path) -> tuple[str, ...]:
    """Render the ssh command that a shell line is appended to; the first of a setting counts."""
    settings = dict(_SETTINGS)
    if _shares_connection(folder):
        control = str(_control(folder)).replace("%", "%%")
        settings |= {"ControlMaster": "auto", "ControlPersist": "300", "ControlPath": control}
    if options["identity"]:
        settings["IdentitiesOnly"] = "yes"
    return (
        "ssh",
        *options["ssh"],
        *(word for item in settings.items() for word in ("-o", "=".join(item))),
        *(("-p", str(options["port"])) if options["port"] != OPTIONS["port"] else ()),
        *(("-i", options["identity"]) if options["identity"] else ()),
        *(("-l", options["user"]) if options["user"] else ()),
        "-T",
        "--",
        options["host"],
    )


def _check(grid: Grid, options: dict[str, Any]) -> None:
    problem = ""
    if options["via"] not in _KINDS:
        problem = f"option via is one of {', '.join(_KINDS)}"
    elif not _HOST.fullmatch(options["host"]) or options["host"].startswith("-"):
        problem = "option host must name a login node"
    elif not _USER.fullmatch(options["user"]) or options["user"].startswith("-"):
        problem = "option user is no user's name"
    elif "through" in grid.options:
        problem = "option through is what this kind is for"
    if problem:
        raise GridError(f"grid {grid.name}: {problem}", is_lasting=True)


def _control(folder: Path) -> Path:
    """Name the socket at which ssh keeps the connection for the next commands."""
    return folder / "ssh" / "login"


def _shares_connection(folder: Path) -> bool:
    return len(os.fsencode(_control(folder))) <= _LONGEST_PATH
