"""A site's proxy for tests: squid, which knows names that nobody else here knows."""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.system.batch_systems import need, open_folder
from tests.system.deployment import answers, eventually, free_port

_CONFIGURATION = """
http_port 127.0.0.1:{port}
cache_effective_user {user}
cache_effective_group {group}
hosts_file {folder}/hosts
logformat asked %Ss %rm %ru
access_log stdio:{folder}/asked asked
cache_log {folder}/cache.log
cache_store_log none
coredump_dir {folder}
pid_filename none
netdb_filename none
pinger_enable off
shutdown_lifetime 0 seconds
http_access allow localhost
http_access deny all
"""


@dataclass(frozen=True)
class Squid:
    """A proxy that runs."""

    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def asked(self) -> list[tuple[str, str, str]]:
        """Requests that have ended: what the cache made of it, method, and URL without query."""
        lines = (self.folder / "asked").read_text().splitlines()
        found = (line.split(maxsplit=2) for line in lines)
        return [
            (cached, method, url.partition("?")[0])
            for cached, method, url in found
            if method != "-"  # a connection without a request
        ]


@contextmanager
def squid(*names: str, more: str = "") -> Iterator[Squid]:
    """A proxy to which these names mean this machine; `more` is further configuration."""
    need("squid", "squid")
    with open_folder("squid") as folder:
        folder.chmod(0o777)  # of root's, it runs as another user
        (folder / "hosts").write_text("".join(f"127.0.0.1 {name}\n" for name in names))
        found = Squid(folder, free_port())
        with _running(found, more):
            yield found


@contextmanager
def _running(proxy: Squid, more: str) -> Iterator[None]:
    user = pwd.getpwuid(os.getuid() or pwd.getpwnam("nobody").pw_uid)
    given = {"port": proxy.port, "folder": proxy.folder, "user": user.pw_name}
    given["group"] = grp.getgrgid(user.pw_gid).gr_name
    path = proxy.folder / "squid.conf"
    path.write_text((_CONFIGURATION + more).format(**given))
    search = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    command = ["squid", "-N", "-n", f"test{proxy.port}", "-f", str(path)]
    with (proxy.folder / "said").open("ab") as said:
        # Folders of a cache on disk are made by a run of their own.
        subprocess.run([*command, "-z"], env=search, stdout=said, stderr=said, check=True)
        process = subprocess.Popen(
            command, env=search, stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
    with process:
        try:
            eventually(
                lambda: process.poll() is not None or answers(proxy.port), what="squid at its port"
            )
            assert process.poll() is None, (proxy.folder / "cache.log").read_text()
            yield
        finally:
            process.terminate()  # it removes what it has in shared memory
