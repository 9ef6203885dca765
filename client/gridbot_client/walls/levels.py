"""Finds the best level that works on this machine, by attacking canaries from inside each."""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gridbot_client.walls import cgroups, landlock, nobody, probes
from gridbot_client.walls.cells import CGROUP, NAMESPACES, NONE, PROCESS, Cell, KernelLimits
from gridbot_client.walls.cgroups import Delegation
from gridbot_client.walls.handle import Warden

log = logging.getLogger(__name__)

_PROBE_SECONDS = 30.0
_LIMITS = KernelLimits(
    processes=64, data_bytes=4 << 30, file_bytes=1 << 20, open_files=256, shared_bytes=1 << 20
)
# What one's own work may do: it has the network, to which abstract sockets belong.  Only Landlock's
# scopes (ABI 6, Linux 6.12) keep it from these.
_OF_ONES_OWN = ("connect by TCP",)
_WITHOUT_SCOPES = ("connect to an abstract socket",)
_TEXTS = {
    NONE: "no walls",
    PROCESS: "Landlock and seccomp",
    NAMESPACES: "namespaces, Landlock and seccomp",
    CGROUP: "namespaces, Landlock, seccomp and a cgroup",
}


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What was proven: the level, and why it is no higher."""

    level: int
    obstacle: str = ""
    delegation: Delegation | None = None  # at level 3

    @property
    def attributes(self) -> dict[str, int | str]:
        """Attributes of the host ad."""
        return {"SandboxLevel": self.level, "Sandbox": self.text}

    @property
    def warning(self) -> str:
        """Warn the machine's owner, where strangers' work is behind lower walls than it should."""
        if self.level == NONE:
            return f"no work of others will run: this machine offers no walls ({self.obstacle})"
        if self.level < NAMESPACES:
            return (
                "work of others runs behind lower walls: it sees which processes there are, and"
                f" its network and files are held by rules alone ({self.obstacle})"
            )
        return ""

    @property
    def text(self) -> str:
        """The level in words."""
        return _TEXTS[self.level]

    def close(self) -> None:
        """Remove what was made for tasks; none may run any more."""
        if self.delegation:
            self.delegation.close()


def prove(
    warden: Warden, folder: Path, most: int, *, hidden: tuple[str, ...], reads: tuple[str, ...],
    writes: tuple[str, ...],
) -> Sandbox:  # fmt: skip
    """Find the best level up to `most` with what tasks are to see, and not to see.

    `folder` is made for this in the client's, which must be among what is hidden for any level to
    be proven.
    """
    attack = partial(_attack, warden, folder, hidden, reads, writes)
    obstacle = ""
    with _canaries(folder) as canaries:
        for level in range(most, NONE, -1):
            delegation = cgroups.find() if level == CGROUP else None
            if delegation:
                delegation.sweep()
            if level == CGROUP and delegation is None:
                obstacle = "level 3: no writable cgroup with limits on memory and processes"
                continue
            try:
                done = _attacks(attack, level, canaries, delegation)
            except (OSError, ValueError) as error:
                obstacle = f"level {level}: {error}"
            else:
                if not done:
                    return Sandbox(level, obstacle, delegation)
                obstacle = f"level {level}: a task could {', '.join(sorted(done))}"
            if delegation:
                delegation.close()
            log.info("sandbox: %s", obstacle)
    return Sandbox(NONE, obstacle)


def _attacks(
    attack: Callable[..., set[str]], level: int, canaries: Mapping[str, str],
    delegation: Delegation | None,
) -> set[str]:  # fmt: skip
    """Attacks that succeed at a level, as a stranger and as one's own work."""
    if level < NAMESPACES and not landlock.version():
        raise OSError("this kernel has no Landlock")
    strangers = attack(level, canaries, delegation, is_stranger=True)
    own = attack(level, canaries, delegation, is_stranger=False)
    known = () if landlock.has_scopes(landlock.version()) else _WITHOUT_SCOPES
    return strangers | (own - {*_OF_ONES_OWN, *known})


def _attack(
    warden: Warden, folder: Path, hidden: tuple[str, ...], reads: tuple[str, ...],
    writes: tuple[str, ...], level: int, canaries: Mapping[str, str],
    delegation: Delegation | None, *, is_stranger: bool,
) -> set[str]:  # fmt: skip
    slot = folder / "slot"
    shutil.rmtree(slot, ignore_errors=True)
    (slot / "work" / "tmp").mkdir(parents=True)
    cell = Cell(
        argv=("probe",), env={}, folder=str(slot), work=str(slot / "work"), level=level,
        limits=_LIMITS, is_stranger=is_stranger, network=not is_stranger, hidden=hidden,
        reads=reads, writes=writes, canaries=dict(canaries),
    )  # fmt: skip
    group = None
    try:
        nobody.give(cell, (slot / "work",))
        if delegation:
            group = delegation.take(memory_bytes=256 << 20, processes=64, cpus=1)
        with (slot / "stdout").open("w+b") as stdout:
            descriptors = group.descriptors if group else ()
            task = warden.start(cell, stdout.fileno(), stdout.fileno(), descriptors)
            task.ended_within(_PROBE_SECONDS)
            code, _ = task.finish()
            stdout.seek(0)
            said = stdout.read()
        if code:
            raise OSError(f"the probe ended with {code}")
        done = set(json.loads(said))
        # Below its own /tmp a task may make what it likes, also under the name of our folder.
        return done if os.path.exists(canaries["folder"]) else done - {probes.WRITE}
    finally:
        if group:
            group.release()
        shutil.rmtree(slot, ignore_errors=True)


@contextmanager
def _canaries(folder: Path) -> Iterator[dict[str, str]]:
    """Things outside that do no harm when they are attacked."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(exist_ok=True)
    secret, outside = folder / "canary", folder / "canary.made"
    name = f"gridbot-{secrets.token_hex(8)}"
    bystander = subprocess.Popen(
        ["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        secret.write_text("canary")
        with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as local:
            local.bind(f"\0{name}")
            local.listen()
            yield {
                "secret": str(secret), "folder": str(outside), "pid": str(bystander.pid),
                "tcp": str(tcp.getsockname()[1]), "abstract": name,
            }  # fmt: skip
    finally:
        bystander.kill()
        bystander.wait()
        shutil.rmtree(folder, ignore_errors=True)
