"""A real ARC CE of one machine for tests: A-REX with its REST interface, all in one folder."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.system.arc_certificates import make_certificates
from tests.system.batch_systems import call, end, need
from tests.system.deployment import eventually, free_port

PACKAGES = "nordugrid-arc-arex nordugrid-arc-arcctl nordugrid-arc-test-utils"
_START = "/usr/share/arc"
# Jobs run as processes (the batch system "fork") of a user without rights.
_CONF = """\
[common]
hostname=localhost
x509_host_key={folder}/host-localhost-key.pem
x509_host_cert={folder}/host-localhost-cert.pem
x509_cert_dir={folder}/authorities
[authgroup:all]
all=yes
[mapping]
map_to_user = all nobody:nogroup
[lrms]
lrms = fork
[arex]
sessiondir = {folder}/session
controldir = {folder}/control
logfile = {folder}/arex.log
pidfile = {folder}/arex.pid
delegationdb = sqlite
wakeupperiod = 1
[arex/ws]
wsurl = https://localhost:{port}/arex
logfile = {folder}/ws.log
pidfile = {folder}/ws.pid
[arex/ws/jobs]
allowaccess = all
[infosys]
logfile = {folder}/infosys.log
[infosys/glue2]
admindomain_name = TEST
[infosys/cluster]
[queue:fork]
"""


@dataclass(frozen=True)
class ArcCE:
    """One A-REX, and the credentials of a user."""

    folder: Path
    port: int

    @property
    def options(self) -> dict[str, str]:
        """Options of a grid of the kind arc."""
        return {
            "url": f"https://localhost:{self.port}/arex",
            "proxy": str(self.folder / "user.pem"),
            "ca": str(self.folder / "authorities"),
        }


@contextmanager
def arc_ce(folder: Path) -> Iterator[ArcCE]:
    """Start an A-REX in a folder that all may enter; nothing of it is left running."""
    need("arcctl arched", PACKAGES)
    made = ArcCE(folder, free_port())
    for name in ("session", "control"):
        (folder / name).mkdir()
    (folder / "session").chmod(0o755)
    make_certificates(folder)
    _join_user(folder)
    # A-REX would make a group of its own, which takes minutes of CPU time and outlives it.
    group = ("-algorithm", "DH", "-pkeyopt", "group:ffdhe2048")  # RFC 7919
    call("openssl", "genpkey", "-genparam", *group, "-out", str(folder / "control/dhparam.pem"))
    conf = folder / "arc.conf"
    conf.write_text(_CONF.format(folder=folder, port=made.port))
    env = {"ARC_CONFIG": str(conf)}
    try:
        call(f"{_START}/arc-arex-start", env=env)
        call(f"{_START}/arc-arex-ws-start", env=env)
        eventually(lambda: _listens(made.port), what="A-REX's port")
        yield made
    finally:
        end(folder / "ws.pid")
        end(folder / "arex.pid")


def _join_user(folder: Path) -> None:
    """Write the user's certificate and key into one file."""
    parts = [folder / "client-u-cert.pem", folder / "client-u-key.pem"]
    together = folder / "user.pem"
    together.touch(mode=0o600)
    together.write_text("".join(part.read_text() for part in parts))


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
