"""slurmrestd on a real Slurm cluster: on a loopback port, with JSON Web Tokens."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from tests.process_tree import kill_tree
from tests.system.batch_systems import Slurm, need, slurm
from tests.system.deployment import eventually, free_port

_API = "v0.0.38"
_NOBODY = ("-u", "nobody", "-g", "nogroup")  # it refuses to work as root


@dataclass(frozen=True)
class SlurmRest:
    """A cluster, and how its REST interface is reached."""

    cluster: Slurm
    options: dict[str, str]  # of a grid of the kind slurmrestd


@contextmanager
def slurm_rest(folder: Path, **settings: Any) -> Iterator[SlurmRest]:
    """Start a cluster as `slurm` does, and its REST interface."""
    need("slurmrestd", "slurmrestd slurm-wlm-jwt-plugin")
    key = _private(folder / "jwt.key", os.urandom(32))
    settings |= {"AuthAltTypes": "auth/jwt", "AuthAltParameters": f"jwt_key={key}"}
    with slurm(folder, **settings) as cluster:
        url = f"http://127.0.0.1:{free_port()}"
        process = _started(cluster, url.removeprefix("http://"))
        try:
            eventually(lambda: _answers(url), what="slurmrestd")
            token = cluster.run("scontrol", "token", "lifespan=3600").encode()
            options = {"url": url, "api": _API, "token": str(_private(folder / "token", token))}
            yield SlurmRest(cluster, {**options, "logs": str(folder / "logs")})
        finally:
            kill_tree(process)


def _private(file: Path, content: bytes) -> Path:
    file.touch(mode=0o600)
    file.write_bytes(content)
    return file


def _started(cluster: Slurm, address: str) -> subprocess.Popen[bytes]:
    user = _NOBODY if os.geteuid() == 0 else ()
    # Without -s it wants a database of accounting.
    command = ["slurmrestd", *user, "-s", f"openapi/{_API}", "-a", "rest_auth/jwt", address]
    with (cluster.folder / "slurmrestd.log").open("wb") as log:
        return subprocess.Popen(
            command,
            env={
                **os.environ, **cluster.env, "PATH": f"{os.environ['PATH']}:/usr/sbin",
                "SLURM_JWT": "daemon",  # speak with the controller by tokens
            },
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def _answers(url: str) -> bool:
    with suppress(requests.ConnectionError):
        return requests.get(url, timeout=5).status_code > 0
    return False
