"""Servers of files for tests: rclone's, for five protocols over one folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.system.deployment import eventually, free_port

RCLONE = Path(sys.executable).with_name("rclone")
USER, PASSWORD = "user", "secret"
PROTOCOLS = ("http", "ftp", "sftp", "webdav", "s3")


@contextmanager
def served(folder: Path, work: Path) -> Iterator[dict[str, str]]:
    """Base URL by protocol; that of s3 is its endpoint.  `work` gets logs and keys."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(_server(name, folder, work)) for name in PROTOCOLS}


@contextmanager
def _server(protocol: str, folder: Path, work: Path) -> Iterator[str]:
    port = free_port()
    secret = {
        "http": [],
        "s3": ["--auth-key", f"{USER},{PASSWORD}"],
    }.get(protocol, ["--user", USER, "--pass", PASSWORD])
    if protocol == "sftp":
        key = work / "host_key"
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True, timeout=60
        )
        secret += ["--key", str(key)]
    if protocol == "ftp":
        first = free_port()
        secret += ["--passive-port", f"{first}-{first + 1000}"]
    log = (work / f"{protocol}.log").open("wb")
    with log, subprocess.Popen(
        [RCLONE, "serve", protocol, folder, "--addr", f"127.0.0.1:{port}", *secret,
         "--config", "", "--vfs-cache-mode", "writes", "--cache-dir", work / protocol,
         "--vfs-write-back", "0s", "--dir-cache-time", "0s"],
        stdout=log, stderr=log,
    ) as server:  # fmt: skip
        try:
            eventually(lambda: _listens(port), what=f"rclone serve {protocol}")
            host = f"127.0.0.1:{port}"
            yield (f"{protocol}://{host}" if protocol in ("http", "s3")
                   else f"{protocol}://{USER}:{PASSWORD}@{host}")  # fmt: skip
        finally:
            server.terminate()


def _listens(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def environment(bases: Mapping[str, str], home: Path) -> dict[str, str]:
    """Variables by which a client reaches the servers: S3's keys, and SFTP's host key."""
    ssh = home / ".ssh"
    ssh.mkdir(mode=0o700, parents=True, exist_ok=True)
    port = bases["sftp"].rpartition(":")[2]
    public = next(home.rglob("host_key.pub")).read_text().split()
    (ssh / "known_hosts").write_text(f"[127.0.0.1]:{port} {public[0]} {public[1]}\n")
    return {
        "HOME": str(home),
        "AWS_ENDPOINT_URL": bases["s3"].replace("s3://", "http://"),
        "AWS_ACCESS_KEY_ID": USER,
        "AWS_SECRET_ACCESS_KEY": PASSWORD,
    }
