"""A real sshd for tests: a loopback port, keys and a home of its own, ended by pid."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.system.batch_systems import call, end, need
from tests.system.deployment import eventually, free_port

SSH_PACKAGES = "openssh-server openssh-client"

_CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
PidFile {folder}/sshd.pid
AuthorizedKeysFile {folder}/identity.pub
AllowUsers {user}
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
UseDNS no
PrintMotd no
SetEnv HOME={folder}/home
"""


@dataclass
class LoginNode:
    """This machine, as a login node that lets us in."""

    folder: Path
    port: int = field(default_factory=free_port)

    @property
    def home(self) -> Path:
        """The home of those who log in."""
        return self.folder / "home"

    @property
    def options(self) -> dict[str, Any]:
        """What a grid of kind ssh is told of it."""
        return {
            "host": "127.0.0.1",
            "port": self.port,
            "user": getpass.getuser(),
            "identity": str(self.folder / "identity"),
            # An empty configuration, so that this machine's own changes no test.
            "ssh": ["-F", "none", "-o", f"UserKnownHostsFile={self.folder}/known_hosts"],
        }

    def start(self) -> None:
        """Let people in."""
        # sshd insists on the whole path of itself.
        sshd = shutil.which("sshd", path="/usr/sbin:/sbin:/usr/local/sbin") or "sshd"
        call(sshd, "-f", str(self.folder / "sshd_config"), "-E", str(self._log))
        eventually((self.folder / "sshd.pid").exists, what="sshd")

    def stop(self) -> None:
        """Let nobody in, and end all connections as a power failure does."""
        connections = self.connections()
        end(self.folder / "sshd.pid")
        for process in connections:
            process.kill()
        eventually(lambda: not any(map(_lives, connections)), what="the end of all connections")

    def connections(self) -> list[psutil.Process]:
        """The processes that serve who is in now."""
        try:
            listener = psutil.Process(int((self.folder / "sshd.pid").read_text()))
        except (FileNotFoundError, psutil.NoSuchProcess):
            return []
        return [child for child in listener.children(recursive=True) if "sshd" in child.name()]

    def freeze(self) -> None:
        """Answer nothing any more on the connections that there are."""
        for process in self.connections():
            process.send_signal(signal.SIGSTOP)

    def logins(self) -> int:
        """How often somebody was let in."""
        return self._log.read_text().count("Accepted publickey")

    @property
    def _log(self) -> Path:
        return self.folder / "log"


@contextmanager
def login_node(folder: Path) -> Iterator[LoginNode]:
    """Start a login node with all that it has below `folder`; end it with its connections."""
    need("sshd ssh ssh-keygen", SSH_PACKAGES)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where root's sshd confines a part
    made = LoginNode(folder)
    made.home.mkdir()
    for name in ("host_key", "identity", "stranger"):
        call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
    kind, key, *_ = (folder / "host_key.pub").read_text().split()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{made.port} {kind} {key}\n")
    config = _CONFIG.format(folder=folder, port=made.port, user=getpass.getuser())
    (folder / "sshd_config").write_text(config)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def _lives(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
